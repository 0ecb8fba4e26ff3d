//! Single values: sizes, times, counts, names.
//!
//! Owns how each is written and read back. Must not know which flag a value belongs to. Main thread, at start.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The application's interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// What the callable looks like.
    #[default]
    Auto,
    Wsgi,
    Asgi,
}

/// Which event loop an ASGI application runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventLoop {
    /// uvloop if it can be imported.
    #[default]
    Auto,
    Asyncio,
    Uvloop,
}

/// Whether an ASGI application is told of start and stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifespan {
    /// If it knows the protocol.
    #[default]
    Auto,
    /// It must know the protocol.
    On,
    Off,
}

/// What becomes of request fields whose names have an underscore: in a WSGI environ they can't be told from names with a
/// hyphen (`X_Forwarded_User` from `X-Forwarded-User`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnderscoreNames {
    /// The request is answered with 400.
    Refuse,
    #[default]
    Drop,
    Allow,
}

/// The value of `--threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    Auto,
    /// At least 1.
    Exactly(usize),
}

/// A number of bytes: `8190`, `64KiB`, `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A time in seconds: `30`, `0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub Duration);

macro_rules! words {
    ($type:ty, $($text:literal => $value:expr),+) => {
        impl FromStr for $type {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok($value),)+
                    _ => Err(format!("known are {}", [$($text),+].join(", "))),
                }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(if *self == $value { return f.write_str($text); })+
                Ok(())
            }
        }
    };
}

words!(Interface, "auto" => Interface::Auto, "wsgi" => Interface::Wsgi, "asgi" => Interface::Asgi);
words!(EventLoop, "auto" => EventLoop::Auto, "asyncio" => EventLoop::Asyncio, "uvloop" => EventLoop::Uvloop);
words!(Lifespan, "auto" => Lifespan::Auto, "on" => Lifespan::On, "off" => Lifespan::Off);
words!(
    UnderscoreNames,
    "refuse" => UnderscoreNames::Refuse,
    "drop" => UnderscoreNames::Drop,
    "allow" => UnderscoreNames::Allow
);

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Threads, String> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Threads::Auto),
            (_, Ok(0)) => Err("at least one loop is needed".into()),
            (_, Ok(number)) => Ok(Threads::Exactly(number)),
            _ => Err("write a number or auto (one for each usable performance core)".into()),
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Auto => f.write_str("auto"),
            Threads::Exactly(number) => number.fmt(f),
        }
    }
}

/// Units from large to small. The short forms mean the same: nobody limits a body to 10^6 bytes sharp.
const UNITS: [(&str, u64); 8] = [
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("g", 1 << 30),
    ("m", 1 << 20),
    ("k", 1 << 10),
    ("b", 1),
    ("", 1),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &lower[digits.len()..];
        let number = digits.trim_end().parse::<u64>();
        let unit = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, bytes)| bytes);
        match (number, unit) {
            (Ok(number), Some(unit)) => number
                .checked_mul(*unit)
                .map(Size)
                .ok_or_else(|| "is more than can be counted".into()),
            _ => Err(
                "write a whole number of bytes, or one with KiB, MiB or GiB behind it: 64KiB"
                    .into(),
            ),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, bytes) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= bytes && self.0.is_multiple_of(bytes) {
                return write!(f, "{}{unit}", self.0 / bytes);
            }
        }
        self.0.fmt(f)
    }
}

/// No time-out is longer than a week: what is meant by more is none at all, and that has no use in a server.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);
const SHORTEST: Duration = Duration::from_millis(1);

impl Seconds {
    /// For time-outs that may be nothing at all.
    pub fn parse_or_zero(text: &str) -> Result<Seconds, String> {
        let number: f64 = text
            .trim()
            .parse()
            .map_err(|_| "write a number of seconds, as in 30 or 0.5".to_owned())?;
        let seconds = Duration::try_from_secs_f64(number)
            .map_err(|_| "a time is neither negative nor without end".to_owned())?;
        match seconds {
            long if long > LONGEST => Err(format!(
                "{} seconds (a week) are the most",
                LONGEST.as_secs()
            )),
            seconds => Ok(Seconds(seconds)),
        }
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seconds, String> {
        let seconds = Seconds::parse_or_zero(text)?;
        if seconds.0 < SHORTEST {
            // nginx and others take 0 for "no limit"; here it would be none or at once, depending on who reads it.
            return Err("at least 0.001 is needed; to wait long, give a large number".into());
        }
        Ok(seconds)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_secs_f64().fmt(f)
    }
}

/// Permission bits in octal: `660`, `0660`, `0o660`.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("write permission bits in octal, as in 660".into()),
    }
}

