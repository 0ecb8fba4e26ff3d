//! One whole request and the answer to it, together with the stream they travel on; and `Handler`, what the loops
//! and the pool call to have it answered.
//!
//! An `Exchange` belongs to whoever runs the view: it moves from the loop to a handler thread and back, and nothing
//! in here is shared but [`Common`]. No Python, no polling: reading requests is the loop's part (`event_loop/conn.rs`).

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Instant;

use crate::config::Timeouts;
use crate::http1::{self, BodySize, Head, Limits, ResponseHead, ResponseWriter, Version};
use crate::net::{Endpoint, Stream};
use crate::observe::access::AccessLog;
use crate::observe::counters::{Counter, Counters};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering};

mod buffers;
mod date;
mod handler;
mod logged;
mod sending;

use buffers::BufferSet;
pub(crate) use buffers::SpareBuffers;
pub use date::http_date;
pub use handler::{Handler, HandlerFactory, LocalAnswers, Progress};
pub use sending::is_large;

/// A streamed response keeps at most this many bytes waiting for a slow client; beyond it the view waits.
/// Sixteen full socket writes: enough to keep a fast client busy, small enough that a thousand slow ones cost 256 MiB at most.
pub const STREAM_MARK: usize = 256 * 1024;

/// What all connections of a server share. Read-mostly: only the flags and the gauges change.
pub struct Common {
    pub limits: Limits,
    pub timeouts: Timeouts,
    /// The process stops: every answer says `Connection: close`.
    pub draining: AtomicBool,
    /// Connections open now, over all loops.
    pub open: AtomicUsize,
    pub limit_connections: usize,
    pub queue_limit: usize,
    /// A handler thread may wait for a slow client. Without standbys nobody would drive the loop meanwhile.
    pub may_wait: bool,
    pub access_log: Option<AccessLog>,
    pub counters: Counters,
    on_stream: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Common {
    /// With the defaults for everything that an embedding program need not say.
    pub fn new(limits: Limits, timeouts: Timeouts, may_wait: bool) -> Self {
        Common {
            limits,
            timeouts,
            draining: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            limit_connections: 0,
            queue_limit: 0,
            may_wait,
            access_log: None,
            counters: Counters::default(),
            on_stream: OnceLock::new(),
        }
    }

    /// The process ends: what waits for a log is written.
    pub fn close_logs(&self) {
        if let Some(log) = &self.access_log {
            log.close();
        }
    }

    /// What is done, on its thread, whenever a handler sends a piece of a body or waits to. Set once.
    pub(crate) fn on_stream(&self, act: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_stream.set(Box::new(act));
    }

    fn streams(&self) {
        if let Some(act) = self.on_stream.get() {
            act();
        }
    }

    /// Log files were moved away: write to new ones.
    pub fn reopen_logs(&self) {
        if let Some(log) = &self.access_log {
            log.reopen();
        }
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// The body of a request as the loop collected it.
#[derive(Debug, Default)]
pub enum Body {
    #[default]
    Empty,
    Memory(Vec<u8>),
    /// An unlinked temporary file, rewound, and its length in bytes.
    Spooled(File, u64),
}

/// How a collected body is held until the view takes it.
#[derive(Debug, Default)]
pub(crate) enum Collected {
    #[default]
    Nothing,
    /// Stands whole in `input`, behind its head: the common small POST is never copied by the loop.
    InPlace(Range<usize>),
    Memory(Vec<u8>),
    /// Rewound, and so written out, before the view sees it.
    Spooled(BufWriter<File>, u64),
}

/// Whether more of a streamed body can be buffered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Free,
    Full,
}

/// The client went away, or did not read for the write time-out. What is left of the response has nowhere to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// What becomes of the connection when the response has been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The next request may follow.
    KeepAlive,
    /// Close in order: everything sent first, and what the client still sends is read away (RFC 9112 9.6).
    Close,
    /// A body whose end only the close marks was cut: reset, so that it isn't taken for whole.
    Reset,
    /// The client is gone, or as good as gone: nothing more is sent.
    Gone,
}

/// A response field that the access log asks for: name and value.
type LoggedField = (Box<[u8]>, Box<[u8]>);

pub struct Exchange {
    pub(crate) stream: Stream,
    pub(crate) common: Arc<Common>,
    peer: Endpoint,
    local: Arc<Endpoint>,

