//! Which Python installation the user means, and whether this binary can run it.
//!
//! Owns the search (`--python`, `$VIRTUAL_ENV`, `python3` on PATH, the interpreter that this binary was built with) and
//! the comparison of ABIs. Runs on the main thread before the interpreter exists, and calls nothing of it but
//! `Py_GetVersion`: the installation's own interpreter is asked in a process of its own.

use std::ffi::{CStr, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{StartError, ffi};

/// An interpreter's version and ABI: what decides whether it and a binary fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    /// The rest as the interpreter says it: `7`, `0rc1+`.
    pub micro: String,
    pub free_threaded: bool,
}

impl Version {
    /// The interpreter that this binary is linked with.
    pub fn linked() -> Version {
        // SAFETY: a static C string, available before the interpreter is initialised (Include/pylifecycle.h).
        let text = unsafe { CStr::from_ptr(ffi::Py_GetVersion()) }.to_string_lossy();
        Version::parse(
            text.split(' ').next().unwrap_or_default(),
            cfg!(Py_GIL_DISABLED),
        )
        .expect("Py_GetVersion starts with the version")
    }

    fn parse(text: &str, free_threaded: bool) -> Option<Version> {
        let mut parts = text.splitn(3, '.');
        Some(Version {
            major: parts.next()?.parse().ok()?,
            minor: parts.next()?.parse().ok()?,
            micro: parts.next()?.to_owned(),
            free_threaded,
        })
    }

    /// Extension modules and the standard library of one fit the other.
    fn fits(&self, other: &Version) -> bool {
        (self.major, self.minor, self.free_threaded)
            == (other.major, other.minor, other.free_threaded)
    }

    /// What has to fit: `CPython 3.14t`.
    fn series(&self) -> String {
        let threads = if self.free_threaded { "t" } else { "" };
        format!("CPython {}.{}{threads}", self.major, self.minor)
    }

    /// The script that runs a command with an m0serve for this ABI.
    fn script(&self) -> Option<&'static str> {
        match (self.major, self.minor, self.free_threaded) {
            (3, 13, false) => Some("scripts/py313"),
            (3, 14, true) => Some("scripts/py314t"),
            _ => None,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = if self.free_threaded { "t" } else { "" };
        write!(
            f,
            "CPython {}.{}.{}{threads}",
            self.major, self.minor, self.micro
        )
    }
}

/// Why an interpreter was chosen, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Flag,
    VirtualEnv,
    Path,
    Build,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Flag => "given with --python",
            Origin::VirtualEnv => "of $VIRTUAL_ENV",
            Origin::Path => "found on PATH",
            Origin::Build => "that m0serve was built with",
        })
    }
}

/// What an installation says of itself.
#[derive(Debug, Clone)]
pub struct Installation {
    /// Its `sys.executable`: real for a pyenv shim, unresolved for a virtual environment's link.
    pub executable: PathBuf,
    pub version: Version,
}

/// The interpreter to run as, or None if none is installed: then the linked library goes by its own paths.
pub fn find(flag: Option<&Path>) -> Result<Option<Installation>, StartError> {
    let (candidate, origin) = match candidate(flag) {
        Some(found) => found,
        None => return Ok(None),
    };
    let found = ask(&candidate, &origin)?;
    let linked = Version::linked();
    if !found.version.fits(&linked) {
        return Err(StartError::usage(mismatch(&found, &origin, &linked)));
    }
    Ok(Some(found))
}

fn candidate(flag: Option<&Path>) -> Option<(PathBuf, Origin)> {
    if let Some(path) = flag {
        // A virtual environment's directory is as good as its interpreter.
        let path = if path.is_dir() {
            path.join("bin/python3")
        } else {
            path.to_owned()
        };
        return Some((path, Origin::Flag));
    }
    if let Some(environment) = std::env::var_os("VIRTUAL_ENV").filter(|value| !value.is_empty()) {
        return Some((
            Path::new(&environment).join("bin/python3"),
            Origin::VirtualEnv,
        ));
    }
    if let Some(found) = on_path(&std::env::var_os("PATH").unwrap_or_default(), "python3") {
        return Some((found, Origin::Path));
    }
    let built_with = Path::new(option_env!("M0_LINKED_EXECUTABLE")?);
    built_with
        .is_file()
        .then(|| (built_with.to_owned(), Origin::Build))
}

