//! Mail that wakes its reader: once for all mail that it has not collected yet.
//!
//! Any thread posts and rings, the loop's driver collects. What waking is, the caller says. Protocol and argument:
//! pool/README.md, "Mail".

#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

struct Letters<M> {
    waiting: Vec<M>,
    /// The reader has ended: nobody would collect.
    shut: bool,
}

pub(crate) struct Bell<M> {
    letters: Mutex<Letters<M>>,
    /// Mail lies here, or the reader is asked to look at something else.
    rung: AtomicBool,
}

impl<M> Bell<M> {
    pub(crate) fn new() -> Self {
        Bell {
            letters: Mutex::new(Letters {
                waiting: Vec::new(),
                shut: false,
            }),
            rung: AtomicBool::new(false),
        }
    }

    /// The mail comes back if the reader has ended.
    pub(crate) fn post(&self, mail: M, wake: impl FnOnce()) -> Result<(), M> {
        let mut letters = lock(&self.letters);
        if letters.shut {
            return Err(mail);
        }
        letters.waiting.push(mail);
        drop(letters);
        self.ring(wake);
        Ok(())
    }

    /// Wakes the reader, once for all rings since it last collected.
    pub(crate) fn ring(&self, wake: impl FnOnce()) {
        // Releases what the ringer has written, to whoever collects: also without mail.
        if !self.rung.swap(true, Ordering::Release) {
            wake();
        }
    }

    /// All mail so far.
    pub(crate) fn collect(&self) -> Vec<M> {
        // First the bell, then the mail: what is posted after the mail was taken rings again.
        if !self.rung.load(Ordering::Relaxed) || !self.rung.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut lock(&self.letters).waiting)
    }

    /// The reader ends, unless mail waits: true if it may.
    pub(crate) fn shut(&self) -> bool {
        let mut letters = lock(&self.letters);
        letters.shut = letters.waiting.is_empty();
        letters.shut
    }
}