    // The request. `input[..head.len]` is the head from its first byte; spans point into it.
    pub(crate) input: Vec<u8>,
    pub(crate) head: Head,
    pub(crate) body: Collected,
    /// When its head was whole; only kept for the access log.
    started_at: Option<Instant>,

    // The response.
    writer: ResponseWriter,
    out: Vec<u8>,
    sent: usize,
    pub(crate) ending: Ending,
    code: u16,
    /// The body ended before its end.
    cut: bool,
    body_bytes: u64,
    /// The response's fields, for an access log that asks for them.
    logged_fields: Vec<LoggedField>,
}

impl Exchange {
    pub(crate) fn new(
        stream: Stream,
        peer: Endpoint,
        local: Arc<Endpoint>,
        common: Arc<Common>,
    ) -> Self {
        Exchange {
            stream,
            common,
            peer,
            local,
            input: Vec::new(),
            head: Head::default(),
            body: Collected::Nothing,
            started_at: None,
            writer: ResponseWriter::new(Version::Http11, false, true),
            out: Vec::new(),
            sent: 0,
            ending: Ending::KeepAlive,
            code: 0,
            cut: false,
            body_bytes: 0,
            logged_fields: Vec::new(),
        }
    }

    // ---- the request ----

    pub fn method(&self) -> &[u8] {
        self.head.method.of(&self.input)
    }

    /// The request target as the client sent it.
    pub fn target(&self) -> &[u8] {
        self.head.target.of(&self.input)
    }

    /// The target's path, still percent-encoded.
    pub fn path(&self) -> &[u8] {
        self.head.path.of(&self.input)
    }

    /// The target's query without its `?`.
    pub fn query(&self) -> &[u8] {
        self.head.query.of(&self.input)
    }

    pub fn version(&self) -> Version {
        self.head.version
    }

    pub fn is_head(&self) -> bool {
        self.method() == b"HEAD"
    }

    /// Names and values as sent, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.head
            .fields
            .iter()
            .map(|field| (field.name.of(&self.input), field.value.of(&self.input)))
    }

    pub fn field_count(&self) -> usize {
        self.head.fields.len()
    }

    /// The authority of an absolute-form target, which overrides Host (RFC 9112 3.2.2).
    pub fn authority(&self) -> Option<&[u8]> {
        self.head.authority.map(|span| span.of(&self.input))
    }

    /// The length of the collected body in bytes; None when the request has no body at all.
    pub fn content_length(&self) -> Option<u64> {
        match (&self.body, self.head.framing) {
            (Collected::InPlace(range), _) => Some(range.len() as u64),
            (Collected::Memory(bytes), _) => Some(bytes.len() as u64),
            (Collected::Spooled(_, len), _) => Some(*len),
            (Collected::Nothing, http1::Framing::None) => None,
            (Collected::Nothing, _) => Some(0),
        }
    }

    pub fn peer(&self) -> &Endpoint {
        &self.peer
    }

    pub fn local(&self) -> &Endpoint {
        &self.local
    }

    /// The address that the client connected to, also where the listener is on all of them.
    pub fn reached(&self) -> Endpoint {
        match &*self.local {
            Endpoint::Ip(address) if address.ip().is_unspecified() => self
                .stream
                .local()
                .unwrap_or_else(|_| Endpoint::clone(&self.local)),
            local => local.clone(),
        }
    }

