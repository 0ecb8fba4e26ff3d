//! How many descriptors the process may have open.
//!
//! Owns the one change of a resource limit: the soft limit of open files, raised as far as connections need it and the
//! hard limit lets it. Main thread, before connections are accepted.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the process needs besides connections: listeners, polls, logs, spooled bodies, and what the application opens.
const BESIDE_CONNECTIONS: u64 = 256;

/// Makes sure, as far as it can, that so many connections may be open. Returns how many may be: fewer than asked for
/// where the hard limit (`ulimit -Hn`) stands in the way.
///
/// The limit is commonly 1024, for the sake of select(2), which this server doesn't use. It is raised no further than
/// needed, because child processes of the application inherit it.
pub fn allow_descriptors(connections: u64) -> io::Result<u64> {
    let now = getrlimit(Resource::Nofile);
    let (soft, allowed) = decide(now.current, now.maximum, connections);
    if soft != now.current {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: soft,
                maximum: now.maximum,
            },
        )?;
    }
    Ok(allowed)
}

/// The new soft limit, and how many connections fit below it. None: no limit.
fn decide(soft: Option<u64>, hard: Option<u64>, connections: u64) -> (Option<u64>, u64) {
    let needed = connections.saturating_add(BESIDE_CONNECTIONS);
    let Some(soft) = soft.filter(|soft| *soft < needed) else {
        return (soft, connections);
    };
    let raised = hard.map_or(needed, |hard| hard.min(needed)).max(soft);
    // Where even the rest doesn't fit, half is for connections.
    let beside = BESIDE_CONNECTIONS.min(raised / 2);
    (Some(raised), connections.min(raised - beside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_rises_as_far_as_needed_and_possible() {
        // Enough already.
        assert_eq!(decide(Some(1024), Some(4096), 500), (Some(1024), 500));
        assert_eq!(decide(None, None, 1 << 40), (None, 1 << 40));
        // Raised to what is needed, not to what there is.
        assert_eq!(
            decide(Some(1024), Some(1 << 20), 10_000),
            (Some(10_256), 10_000)
        );
        assert_eq!(decide(Some(1024), None, 10_000), (Some(10_256), 10_000));
        // The hard limit cuts it.
        assert_eq!(decide(Some(1024), Some(4096), 10_000), (Some(4096), 3_840));
        assert_eq!(decide(Some(64), Some(64), 10_000), (Some(64), 32));
        assert_eq!(
            decide(Some(1024), Some(4096), u64::MAX),
            (Some(4096), 3_840)
        );
    }

    #[test]
    fn this_process_may_open_what_it_was_told() {
        let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let allowed = allow_descriptors(300).unwrap();
        assert!(allowed >= 300.min(now / 2));
        assert!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) >= now);
    }
}
