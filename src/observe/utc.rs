//! Moments as people write them, in UTC.
//!
//! Owns the calendar. Must not read the clock: the moment comes in. Any thread.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A moment taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Utc {
    year: i64,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    millisecond: u32,
}

impl Utc {
    /// A clock before 1970 is shown as 1970.
    pub(super) fn of(moment: SystemTime) -> Utc {
        Utc::after_epoch(moment.duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    fn after_epoch(since: Duration) -> Utc {
        let (days, rest) = (
            (since.as_secs() / 86_400) as i64,
            (since.as_secs() % 86_400) as u32,
        );
        // Counted from the 1st of March of the year 0, leap days fall at the end of a year, and 400 years are
        // 146,097 days always; the months from March on have 153 days every five.
        let days = days + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        Utc {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as u32,
            day: (day_of_year - (153 * from_march + 2) / 5 + 1) as u32,
            hour: rest / 3_600,
            minute: rest / 60 % 60,
            second: rest % 60,
            millisecond: since.subsec_millis(),
        }
    }

    /// `2026-11-30T17:54:28.123Z` (RFC 3339).
    pub(super) fn write_rfc3339(&self, out: &mut Vec<u8>) {
        digits(out, self.year as u32, 4);
        for (separator, number) in [
            (b'-', self.month),
            (b'-', self.day),
            (b'T', self.hour),
            (b':', self.minute),
            (b':', self.second),
        ] {
            out.push(separator);
            digits(out, number, 2);
        }
        out.push(b'.');
        digits(out, self.millisecond, 3);
        out.push(b'Z');
    }

    /// `[30/Nov/2026:17:54:28 +0000]`, the common log format's time.
    pub(super) fn write_common_log(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        digits(out, self.day, 2);
        out.push(b'/');
        out.extend_from_slice(MONTHS[self.month as usize - 1].as_bytes());
        out.push(b'/');
        digits(out, self.year as u32, 4);
        for number in [self.hour, self.minute, self.second] {
            out.push(b':');
            digits(out, number, 2);
        }
        out.extend_from_slice(b" +0000]");
    }
}

/// The number's last `width` decimal digits.
fn digits(out: &mut Vec<u8>, number: u32, width: usize) {
    let mut buffer = [b'0'; 10];
    let mut rest = number;
    for digit in buffer[..width].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&buffer[..width]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rfc3339(seconds: u64) -> String {
        let mut out = Vec::new();
        Utc::after_epoch(Duration::from_secs(seconds)).write_rfc3339(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_moments() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            // 2100 is no leap year.
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn every_day_of_two_centuries_agrees_with_another_calendar() {
        for day in 0..73_000u64 {
            let moment = UNIX_EPOCH + Duration::from_secs(day * 86_400 + 43_200);
            // "Sun, 06 Nov 1994 08:49:37 GMT"
            let http = httpdate::fmt_http_date(moment);
            let mut out = Vec::new();
            Utc::of(moment).write_common_log(&mut out);
            let expected = format!(
                "[{}/{}/{}:12:00:00 +0000]",
                &http[5..7],
                &http[8..11],
                &http[12..16]
            );
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