    /// Moves the body out; a second call finds it empty.
    pub fn take_body(&mut self) -> Body {
        match std::mem::take(&mut self.body) {
            Collected::Nothing => Body::Empty,
            Collected::InPlace(range) => Body::Memory(self.input[range].to_vec()),
            Collected::Memory(bytes) => Body::Memory(bytes),
            Collected::Spooled(file, len) => Body::Spooled(file.into_parts().0, len),
        }
    }

    // ---- the response ----

    /// Called by the loop when a request's head is whole: the answer's framing follows from it.
    pub(crate) fn open_response(&mut self) {
        self.writer = ResponseWriter::new(self.head.version, self.is_head(), self.head.keep_alive);
        self.ending = Ending::KeepAlive;
        self.code = 0;
        self.cut = false;
        self.body_bytes = 0;
        self.common.counters.count(Counter::Requests);
        if self.common.access_log.is_some() {
            self.started_at = Some(Instant::now());
            self.logged_fields.clear();
        }
    }

    /// Called by the loop before it refuses a request whose head never was whole: nothing of the last one's is to be left.
    pub(crate) fn open_refusal(&mut self) {
        self.writer = ResponseWriter::new(Version::Http11, false, false);
        self.ending = Ending::KeepAlive;
        self.cut = false;
        self.started_at = None;
        self.logged_fields.clear();
    }

    /// A whole response; a Content-Length that the application gave is kept, otherwise it is the body's.
    pub fn respond(&mut self, head: &ResponseHead, body: &[u8]) {
        self.start(head, BodySize::Known(body.len() as u64));
        self.push(body);
        self.finish();
    }

    /// Buffers the head. `size` is what is known of the body's length if the application did not announce it.
    pub fn start(&mut self, head: &ResponseHead, size: BodySize) {
        if self.common.is_draining() {
            self.writer.close_after();
        }
        self.code = head.code();
        if let Some(log) = &self.common.access_log {
            let wanted = |name: &[u8]| {
                log.format()
                    .response_fields()
                    .any(|asked| asked.eq_ignore_ascii_case(name))
            };
            let fields = head.fields().filter(|(name, _)| wanted(name));
            self.logged_fields = fields
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
        }
        self.writer.head(head, size, &http_date(), &mut self.out);
    }

    /// The connection ends after this answer; its head says so if it is still to come.
    pub fn close_after(&mut self) {
        self.writer.close_after();
    }

    /// Buffers an interim answer (1xx), for clients that know such (RFC 9110 15.2: not HTTP/1.0).
    pub fn interim(&mut self, head: &ResponseHead) {
        if self.head.version == Version::Http11 && !self.started() {
            self.writer
                .head(head, BodySize::Unknown, &http_date(), &mut self.out);
        }
    }

    /// The connection speaks another protocol from here on; its 101 answer stands in the buffer.
    pub fn switch(&mut self) {
        self.code = 101;
        self.ending = Ending::Close;
    }

