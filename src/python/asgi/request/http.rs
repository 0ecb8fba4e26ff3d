//! The messages of HTTP: the body that is received, the response that is sent, in their order.
//!
//! Owns what each message means for the connection.

use super::super::super::object::{Attached, Exception, Raised};
use super::super::awaits::Poll;
use super::super::classes;
use super::super::executor::Executor;
use super::super::message::{self, Bytes, Message};
use super::{Protocol, Request, Sent, Stage};
use crate::event_loop::{Awaits, Connection, Piece};
use crate::exchange::Gone;
use crate::http1::BodySize;

impl Request {
    pub(super) fn poll_http(&self, py: Attached, executor: &Executor) -> Result<Poll, Raised> {
        let mut held = self.connection.borrow_mut();
        let Some(connection) = &mut *held else {
            return Protocol::Http.disconnect(py).map(Poll::Ready);
        };
        if self.body_received.get() {
            return if connection.has_hung_up() {
                Protocol::Http.disconnect(py).map(Poll::Ready)
            } else {
                connection.compact();
                drop(held);
                executor.wait(py, &self.receivers)
            };
        }
        let fault = match connection.next_piece() {
            Piece::Body { bytes, more } => {
                self.body_received.set(!more);
                return executor.body_message(py, bytes, more).map(Poll::Ready);
            }
            Piece::Pending => {
                executor.watch(connection, Awaits::Body);
                drop(held);
                executor.rearm(py);
                return executor.wait(py, &self.receivers);
            }
            Piece::Gone => None,
            Piece::Fault(fault) => Some(fault),
        };
        if let Some(fault) = fault {
            connection.refuse_body(fault);
        }
        drop(held);
        self.end_connection(py, executor, fault.is_some());
        Protocol::Http.disconnect(py).map(Poll::Ready)
    }

    pub(in crate::python::asgi) fn send_start(
        &self,
        py: Attached,
        executor: &Executor,
        message: &Message,
    ) -> Result<Sent, Raised> {
        self.check_here(py)?;
        if self.stage.get() != Stage::Awaited {
            let text = "\"http.response.start\" was sent before: an answer has one head";
            return Err(py.raise(Exception::Runtime, text));
        }
        let words = &classes().words;
        let Some(status) = message.int(py, words.status)? else {
            let text = "\"http.response.start\" has no \"status\"";
            return Err(py.raise(Exception::Value, text));
        };
        if (100..200).contains(&status) {
            let text = format!("{status} is no final status");
            return Err(py.raise(Exception::Value, &text));
        }
        let headers = message.get_some(py, words.headers)?;
        let trailers =
            (message.len() > 3 || headers.is_none()) && message.flag(py, words.trailers)?;
        // Taken out: reading an iterable can run code of the application's.
        let mut head = self.head.take();
        head.clear();
        let read = message::read_status(py, status, &mut head).and_then(|()| match headers {
            Some(headers) => message::read_headers(py, &headers, &mut head),
            None => Ok(()),
        });
        self.room.set(head.content_length().unwrap_or(u64::MAX));
        self.head.replace(head);
        read?;
        self.trailers.set(trailers);
        self.stage.set(Stage::Held);
        executor.count_held(1);
        Ok(Sent::Done)
    }

    /// Buffers the head.
    pub(in crate::python::asgi) fn start(
        &self,
        executor: &Executor,
        connection: &mut Connection,
        size: BodySize,
    ) {
        executor.count_held(-1);
        if connection.body_is_in_the_way() {
            connection.exchange().close_after();
        }
        let size = if self.trailers.get() {
            BodySize::Unknown
        } else {
            size
        };
        let head = self.head.borrow();
        let exchange = connection.exchange();
        exchange.start(&head, size);
        if exchange.is_head() || matches!(head.code(), 204 | 205 | 304) {
            self.room.set(u64::MAX);
        }
        self.stage.set(Stage::Body);
    }

    /// The head went unsent through a turn of the event loop: the body will take its time.
    pub fn send_held(&self, py: Attached, executor: &Executor) {
        let mut held = self.connection.borrow_mut();
        let Some(connection) = &mut *held else {
            return;
        };
        if self.stage.get() != Stage::Held {
            return;
        }
        self.start(executor, connection, BodySize::Unknown);
        let flushed = connection.flush();
        if flushed.is_ok() && connection.exchange().pending() > 0 {
            executor.watch(connection, Awaits::Nothing);
        }
        drop(held);
        match flushed {
            Err(Gone) => self.end_connection(py, executor, false),
            Ok(_) => executor.rearm(py),
        }
    }

