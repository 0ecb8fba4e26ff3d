//! Pings: a WebSocket's client shows now and then that it is there.

use super::super::super::object::Attached;
use super::super::executor::Executor;
use super::super::request::Request;
use crate::event_loop::Millis;
use crate::exchange::Gone;
use crate::observe::log;
use crate::websocket::code;

impl Request {
    /// A deadline of the connection's came.
    pub(in super::super) fn ping(&self, py: Attached, executor: &Executor) {
        let Some(pings) = executor.pings() else {
            return;
        };
        let (interval, timeout) = (pings.interval.as_millis(), pings.timeout.as_millis());
        let now = executor.now();
        let mut held = self.connection.borrow_mut();
        let mut place = self.socket.borrow_mut();
        let (Some(connection), Some(socket)) = (&mut *held, &mut *place) else {
            return;
        };
        let is_full = socket.is_full();
        let Some(codec) = socket.codec.as_mut().filter(|codec| codec.is_open()) else {
            return;
        };
        if !codec.awaiting_pong() {
            socket.pong_due = Millis::MAX;
        } else if is_full {
            // The answer may be there, behind what nobody reads: that is not the client's fault.
            socket.pong_due = now + timeout as Millis;
        } else if now >= socket.pong_due {
            drop(place);
            drop(held);
            log::debug!("a WebSocket's client answers no pings");
            let _ = self.begin_close(py, executor, code::INTERNAL_ERROR, "no answer to a ping");
            if let Some(socket) = &mut *self.socket.borrow_mut() {
                socket.code = code::ABNORMAL;
            }
            return;
        }
        if now >= socket.next_ping {
            let (_, out) = connection.raw();
            codec.release();
            let _ = codec.send_ping(out);
            socket.next_ping = now + interval as Millis;
            if socket.pong_due == Millis::MAX {
                socket.pong_due = now + timeout as Millis;
            }
        }
        executor.watch_until(connection, socket.next_ping.min(socket.pong_due));
        let flushed = connection.flush();
        drop(place);
        drop(held);
        if flushed == Err(Gone) {
            self.end_connection(py, executor, false);
        }
    }
}
