//! m0serve

fn main() {
    let _settings = m0serve::cli::parse();
}
