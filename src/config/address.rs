//! Where to listen: the grammar of `--bind`.
//!
//! Owns the parsing of one address and its canonical spelling. Must not resolve names or touch sockets (`net` does).
//! Runs on the main thread at start.
#![forbid(unsafe_code)]

use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::str::FromStr;

/// One value of `--bind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// A host name or address and a port; port 0 lets the kernel choose. An empty host means every address of the
    /// machine, IPv4 and IPv6.
    Tcp { host: String, port: u16 },
    /// A Unix stream socket, and the permission bits of its file.
    Unix { path: PathBuf, mode: u32 },
    /// A listening socket that the parent process left open (systemd's socket activation).
    Inherited(RawFd),
}

/// The permission bits of a Unix socket unless `--uds-mode` says otherwise: any local user may connect, as to a
/// loopback port, because the proxy in front commonly runs as another user than the application. Who may reach the
/// socket is then the directory's business.
pub const DEFAULT_UDS_MODE: u32 = 0o666;

/// What is wrong with an address, and what a right one looks like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

impl FromStr for BindAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            // unix:///run/x.sock and unix:/run/x.sock are the same path; unix:x.sock is relative.
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(AddressError(
                    "the path of the Unix socket is missing: unix:/run/app.sock".into(),
                ));
            }
            return Ok(BindAddress::Unix {
                path: PathBuf::from(path),
                mode: DEFAULT_UDS_MODE,
            });
        }
        if let Some(number) = text.strip_prefix("fd://") {
            return match number.parse::<RawFd>() {
                Ok(number) if number >= 3 => Ok(BindAddress::Inherited(number)),
                _ => Err(AddressError(format!(
                    "{number:?} is no descriptor's number; the first inherited socket is fd://3"
                ))),
            };
        }
        if let Some(rest) = text.strip_prefix("http://") {
            // What the start-up line prints can be pasted back.
            return rest.strip_suffix('/').unwrap_or(rest).parse();
        }
        if text.starts_with('/') || text.starts_with("./") {
            return Err(AddressError(format!(
                "a path needs the prefix unix: write unix:{text}"
            )));
        }
        if text.contains("://") {
            return Err(AddressError(
                "known forms are HOST:PORT, unix:PATH and fd://NUMBER".into(),
            ));
        }
        parse_tcp(text)
    }
}

fn parse_tcp(text: &str) -> Result<BindAddress, AddressError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .ok_or_else(|| AddressError("the closing ] of the IPv6 address is missing".into()))?;
        if host
            .split('%')
            .next()
            .unwrap_or("")
            .parse::<std::net::Ipv6Addr>()
            .is_err()
        {
            return Err(AddressError(format!("{host:?} is no IPv6 address")));
        }
        (host, after.strip_prefix(':'))
    } else {
        match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return Err(AddressError(format!(
                    "an IPv6 address stands in brackets: [{text}]:8000, say"
                )));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let Some(port) = port else {
        return Err(AddressError(match text.parse::<u16>() {
            Ok(port) => format!(
                "a host is missing: 127.0.0.1:{port} for this machine only, :{port} for everyone"
            ),
            Err(_) => format!("a port is missing: {text}:8000, say"),
        }));
    };
    let port = port.parse::<u16>().map_err(|_| {
        AddressError(format!(
            "{port:?} is no port: a number from 0 (any free one) to 65535"
        ))
    })?;
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(AddressError(format!("{host:?} is no host name")));
    }
    let host = if host == "*" { "" } else { host };
    Ok(BindAddress::Tcp {
        host: host.to_owned(),
        port,
    })
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindAddress::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            BindAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
            BindAddress::Unix { path, .. } => write!(f, "unix:{}", path.display()),
            BindAddress::Inherited(number) => write!(f, "fd://{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> BindAddress {
        BindAddress::Tcp {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn forms_that_are_understood() {
        let unix = |path: &str| BindAddress::Unix {
            path: path.into(),
            mode: DEFAULT_UDS_MODE,
        };
        for (text, expected) in [
            ("127.0.0.1:8000", tcp("127.0.0.1", 8000)),
            ("localhost:0", tcp("localhost", 0)),
            ("[::1]:80", tcp("::1", 80)),
            ("[fe80::1%eth0]:80", tcp("fe80::1%eth0", 80)),
            (":8000", tcp("", 8000)),
            ("*:8000", tcp("", 8000)),
            ("http://127.0.0.1:8000/", tcp("127.0.0.1", 8000)),
            ("unix:/run/a.sock", unix("/run/a.sock")),
            ("unix:///run/a.sock", unix("/run/a.sock")),
            ("unix:a.sock", unix("a.sock")),
            ("fd://3", BindAddress::Inherited(3)),
        ] {
            assert_eq!(
                text.parse::<BindAddress>().as_ref(),
                Ok(&expected),
                "{text}"
            );
            // What is printed means the same when it is read again.
            assert_eq!(
                expected.to_string().parse::<BindAddress>(),
                Ok(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        for (text, hint) in [
            ("8000", "127.0.0.1:8000"),
            ("localhost", "localhost:8000"),
            ("::1:8000", "brackets"),
            ("[::1]", "port is missing"),
            ("[::1:80", "closing ]"),
            ("[x]:80", "no IPv6 address"),
            ("a:70000", "65535"),
            ("a b:80", "no host name"),
            ("/run/a.sock", "unix:/run/a.sock"),
            ("unix:", "unix:/run/app.sock"),
            ("fd://1", "fd://3"),
            ("fd://x", "fd://3"),
            ("tls://a:443", "known forms"),
        ] {
            let error = text.parse::<BindAddress>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