    /// Whether a piece of the body may come now.
    pub(in crate::python::asgi) fn expect_body(
        &self,
        py: Attached,
        kind: &str,
    ) -> Result<(), Raised> {
        self.check_here(py)?;
        let why = match self.stage.get() {
            Stage::Held | Stage::Body => return Ok(()),
            Stage::Awaited => "was sent before \"http.response.start\"",
            Stage::Trailers | Stage::Complete => "was sent after the end of the body",
        };
        Err(py.raise(Exception::Runtime, &format!("{kind:?} {why}")))
    }

    #[inline]
    pub(in crate::python::asgi) fn send_body(
        &self,
        py: Attached,
        executor: &Executor,
        message: &Message,
    ) -> Result<Sent, Raised> {
        self.expect_body(py, "http.response.body")?;
        let words = &classes().words;
        let body = match message.get(py, words.body)? {
            Some(body) => Bytes::new(py, body, "a body")?,
            None => Bytes::Copied(Vec::new()),
        };
        let alone =
            message.len() == 2 && !matches!(&body, Bytes::Copied(copied) if copied.is_empty());
        let more = !alone && message.flag(py, words.more_body)?;
        let body = body.as_slice();
        let room = self.room.get();
        let length = body.len() as u64;
        let mut held = self.connection.borrow_mut();
        let Some(connection) = &mut *held else {
            return Err(self.disconnected(py));
        };
        // One that only ended its sending side still gets an answer, but no stream: most of them are gone.
        if more && self.stage.get() == Stage::Body && connection.has_hung_up() {
            drop(held);
            self.end_connection(py, executor, false);
            return Err(self.disconnected(py));
        }
        if self.stage.get() == Stage::Held {
            let size = if more {
                BodySize::Unknown
            } else {
                BodySize::Known(length)
            };
            self.start(executor, connection, size);
        }
        connection.push(body);
        let exchange = connection.exchange();
        let counted = self.room.get() != u64::MAX;
        self.take_room(length);
        if !more {
            self.end_body(exchange);
        }
        let sent = self.settle(py, executor, held)?;
        if !counted {
            return Ok(sent);
        }
        let text = if length > room {
            "the body is longer than its Content-Length; what was too much was dropped"
        } else if !more && length < room {
            "the body is shorter than its Content-Length; the connection is closed"
        } else {
            return Ok(sent);
        };
        Err(py.raise(Exception::Runtime, text))
    }

    pub(super) fn send_trailers(
        &self,
        py: Attached,
        executor: &Executor,
        message: &Message,
    ) -> Result<Sent, Raised> {
        self.check_here(py)?;
        if self.stage.get() != Stage::Trailers {
            let text = "\"http.response.trailers\" was sent, but not after the end of a body that was announced with \
                        \"trailers\"";
            return Err(py.raise(Exception::Runtime, text));
        }
        let words = &classes().words;
        let more = message.flag(py, words.more_trailers)?;
        let mut fields = self.head.take();
        if fields.code() != TRAILER_MARK {
            fields.clear();
        }
        let read = match message.get_some(py, words.headers)? {
            Some(headers) => message::read_headers(py, &headers, &mut fields),
            None => Ok(()),
        };
        // Marked, so that several messages add up.
        let _ = fields.status(b"199 ");
        self.head.replace(fields);
        read?;
        if more {
            return Ok(Sent::Done);
        }
        let mut held = self.connection.borrow_mut();
        if let Some(connection) = &mut *held {
            connection.exchange().finish_with(&self.head.borrow());
        }
        self.stage.set(Stage::Complete);
        self.settle(py, executor, held)
    }

    pub(super) fn send_early_hint(
        &self,
        py: Attached,
        executor: &Executor,
        message: &Message,
    ) -> Result<Sent, Raised> {
        self.check_here(py)?;
        if self.stage.get() != Stage::Awaited {
            let text = "\"http.response.early_hint\" was sent after \"http.response.start\"";
            return Err(py.raise(Exception::Runtime, text));
        }
        let mut head = self.head.take();
        head.clear();
        let _ = head.status(b"103 Early Hints");
        let read = match message.get_some(py, classes().words.links)? {
            Some(links) => message::for_each(py, &links, c"links must be an iterable", |link| {
                let link = Bytes::new(py, link.again(), "a link")?;
                head.field(b"Link", link.as_slice())
                    .map_err(|error| py.raise(Exception::Value, &format!("a link: {error}")))
            }),
            None => Ok(()),
        };
        self.head.replace(head);
        read?;
        let mut held = self.connection.borrow_mut();
        if let Some(connection) = &mut *held {
            connection.exchange().interim(&self.head.borrow());
        }
        self.settle(py, executor, held)
    }
}

/// The status that marks a `ResponseHead` as the collected trailers: no answer has it.
const TRAILER_MARK: u16 = 199;
