//! The control of scripts/tsan: a race that ThreadSanitizer has to report, or it doesn't watch.

use std::cell::UnsafeCell;

struct Racy(UnsafeCell<u64>);

impl Racy {
    fn add(&self) {
        // SAFETY: none: the other thread writes at the same time, which is what has to be found.
        unsafe { *self.0.get() += 1 };
    }
}

// SAFETY: none, as above.
unsafe impl Sync for Racy {}

#[test]
#[ignore = "must be reported: scripts/tsan runs it by itself"]
fn a_race_is_reported() {
    let racy = Racy(UnsafeCell::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    racy.add();
                }
            });
        }
    });
}
