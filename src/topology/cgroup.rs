//! The CPU quota of the control group that the process is in, version 1 or 2.
//!
//! Owns the walk from `/proc/self/cgroup` to the files. Must not fail: a machine without cgroups has no quota.
//! Runs once on the main thread at start.

use std::fs;
use std::path::Path;

/// The smallest quota on the way from the process's group to the root, in cores.
///
/// Version 2: `cpu.max` (Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files"). Version 1:
/// `cpu.cfs_quota_us` over `cpu.cfs_period_us` (Documentation/scheduler/sched-bwc.rst). Both may be mounted at once.
pub(super) fn cpu_quota(root: &Path) -> Option<f64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = root.join("sys/fs/cgroup");
    let mut smallest: Option<f64> = None;
    for line in groups.lines() {
        // cgroups(7): hierarchy-ID:controller-list:cgroup-path
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let quotas: Vec<f64> = if controllers.is_empty() {
            let mount = if mounts.join("unified").is_dir() {
                mounts.join("unified")
            } else {
                mounts.clone()
            };
            ancestors(&mount, path, quota_v2)
        } else if controllers.split(',').any(|name| name == "cpu") {
            let mount = [controllers, "cpu"]
                .iter()
                .map(|name| mounts.join(name))
                .find(|path| path.is_dir());
            mount
                .map(|mount| ancestors(&mount, path, quota_v1))
                .unwrap_or_default()
        } else {
            Vec::new()
        };
        for quota in quotas {
            smallest = Some(smallest.map_or(quota, |least| least.min(quota)));
        }
    }
    smallest
}

/// What `quota` says of the group and of every group above it. Inside a container the path may be the host's, of which
/// only the mount's root exists here; it stands for the group then.
fn ancestors(mount: &Path, path: &str, quota: fn(&Path) -> Option<f64>) -> Vec<f64> {
    let path = Path::new(path.trim_start_matches('/'));
    // `ancestors` of a relative path ends with the empty path: the mount itself.
    path.ancestors()
        .filter(|part| !part.starts_with(".."))
        .filter_map(|part| quota(&mount.join(part)))
        .collect()
}

fn quota_v2(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    // "max 100000" has no number first: no quota.
    let (quota, period): (f64, f64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

fn quota_v1(group: &Path) -> Option<f64> {
    let number = |name: &str| -> Option<f64> {
        fs::read_to_string(group.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
    // -1: no quota.
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}
