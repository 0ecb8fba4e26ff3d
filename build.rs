//! Hands the linked interpreter's version and ABI to the crate, and puts its library on the rpath.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "python")]
    python();
}

#[cfg(feature = "python")]
fn python() {
    pyo3_build_config::use_pyo3_cfgs();
    let config = pyo3_build_config::get();
    // The interpreter to fall back to where no other is found, and the one that the unit tests run.
    if let Some(executable) = config.executable() {
        println!("cargo:rustc-env=M0_LINKED_EXECUTABLE={executable}");
    }
    let (version, free_threaded) = (config.version(), config.is_free_threaded());
    let abi = if free_threaded {
        "t, free-threaded"
    } else {
        ", with the GIL"
    };
    println!("cargo:rustc-env=M0_LINKED_PYTHON=CPython {version}{abi}");
    if let Some(dir) = &config.lib_dir() {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{dir}");
    }
}
