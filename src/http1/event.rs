//! What a client's bytes mean: [`RequestReader`] turns them into [`Event`]s, a broken rule into a
//! [`RequestError`].
//!
//! Owns: the walk over the request table, the body's countdown, the error texts and their statuses.
//! Must not: keep a byte of input (the caller does), decide what to answer. Runs on whichever thread
//! owns the connection.
//!
//! Whatever way the input is split over calls, the events (pieces of body joined) and the error are
//! the same: every error is a function of a prefix of the input.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;

use super::body::{ChunkReader, Piece};
use super::head::{Framing, Head, HeadScan, Limits};
use super::state::{RequestState, RequestStep};

/// What the next bytes of the input are. `consumed` bytes from the front of that input are done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing more can be said without more input; nothing was consumed.
    NeedData,
    /// `head` is filled in; its spans count from the front of this input.
    Head { consumed: usize },
    /// `body` is the range of body bytes inside the input; `consumed` includes framing before them.
    Data { consumed: usize, body: Range<usize> },
    /// Framing only: chunk sizes, extensions, trailers.
    Skip { consumed: usize },
    /// The message is complete. What follows is the next message's.
    End { consumed: usize },
}

/// The client's side of one connection. Keeps positions and counts, no bytes: an idle connection
/// needs nothing else of this module.
#[derive(Clone, Debug)]
pub struct RequestReader {
    state: RequestState,
    scan: HeadScan,
    chunks: ChunkReader,
    /// Body bytes still to come under a Content-Length.
    remaining: u64,
}

impl Default for RequestReader {
    fn default() -> Self {
        RequestReader::new()
    }
}

impl RequestReader {
    pub fn new() -> Self {
        RequestReader {
            state: RequestState::Idle,
            scan: HeadScan::default(),
            chunks: ChunkReader::default(),
            remaining: 0,
        }
    }

    /// The next event of `input`.
    ///
    /// For a head, `input` starts at the head's first byte in every call, and a call that brings
    /// nothing new looks at nothing twice. After [`Event::Head`] it starts behind everything consumed.
    /// `head` may be shared between connections: its contents count only from `Event::Head` on.
    /// After an error in a head, `head` holds the method and the target if the request line was
    /// readable (for a log line; empty spans otherwise); an error in a body leaves `head` alone.
    /// Every later call fails.
    #[inline]
    pub fn next_event(
        &mut self,
        input: &[u8],
        head: &mut Head,
        limits: &Limits,
    ) -> Result<Event, RequestError> {
        let event = match self.state {
            RequestState::Idle | RequestState::Head => self.next_of_head(input, head, limits),
            RequestState::Bodiless => {
                self.step(RequestStep::Last);
                Ok(Event::End { consumed: 0 })
            }
            RequestState::Counted => Ok(self.next_of_counted(input)),
            RequestState::Chunked => self.next_of_chunked(input, limits),
            RequestState::Done => Ok(Event::NeedData),
            RequestState::Closed | RequestState::Failed => Err(RequestError::AfterEnd),
        };
        if event.is_err() {
            self.step(RequestStep::Fault);
        }
        event
    }

    /// No byte of a request has been seen (blank lines aside): the connection is idle, and closing
    /// it loses nothing.
    pub fn is_between_messages(&self) -> bool {
        self.state == RequestState::Idle
    }

    /// Ready for the next head. Only after [`Event::End`]: in the midst of a message it makes the
    /// connection unusable, since the rest of a body is not a request.
    pub fn next_message(&mut self) {
        self.step(RequestStep::Next);
        self.scan = HeadScan::default();
    }

    /// The client will send nothing more. Clean between messages and behind a complete one (a
    /// half-closed client still reads its answer); in the midst of a message it is the error to
    /// answer, if anybody still listens (RFC 9112 8).
    pub fn end_of_input(&mut self) -> Result<(), RequestError> {
        if self.state == RequestState::Counted && self.remaining == 0 {
            return Ok(());
        }
        self.step(RequestStep::EndOfInput);
        match self.state {
            RequestState::Failed => Err(RequestError::Incomplete),
            _ => Ok(()),
        }
    }

