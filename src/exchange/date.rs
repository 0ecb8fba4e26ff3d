//! The Date field's value (RFC 9110 6.6.1), rendered once a second per thread.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    static RENDERED: Cell<(i64, [u8; 29])> = const { Cell::new((i64::MIN, [0; 29])) };
}

/// Now as an IMF-fixdate (RFC 9110 5.6.7).
pub fn http_date() -> [u8; 29] {
    // The coarse clock costs a few nanoseconds; its few milliseconds of delay don't show in whole seconds.
    let now = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    let (second, text) = RENDERED.get();
    if second == now {
        return text;
    }
    let text = render(UNIX_EPOCH + Duration::from_secs(now.max(0) as u64));
    RENDERED.set((now, text));
    text
}

fn render(time: SystemTime) -> [u8; 29] {
    let text = httpdate::fmt_http_date(time);
    text.as_bytes()
        .try_into()
        .expect("an IMF-fixdate has 29 characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_the_example_of_rfc_9110() {
        let time = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(&render(time), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn tells_the_present_second() {
        let parsed = httpdate::parse_http_date(std::str::from_utf8(&http_date()).unwrap()).unwrap();
        assert!(SystemTime::now().duration_since(parsed).unwrap() < Duration::from_secs(60));
    }
}
