//! Bodies that are files: the extensions `http.response.pathsend` and `http.response.zerocopysend`.
//!
//! Owns a file's way to the client by sendfile(2), over as many turns of the loop as the client takes.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use super::super::ffi;
use super::super::object::{Attached, Exception, Owned, Raised, bytes_of};
use super::classes;
use super::executor::Executor;
use super::message::Message;
use super::request::{Request, Sent, Stage};
use crate::event_loop::Awaits;
use crate::exchange::Gone;
use crate::http1::BodySize;

/// A file on its way.
pub struct Transfer {
    file: File,
    position: u64,
    end: u64,
    /// The response is complete with it.
    last: bool,
}

impl Request {
    /// A file is on its way: what comes next waits for it.
    pub fn has_file(&self) -> bool {
        self.file.borrow().is_some()
    }

    pub(super) fn send_path(
        &self,
        py: Attached,
        executor: &Executor,
        message: &Message,
    ) -> Result<Sent, Raised> {
        self.expect_body(py, "http.response.pathsend")?;
        let Some(path) = message.get_some(py, classes().words.path)? else {
            let text = "\"http.response.pathsend\" has no \"path\"";
            return Err(py.raise(Exception::Value, text));
        };
        // SAFETY: attached; the converter gives a new bytes object, or raises.
        let path = unsafe {
            let mut encoded: *mut ffi::PyObject = std::ptr::null_mut();
            if ffi::PyUnicode_FSConverter(path.ptr(), (&raw mut encoded).cast()) == 0 {
                return Err(Raised);
            }
            Owned::new(encoded)?
        };
        // SAFETY: bytes, held.
        let name = OsStr::from_bytes(unsafe { bytes_of(path.ptr()) });
        let opened = py.detached(|| {
            let file = File::open(name)?;
            let metadata = file.metadata()?;
            Ok::<_, std::io::Error>((file, metadata))
        });
        let (file, metadata) = opened.map_err(|error| os_error(py, &error, name))?;
        if !metadata.is_file() {
            let text = format!("{} is no regular file", name.display());
            return Err(py.raise(Exception::Os, &text));
        }
        let transfer = Transfer {
            file,
            position: 0,
            end: metadata.len(),
            last: true,
        };
        self.begin_file(py, executor, transfer)
    }

    pub(super) fn send_file(
        &self,
        py: Attached,
        executor: &Executor,
        message: &Message,
    ) -> Result<Sent, Raised> {
        self.expect_body(py, "http.response.zerocopysend")?;
        let words = &classes().words;
        let Some(object) = message.get_some(py, words.file)? else {
            let text = "\"http.response.zerocopysend\" has no \"file\"";
            return Err(py.raise(Exception::Value, text));
        };
        let offset = message.int(py, words.offset)?;
        let count = message.int(py, words.count)?;
        let last = !message.flag(py, words.more_body)?;
        // SAFETY: attached; a live object. -1 is an error.
        let descriptor = match unsafe { ffi::PyObject_AsFileDescriptor(object.ptr()) } {
            -1 => return Err(Raised),
            descriptor => descriptor,
        };
        // SAFETY: the object is held, and with it the descriptor is open; it is duplicated at once.
        let duplicate = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned();
        let found = duplicate.and_then(|duplicate: OwnedFd| {
            let file = File::from(duplicate);
            let length = file.metadata()?.len();
            let position = match offset {
                Some(offset) => u64::try_from(offset).unwrap_or(0),
                None => std::io::Seek::stream_position(&mut &file)?,
            };
            let end = match count {
                Some(count) => position.saturating_add(u64::try_from(count).unwrap_or(0)),
                None => length.max(position),
            };
            if offset.is_none() {
                // As os.sendfile does without an offset.
                std::io::Seek::seek(&mut &file, std::io::SeekFrom::Start(end))?;
            }
            Ok(Transfer {
                file,
                position,
                end,
                last,
            })
        });
        let transfer = found.map_err(|error| os_error(py, &error, OsStr::new("")))?;
        self.begin_file(py, executor, transfer)
    }

    fn begin_file(
        &self,
        py: Attached,
        executor: &Executor,
        mut transfer: Transfer,
    ) -> Result<Sent, Raised> {
        if self.has_file() {
            let text = "a file is still being sent: await send()";
            return Err(py.raise(Exception::Runtime, text));
        }
        let mut held = self.connection.borrow_mut();
        let Some(connection) = &mut *held else {
            return Err(self.disconnected(py));
        };
        let length = transfer.end - transfer.position;
        if self.stage.get() == Stage::Held {
            let size = if transfer.last {
                BodySize::Known(length)
            } else {
                BodySize::Unknown
            };
            self.start(executor, connection, size);
        }
        let allowed = connection.exchange().open_file(length);
        transfer.end = transfer.position + allowed;
        self.take_room(length);
        self.file.replace(Some(transfer));
        drop(held);
        self.pump_file(py, executor);
        if self.has_file() {
            return Ok(Sent::Full);
        }
        self.check_here(py)?;
        Ok(Sent::Done)
    }

    /// Goes on with the file.
    pub fn pump_file(&self, py: Attached, executor: &Executor) {
        let mut held = self.connection.borrow_mut();
        let mut file = self.file.borrow_mut();
        let (Some(connection), Some(transfer)) = (&mut *held, &mut *file) else {
            return;
        };
        let before = transfer.position;
        let pumped =
            connection
                .exchange()
                .pump_file(&transfer.file, &mut transfer.position, transfer.end);
        if transfer.position > before {
            connection.notice_progress();
        }
        match pumped {
            Ok(false) => {
                // Bytes of the file wait for room, whether or not the buffer has some.
                executor.watch(connection, Awaits::Room);
                drop(file);
                drop(held);
                executor.rearm(py);
            }
            Ok(true) => {
                let last = transfer.last;
                *file = None;
                drop(file);
                connection.exchange().close_file();
                if last {
                    self.end_body(connection.exchange());
                }
                if self.settle(py, executor, held).is_err() {
                    // The client is gone: whoever waits is told so.
                    drop(py.take_exception());
                }
                self.wake_senders(py, executor);
            }
            Err(Gone) => {
                *file = None;
                drop(file);
                drop(held);
                self.end_connection(py, executor, false);
            }
        }
    }
}

fn os_error(py: Attached, error: &std::io::Error, name: &OsStr) -> Raised {
    let number = error.raw_os_error().unwrap_or(0);
    let made = (|| {
        let text = py.str(&error.to_string())?;
        // SAFETY: attached; a static of CPython's. OSError picks its subclass by the number.
        let class = unsafe { Owned::borrowed(ffi::PyExc_OSError) };
        let path = py.str(&name.to_string_lossy())?;
        py.call(&class, [&py.int(number.into())?, &text, &path])
    })();
    match made {
        Ok(exception) => py.reraise(exception),
        Err(raised) => raised,
    }
}
