//! What the access log is told of an exchange.

#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::time::Duration;

use super::Exchange;
use crate::http1::Version;
use crate::net::Endpoint;
use crate::observe::access::Logged;

impl Logged for Exchange {
    fn remote(&self) -> Option<IpAddr> {
        match &self.peer {
            Endpoint::Ip(address) => Some(address.ip()),
            Endpoint::Unix(_) => None,
        }
    }

    fn method(&self) -> &[u8] {
        Exchange::method(self)
    }

    fn target(&self) -> &[u8] {
        Exchange::target(self)
    }

    fn path(&self) -> &[u8] {
        Exchange::path(self)
    }

    fn query(&self) -> &[u8] {
        Exchange::query(self)
    }

    fn protocol(&self) -> &'static str {
        match self.version() {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }

    fn request_field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields()
            .find(|(sent, _)| sent.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    fn status(&self) -> u16 {
        self.code
    }

    fn response_field(&self, name: &[u8]) -> Option<&[u8]> {
        let mut fields = self.logged_fields.iter();
        fields
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| &**value)
    }

    fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    fn duration(&self) -> Duration {
        self.started_at
            .map_or(Duration::ZERO, |started| started.elapsed())
    }
}