    fn step(&mut self, step: RequestStep) {
        self.state = self.state.after(step);
    }

    fn next_of_head(
        &mut self,
        input: &[u8],
        head: &mut Head,
        limits: &Limits,
    ) -> Result<Event, RequestError> {
        let Some(consumed) = self.scan.next_head(input, head, limits)? else {
            if self.scan.has_begun(input) {
                self.step(RequestStep::PartialHead);
            }
            return Ok(Event::NeedData);
        };
        let step = match head.framing {
            Framing::None | Framing::Length(0) => RequestStep::HeadBodiless,
            Framing::Length(length) => {
                self.remaining = length;
                RequestStep::HeadCounted
            }
            Framing::Chunked => {
                self.chunks = ChunkReader::default();
                RequestStep::HeadChunked
            }
        };
        self.step(step);
        Ok(Event::Head { consumed })
    }

    fn next_of_counted(&mut self, input: &[u8]) -> Event {
        if self.remaining == 0 {
            self.step(RequestStep::Last);
            return Event::End { consumed: 0 };
        }
        let length =
            usize::try_from(self.remaining).map_or(input.len(), |left| left.min(input.len()));
        if length == 0 {
            return Event::NeedData;
        }
        self.remaining -= length as u64;
        self.step(RequestStep::Part);
        Event::Data {
            consumed: length,
            body: 0..length,
        }
    }

    fn next_of_chunked(&mut self, input: &[u8], limits: &Limits) -> Result<Event, RequestError> {
        Ok(match self.chunks.next_piece(input, limits)? {
            Piece::Data { body } => {
                self.step(RequestStep::Part);
                Event::Data {
                    consumed: body.end,
                    body,
                }
            }
            Piece::Framing if input.is_empty() => Event::NeedData,
            Piece::Framing => {
                self.step(RequestStep::Part);
                Event::Skip {
                    consumed: input.len(),
                }
            }
            Piece::Last { consumed } => {
                self.step(RequestStep::Last);
                Event::End { consumed }
            }
        })
    }
}