    /// What was received from `start` on, and the buffer for what is to be sent: for another protocol than HTTP.
    pub(crate) fn raw(&mut self, start: usize) -> (&mut [u8], &mut Vec<u8>) {
        if self.sent > STREAM_MARK {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        (&mut self.input[start..], &mut self.out)
    }

    /// The request asks for another protocol (RFC 9110 7.8).
    pub fn asks_to_upgrade(&self) -> bool {
        self.head.upgrade
    }

    /// Buffers a piece of the body; of a large one only what the socket does not take at once. True if something was sent.
    pub fn push(&mut self, chunk: &[u8]) -> bool {
        self.body_bytes += chunk.len() as u64;
        if is_large(chunk) {
            return self.push_large(chunk);
        }
        self.writer.data(chunk, &mut self.out);
        false
    }

    pub fn may_wait(&self) -> bool {
        self.common.may_wait
    }

    /// The body ended. One that is shorter than announced closes the connection: the client must not wait for the rest.
    pub fn finish(&mut self) {
        self.writer.end(&mut self.out);
        self.end();
    }

    /// As `finish`, with fields after the body where its framing has room for them (RFC 9112 7.1.2).
    pub fn finish_with(&mut self, trailers: &ResponseHead) {
        self.writer.end_with(trailers, &mut self.out);
        self.end();
    }

    fn end(&mut self) {
        self.cut |= self.writer.missing() > 0;
        if !self.writer.keep_alive() && self.ending == Ending::KeepAlive {
            self.ending = Ending::Close;
        }
    }

    /// Cuts the response: what was buffered is sent, and the connection ends without the body's end mark.
    pub fn abort(&mut self) {
        self.cut = true;
        if self.ending == Ending::Gone {
            return;
        }
        self.ending = if self.writer.is_close_delimited() {
            Ending::Reset
        } else {
            Ending::Close
        };
    }

    /// A plain error answer if nothing was started; else the response is cut.
    pub fn fail(&mut self, status: u16) {
        if self.started() {
            return self.abort();
        }
        self.refuse(status, "");
    }

    /// A plain error answer that closes the connection, with a line that tells the client what was wrong.
    pub(crate) fn refuse(&mut self, status: u16, text: &str) {
        self.code = status;
        if self.ending != Ending::Gone {
            self.ending = Ending::Close;
        }
        let text = if text.is_empty() {
            http1::reason(status)
        } else {
            text
        };
        let is_head = self.is_head();
        self.body_bytes = if is_head { 0 } else { text.len() as u64 + 1 };
        http1::error_response(status, text, &http_date(), is_head, &mut self.out);
    }

    /// 503 with Retry-After, and the connection stays: the queue is full, the client did nothing wrong.
    pub(crate) fn refuse_busy(&mut self, head: &ResponseHead) {
        self.respond(head, b"The server is busy; try again in a moment.\n");
    }

    pub fn started(&self) -> bool {
        self.writer.head_written() || self.code != 0
    }

    pub fn is_gone(&self) -> bool {
        self.ending == Ending::Gone
    }

    pub(crate) fn send_continue(&mut self) {
        http1::continue_100(&mut self.out);
    }

    /// The exchange is over, whole or not: counted and logged, once.
    pub(crate) fn record(&mut self) {
        if self.code == 0 {
            return;
        }
        let counters = &self.common.counters;
        if !self.cut && self.ending != Ending::Gone {
            counters.count(Counter::Responses);
        }
        if self.code >= 500 {
            counters.count(Counter::ServerErrors);
        }
        if let Some(log) = &self.common.access_log {
            log.log(self);
        }
        self.code = 0;
    }

    /// Forgets the finished request; bytes of a following one move to the front.
    pub(crate) fn clear_request(&mut self, consumed: usize) {
        if consumed == self.input.len() {
            self.input.clear();
        } else {
            self.input.drain(..consumed);
        }
        self.body = Collected::Nothing;
    }

    /// An idle connection holds no buffers: they go to `spare`, which the thread's next busy connection takes from.
    pub(crate) fn lay_down(&mut self, spare: &mut SpareBuffers) {
        debug_assert!(self.input.is_empty() && self.out.is_empty());
        spare.keep(BufferSet {
            input: std::mem::take(&mut self.input),
            out: std::mem::take(&mut self.out),
            fields: std::mem::take(&mut self.head.fields),
        });
    }

    pub(crate) fn pick_up(&mut self, spare: &mut SpareBuffers) {
        if self.input.capacity() == 0 {
            let set = spare.next();
            self.input = set.input;
            if self.out.capacity() == 0 {
                self.out = set.out;
            }
            self.head.fields = set.fields;
        }
    }

    /// Gives back what a request that waits for its application does not use: there may be thousands of them.
    pub(crate) fn compact(&mut self) {
        self.input.shrink_to_fit();
        self.head.fields.shrink_to_fit();
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }

    /// Frees the buffers: a handler thread keeps none, the loop that reads next has its own.
    pub(crate) fn drop_buffers(&mut self) {
        self.input = Vec::new();
        self.out = Vec::new();
        self.head.fields = Vec::new();
    }
}

#[cfg(test)]
mod tests;
