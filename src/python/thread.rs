//! A handler thread's place in the interpreter: one thread state from its start to its end.
//!
//! Owns the state and the rules of its life. Lives on the handler's own thread and never leaves it.

use std::marker::PhantomData;
use std::sync::Mutex;

use super::object::Attached;
use super::{ffi, gate};

/// States are made one after another: making one may stop the world on free-threaded builds, and a storm of first
/// attaches can deadlock there (docs/cpython-facts.md). Nobody waits for this lock while attached.
static MAKING: Mutex<()> = Mutex::new(());

/// This thread's state; the thread is detached except inside [`ThreadState::attached`].
pub struct ThreadState {
    state: *mut ffi::PyThreadState,
    thread: PhantomData<*mut ()>,
}

impl ThreadState {
    /// For the present thread, which has none yet. The interpreter must live until it is dropped.
    pub fn make() -> ThreadState {
        let _one_at_a_time = MAKING
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: the interpreter lives (the caller's promise); PyThreadState_New needs no attached thread and binds the
        // state to this one, and the first attach happens here, under the lock.
        let state = unsafe {
            let state = ffi::PyThreadState_New(ffi::PyInterpreterState_Main());
            assert!(!state.is_null(), "no memory for a thread state");
            ffi::PyEval_RestoreThread(state);
            ffi::PyEval_SaveThread()
        };
        ThreadState {
            state,
            thread: PhantomData,
        }
    }

    /// Runs `work` attached. Python objects it leaves behind are only touched in a later call.
    #[inline]
    pub fn attached<T>(&self, work: impl FnOnce(Attached) -> T) -> T {
        /// Detaches also when `work` panics.
        struct Detach;
        impl Drop for Detach {
            #[inline]
            fn drop(&mut self) {
                // SAFETY: attached below.
                gate::detach(|| unsafe {
                    ffi::PyEval_SaveThread();
                });
            }
        }
        // SAFETY: this thread's own state, detached, as `work` can't reach the ThreadState that holds it.
        gate::attach(|| unsafe { ffi::PyEval_RestoreThread(self.state) });
        // SAFETY: attached just now.
        let py = unsafe { Attached::assume() };
        let _detach = Detach;
        work(py)
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        // SAFETY: this thread's own state. Clearing it runs destructors of thread-locals, so it must be attached.
        unsafe {
            ffi::PyEval_RestoreThread(self.state);
            ffi::PyThreadState_Clear(self.state);
            ffi::PyThreadState_DeleteCurrent();
        }
    }
}
