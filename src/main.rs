//! `m0serve APP`: see `m0serve --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let settings = m0serve::cli::parse();
    #[cfg(feature = "python")]
    return m0serve::supervisor::run(settings);
    #[cfg(not(feature = "python"))]
    {
        let _ = settings;
        eprintln!(
            "m0serve: this build has no Python (feature \"python\"); it can't serve an application"
        );
        ExitCode::FAILURE
    }
}
