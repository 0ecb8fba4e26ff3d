//! The health answer (`--health-path`): 200 as long as the loop that accepted the connection turns.
//!
//! It says that the process serves, not that the application is well: it is given while every handler is inside a slow
//! view, which is when a balancer must not conclude that the process is dead.

#![forbid(unsafe_code)]

use crate::exchange::{Exchange, LocalAnswers};
use crate::http1::ResponseHead;

pub struct Health {
    path: Box<[u8]>,
    ok: ResponseHead,
    not_allowed: ResponseHead,
}

impl Health {
    /// `path` is compared with the request's path as it was sent.
    pub fn new(path: &str) -> Self {
        let head = |status: &[u8], extra: &[(&[u8], &[u8])]| {
            let mut head = ResponseHead::new();
            let fields = [
                (&b"Content-Type"[..], &b"text/plain; charset=utf-8"[..]),
                (b"Cache-Control", b"no-store"),
            ];
            head.status(status).expect("a constant status is valid");
            for (name, value) in fields.iter().chain(extra) {
                head.field(name, value).expect("a constant field is valid");
            }
            head
        };
        Health {
            path: path.as_bytes().into(),
            ok: head(b"200 OK", &[]),
            not_allowed: head(b"405 Method Not Allowed", &[(b"Allow", b"GET, HEAD")]),
        }
    }
}

impl LocalAnswers for Health {
    fn answer(&self, exchange: &mut Exchange) -> bool {
        if exchange.path() != &*self.path {
            return false;
        }
        match exchange.method() {
            b"GET" | b"HEAD" => exchange.respond(&self.ok, b"ok\n"),
            _ => exchange.respond(&self.not_allowed, b"Only GET and HEAD.\n"),
        }
        true
    }
}