/// One line of the table below: a rule that the client broke, the status to answer, the reason.
macro_rules! request_errors {
    ($($(#[$doc:meta])* $name:ident $status:literal $text:literal,)*) => {
        /// A rule that the client broke, with the status to answer. After any of them the connection
        /// is closed: where its next message starts is not known.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum RequestError { $($(#[$doc])* $name,)* }

        impl RequestError {
            pub const ALL: &'static [RequestError] = &[$(RequestError::$name,)*];

            /// The status to answer.
            pub const fn status(self) -> u16 {
                match self { $(RequestError::$name => $status,)* }
            }

            /// What was wrong, for the answer's text and the log. Holds nothing that the client sent.
            pub const fn reason(self) -> &'static str {
                match self { $(RequestError::$name => $text,)* }
            }
        }
    };
}

request_errors! {
    /// RFC 9112 2.2 allows to take it for a line's end; servers that disagree on that can be made
    /// to disagree on where a request ends.
    BareLineFeed 400 "a line ends with LF alone",
    /// More than [`super::BLANK_LINES`] (RFC 9112 2.2 asks for at least one to be skipped).
    BlankLines 400 "too many empty lines before the request line",
    /// RFC 9112 3; HTTP/0.9's too.
    RequestLine 400 "the request line is not `method target version`",
    /// RFC 9110 9.1.
    Method 400 "the method is not a token",
    /// RFC 9110 9.1, 9.3.6: CONNECT is for proxies and not implemented here.
    Connect 501 "CONNECT is not implemented",
    /// RFC 9112 3.2.
    Target 400 "the request target has a byte that a target can't have",
    /// RFC 9110 7.1: a fragment is never sent.
    Fragment 400 "the request target has a fragment",
    /// RFC 9112 3.2: none of the four forms, or the authority form without CONNECT.
    TargetForm 400 "the request target is neither a path nor an http URI",
    /// RFC 9112 3.2.4.
    Asterisk 400 "the target `*` is for OPTIONS only",
    /// RFC 9110 4.2.
    Authority 400 "the request target's authority is not valid",
    /// RFC 9112 2.3.
    Version 400 "the request line does not end with a version",
    /// RFC 9110 15.6.6.
    UnsupportedVersion 505 "only HTTP/1.0 and HTTP/1.1 are spoken here",
    /// [`Limits::request_line`]; RFC 9112 3, RFC 9110 15.5.15.
    RequestLineTooLong 414 "the request line is too long",
    /// [`Limits::field_size`]; RFC 6585 5.
    FieldTooLong 431 "a header field is too long",
    /// [`Limits::fields`].
    TooManyFields 431 "there are too many header fields",
    /// [`Limits::head_size`].
    HeadTooLarge 431 "the header fields are too large together",
    /// RFC 9112 5, RFC 9110 5.1.
    FieldName 400 "a header field's name is not a token",
    /// RFC 9112 5.1: MUST be refused.
    SpaceBeforeColon 400 "there is white space between a header field's name and its colon",
    /// RFC 9112 5.2, and 2.2 for white space before the first field.
    LineFolding 400 "a header field is folded over lines",
    /// RFC 9110 5.5: CR, LF and NUL MUST be refused; other controls go with them.
    FieldValue 400 "a header field's value has a control character",
    /// RFC 9112 3.2.
    NoHost 400 "an HTTP/1.1 request without Host",
    /// RFC 9112 3.2.
    SeveralHosts 400 "more than one Host",
    /// RFC 9112 3.2; empty too, since an http URI's host is never empty (RFC 9110 4.2.1).
    Host 400 "the Host is not valid",
    /// RFC 9112 6.3 allows to take equal ones for one; there is no honest sender of them.
    SeveralLengths 400 "more than one Content-Length",
    /// RFC 9112 6.3, RFC 9110 8.6.
    Length 400 "the Content-Length is not a number",
    /// RFC 9112 6.1, 6.3: request smuggling.
    LengthAndCodings 400 "Content-Length and Transfer-Encoding together",
    /// RFC 9112 6.1: MUST be treated as faulty framing.
    CodingsInHttp10 400 "Transfer-Encoding in an HTTP/1.0 request",
    /// RFC 9112 6.1.
    UnknownCoding 501 "a transfer coding other than chunked",
    /// RFC 9112 6.1, 7: chunked once, last, without parameters.
    Codings 400 "the Transfer-Encoding is not valid",
    /// RFC 9110 10.1.1.
    Expectation 417 "an expectation other than 100-continue",
    /// [`Limits::body`]; RFC 9110 15.5.14.
    BodyTooLarge 413 "the body is too large",
    /// RFC 9112 7.1.
    ChunkSize 400 "a chunk's size is not valid",
    /// RFC 9112 7.1: overflow MUST be anticipated.
    ChunkSizeOverflow 400 "a chunk's size is out of range",
    /// RFC 9112 7.1.1.
    ChunkExtension 400 "a chunk's extension is not valid",
    /// [`super::CHUNK_LINE`], [`super::EXTENSIONS`]; RFC 9112 7.1.1 asks for a limit.
    ChunkExtensionTooLong 400 "chunk extensions are too long",
    /// RFC 9112 7.1.
    ChunkEnd 400 "a chunk's data is not followed by CR LF",
    /// RFC 9112 7.1.2.
    Trailer 400 "a trailer field is not valid",
    /// [`super::TRAILERS`].
    TrailersTooLarge 431 "the trailer section is too large",
    /// RFC 9112 8.
    Incomplete 400 "the connection ended inside a request",
    /// The caller went on after an error or after the input's end.
    AfterEnd 400 "input behind the last message",
}

impl fmt::Display for RequestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.reason())
    }
}

impl std::error::Error for RequestError {}
