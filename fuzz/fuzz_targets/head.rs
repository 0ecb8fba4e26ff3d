//! Target `head`: libFuzzer's entry under cargo-fuzz, a program of its own otherwise.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    m0serve_fuzz::check::head(data);
});

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    m0serve_fuzz::runner::run("head", m0serve_fuzz::check::head)
}