/// Checks the form of `module:attribute`, `module:factory()` or `module`; whether there is such a thing is Python's to say.
pub(super) fn check_spec(spec: &str) -> Result<(), String> {
    const FORM: &str = "the application is given as MODULE:ATTRIBUTE, as in app:application";
    let (module, attribute) = match spec.split_once(':') {
        Some((module, attribute)) => (module, Some(attribute)),
        None => (spec, None),
    };
    if module.contains(['/', '\\']) {
        let (directory, file) = module.rsplit_once(['/', '\\']).unwrap_or(("", module));
        let module = file.strip_suffix(".py").unwrap_or(file);
        return Err(format!(
            "{module:?} is a module's name, not a path: write --app-dir {} {module}:{}",
            if directory.is_empty() { "/" } else { directory },
            attribute.unwrap_or("application"),
        ));
    }
    if let Some(name) = module.strip_suffix(".py").filter(|name| is_dotted(name)) {
        return Err(format!(
            "a module is given without .py: {name}:{}",
            attribute.unwrap_or("application")
        ));
    }
    if !is_dotted(module) {
        return Err(if module.is_empty() {
            FORM.to_owned()
        } else {
            format!("{module:?} is no module's name; {FORM}")
        });
    }
    match attribute {
        None => Ok(()),
        Some("") => Err(format!("the attribute behind the colon is missing; {FORM}")),
        Some(attribute) => {
            let name = attribute.strip_suffix("()").unwrap_or(attribute);
            if is_dotted(name) {
                Ok(())
            } else if name.contains('(') {
                Err(format!(
                    "{attribute:?}: a factory is called without arguments, as in {}()",
                    name.split('(').next().unwrap_or_default()
                ))
            } else {
                Err(format!("{attribute:?} is no attribute's name; {FORM}"))
            }
        }
    }
}

/// Identifiers joined by dots. Letters of all scripts are fine (PEP 3131); which exactly, Python knows.
fn is_dotted(name: &str) -> bool {
    name.split('.').all(|part| {
        let mut chars = part.chars();
        chars
            .next()
            .is_some_and(|first| first.is_alphabetic() || first == '_')
            && chars.all(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes, shown) in [
            ("0", 0, "0"),
            ("8190", 8190, "8190"),
            ("8190b", 8190, "8190"),
            ("64KiB", 65_536, "64KiB"),
            ("64 kib", 65_536, "64KiB"),
            ("1m", 1 << 20, "1MiB"),
            ("1GiB", 1 << 30, "1GiB"),
            ("1536KiB", 1_572_864, "1536KiB"),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
            assert_eq!(Size(bytes).to_string(), shown);
            assert_eq!(shown.parse(), Ok(Size(bytes)));
        }
        for wrong in [
            "",
            "KiB",
            "-1",
            "1.5MiB",
            "1kb",
            "1tib",
            "99999999999GiB",
            "é",
        ] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds() {
        assert_eq!("30".parse(), Ok(Seconds(Duration::from_secs(30))));
        assert_eq!("0.5".parse(), Ok(Seconds(Duration::from_millis(500))));
        assert_eq!(Seconds(Duration::from_millis(2_500)).to_string(), "2.5");
        assert_eq!(Seconds(Duration::from_secs(30)).to_string(), "30");
        for (wrong, hint) in [
            ("", "number of seconds"),
            ("5m", "number of seconds"),
            ("-1", "negative"),
            ("inf", "without end"),
            ("nan", "without end"),
            ("1e300", "without end"),
            ("604801", "a week"),
            ("0", "at least 0.001"),
        ] {
            let error = wrong.parse::<Seconds>().unwrap_err();
            assert!(error.contains(hint), "{wrong}: {error}");
        }
        assert_eq!(Seconds::parse_or_zero("0"), Ok(Seconds(Duration::ZERO)));
    }

    #[test]
    fn words_and_counts() {
        for text in ["auto", "wsgi", "asgi"] {
            assert_eq!(text.parse::<Interface>().unwrap().to_string(), text);
        }
        for text in ["refuse", "drop", "allow"] {
            assert_eq!(text.parse::<UnderscoreNames>().unwrap().to_string(), text);
        }
        assert_eq!(
            "fcgi".parse::<Interface>(),
            Err("known are auto, wsgi, asgi".into())
        );
        assert_eq!("auto".parse(), Ok(Threads::Auto));
        assert_eq!("4".parse(), Ok(Threads::Exactly(4)));
        for wrong in ["0", "-1", "four", ""] {
            assert!(wrong.parse::<Threads>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn modes() {
        for text in ["660", "0660", "0o660"] {
            assert_eq!(parse_mode(text), Ok(0o660));
        }
        for wrong in ["", "rw", "888", "1777", "-1"] {
            assert!(parse_mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn application_names() {
        for right in [
            "app",
            "app:application",
            "a.b.c:x.y.z",
            "app:make()",
            "a:b.make()",
            "_a:_b1",
            "größe:приложение",
        ] {
            assert_eq!(check_spec(right), Ok(()), "{right}");
        }
        for (wrong, hint) in [
            ("", "MODULE:ATTRIBUTE"),
            (":app", "MODULE:ATTRIBUTE"),
            ("app:", "missing"),
            ("app.py", "app:application"),
            ("pkg/app.py:app", "--app-dir pkg app:app"),
            ("/srv/app", "--app-dir /srv app:application"),
            ("a..b:c", "no module's name"),
            ("1a:b", "no module's name"),
            ("a:b c", "no attribute's name"),
            ("a:b:c", "no attribute's name"),
            ("a:make('x')", "as in make()"),
        ] {
            let error = check_spec(wrong).unwrap_err();
            assert!(error.contains(hint), "{wrong}: {error}");
        }
    }
}