fn on_path(path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| {
            rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
        })
}

/// Asks without `site`, which is slow and nobody's business here. `t` in the ABI flags is free threading (PEP 703).
const QUESTION: &str = "import sys\n\
    answers = [sys.implementation.name, sys.executable, '.'.join(map(str, sys.version_info[:2])) + '.' + \
    sys.version.split(' ')[0].split('.', 2)[2], sys.abiflags]\n\
    sys.stdout.buffer.write('\\0'.join(answers).encode('utf-8', 'surrogateescape'))";

fn ask(interpreter: &Path, origin: &Origin) -> Result<Installation, StartError> {
    let unusable = |why: String| {
        StartError::usage(format!(
            "the interpreter {origin}, {}, can't be used: {why}",
            interpreter.display()
        ))
    };
    let output = Command::new(interpreter)
        .args(["-I", "-S", "-c", QUESTION])
        .output()
        .map_err(|error| unusable(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(unusable(format!(
            "it ended with {}: {}",
            output.status,
            said.trim()
        )));
    }
    let answers: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
    let &[implementation, executable, version, flags] = answers.as_slice() else {
        return Err(unusable("its answer makes no sense".to_owned()));
    };
    if implementation != b"cpython" {
        return Err(unusable(format!(
            "it is {}, not CPython",
            String::from_utf8_lossy(implementation)
        )));
    }
    let free_threaded = flags.contains(&b't');
    let version = Version::parse(&String::from_utf8_lossy(version), free_threaded)
        .ok_or_else(|| unusable("its version makes no sense".to_owned()))?;
    Ok(Installation {
        executable: PathBuf::from(OsString::from_vec(executable.to_vec())),
        version,
    })
}

fn mismatch(found: &Installation, origin: &Origin, linked: &Version) -> String {
    let mut text = format!(
        "the interpreter {origin} is {} ({}), but this m0serve is built for {}",
        found.version,
        found.executable.display(),
        linked.series(),
    );
    match found.version.script() {
        Some(script) => text.push_str(&format!(
            ". Use the m0serve that {script} builds for it, or name another interpreter with --python"
        )),
        None => text.push_str(". Name another interpreter with --python, or activate its virtual environment"),
    }
    text
}

/// A path as the NUL-terminated bytes that PyConfig decodes.
pub fn c_path(path: &Path) -> Result<std::ffi::CString, StartError> {
    std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|_| StartError::usage(format!("the path {path:?} contains a NUL byte")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_fit_by_series_and_threading() {
        let version = |text, free| Version::parse(text, free).unwrap();
        assert!(version("3.13.0", false).fits(&version("3.13.5", false)));
        assert!(!version("3.14.0", false).fits(&version("3.14.0", true)));
        assert!(!version("3.13.0", false).fits(&version("3.14.0", false)));
        assert_eq!(version("3.14.7", true).to_string(), "CPython 3.14.7t");
        assert_eq!(version("3.15.0a1+", false).micro, "0a1+");
    }

    #[test]
    fn a_mismatch_names_both_and_the_binary_to_use() {
        let found = Installation {
            executable: "/venv/bin/python3".into(),
            version: Version::parse("3.14.7", true).unwrap(),
        };
        let text = mismatch(
            &found,
            &Origin::VirtualEnv,
            &Version::parse("3.13.0", false).unwrap(),
        );
        assert!(
            text.contains("CPython 3.14.7t (/venv/bin/python3)"),
            "{text}"
        );
        assert!(text.contains("built for CPython 3.13."), "{text}");
        assert!(text.contains("scripts/py314t"), "{text}");
    }

    #[test]
    fn path_entries_that_hold_no_interpreter_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("python3"), "not executable").unwrap();
        assert_eq!(on_path(directory.path().as_os_str(), "python3"), None);
        let mut both = directory.path().as_os_str().to_owned();
        both.push(":/bin");
        assert_eq!(on_path(&both, "sh"), Some("/bin/sh".into()));
    }

    #[test]
    fn an_interpreter_that_does_not_exist_is_named() {
        let error = find(Some(Path::new("/no/such/python"))).unwrap_err();
        assert_eq!(error.code, 2);
        assert!(
            error.text.contains("given with --python, /no/such/python"),
            "{}",
            error.text
        );
    }
}
