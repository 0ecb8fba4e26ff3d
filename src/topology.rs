//! The machine as this process may use it: performance cores, the affinity mask, the CPU quota, and pinning.
//!
//! Owns the reading of sysfs and cgroups and the decision which thread belongs on which core. Must not start threads
//! or know what they do. Read once on the main thread at start; [`pin_current_thread`] is called by the thread that it
//! pins. Everything is read below a root directory, so that tests can lay out machines of every kind.
#![forbid(unsafe_code)]

mod cgroup;
mod pin;

pub use pin::{Pin, PinError, Placement, current_thread, pin_current_thread, pin_thread};

use std::fs;
use std::path::Path;

/// Cores whose capacity is at least this share of the largest count as performance cores. Chips with a prime core beside
/// big ones have them within it (1024 and 870, say); little and efficiency cores are at a third to two thirds.
const PERFORMANCE_SHARE: f64 = 0.75;

/// What this process may run on.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Usable performance CPUs, in the order in which loops should take them: one of each physical core first, then
    /// their SMT siblings. Never empty.
    performance: Vec<usize>,
    /// How many physical cores the first part of `performance` is.
    physical: usize,
    /// Every CPU of the affinity mask, ascending. Never empty.
    allowed: Vec<usize>,
    /// CPU time per unit of time that the cgroup grants; none: as much as there is.
    quota: Option<f64>,
}

impl Topology {
    /// This machine, and this process's share of it.
    pub fn read() -> Topology {
        Topology::read_below(Path::new("/"), &affinity())
    }

    /// The machine whose `/sys` and `/proc` are below `root`, for a process with this affinity mask.
    fn read_below(root: &Path, affinity: &[usize]) -> Topology {
        let sys = root.join("sys/devices");
        let mut allowed = affinity.to_vec();
        allowed.sort_unstable();
        allowed.dedup();
        if allowed.is_empty() {
            allowed.push(0);
        }
        let mut fast: Vec<usize> = performance_cpus(&sys, &allowed)
            .into_iter()
            .filter(|cpu| allowed.contains(cpu))
            .collect();
        if fast.is_empty() {
            // The mask leaves efficiency cores only: then those are the best there are.
            fast = allowed.clone();
        }
        let (performance, physical) = spread_over_cores(&sys, &fast);
        Topology {
            performance,
            physical,
            allowed,
            quota: cgroup::cpu_quota(root),
        }
    }

    /// How many loops `--threads auto` makes: the physical performance cores that the process may use, and no more than
    /// the quota pays for (rounded down: a loop that is throttled half of the time helps nobody), at least one.
    pub fn usable(&self) -> usize {
        let paid = self.quota.map_or(usize::MAX, |quota| quota as usize);
        self.physical.min(paid).max(1)
    }

    /// The usable performance CPUs, distinct physical cores first.
    pub fn performance(&self) -> &[usize] {
        &self.performance
    }

    /// Every CPU that the process may run on: the mask to give back to a thread that shall not be pinned.
    pub fn allowed(&self) -> &[usize] {
        &self.allowed
    }

    /// The cgroup's CPU quota in cores.
    pub fn quota(&self) -> Option<f64> {
        self.quota
    }

    /// Whether the allowed CPUs are of more than one kind.
    fn is_hybrid(&self) -> bool {
        self.performance.len() < self.allowed.len()
    }
}

/// The affinity mask (sched_getaffinity(2)); CPU 0 where it can't be read.
fn affinity() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect(),
        Err(_) => vec![0],
    }
}

/// The performance CPUs among all of the machine's; on a machine of equals, all that are allowed.
///
/// Intel hybrids name them in /sys/devices/cpu_core/cpus (the PMU of the performance cores; kernel,
/// arch/x86/events/intel/core.c). Arm, RISC-V and newer x86 kernels give each CPU a capacity
/// (Documentation/scheduler/sched-capacity.rst).
fn performance_cpus(sys: &Path, allowed: &[usize]) -> Vec<usize> {
    let named = fs::read_to_string(sys.join("cpu_core/cpus"))
        .ok()
        .and_then(|text| parse_cpu_list(&text));
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return named;
    }
    let capacity = |cpu: &usize| -> Option<f64> {
        fs::read_to_string(sys.join(format!("system/cpu/cpu{cpu}/cpu_capacity")))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let capacities: Vec<Option<f64>> = allowed.iter().map(capacity).collect();
    let largest = capacities.iter().flatten().copied().fold(0.0, f64::max);
    allowed
        .iter()
        .zip(&capacities)
        .filter(|(_, capacity)| {
            capacity.is_none_or(|capacity| capacity >= largest * PERFORMANCE_SHARE)
        })
        .map(|(&cpu, _)| cpu)
        .collect()
}

/// Orders CPUs so that each physical core comes once before any comes twice; returns how many cores there are.
fn spread_over_cores(sys: &Path, cpus: &[usize]) -> (Vec<usize>, usize) {
    // (how many siblings came before, CPU)
    let mut ranked: Vec<(usize, usize)> = cpus
        .iter()
        .map(|&cpu| {
            let siblings = ["core_cpus_list", "thread_siblings_list"]
                .iter()
                .find_map(|name| {
                    let path = sys.join(format!("system/cpu/cpu{cpu}/topology/{name}"));
                    fs::read_to_string(path)
                        .ok()
                        .and_then(|text| parse_cpu_list(&text))
                });
            let before = siblings
                .unwrap_or_default()
                .into_iter()
                .filter(|other| *other < cpu && cpus.contains(other));
            (before.count(), cpu)
        })
        .collect();
    ranked.sort_unstable();
    let physical = ranked.iter().filter(|(before, _)| *before == 0).count();
    (ranked.into_iter().map(|(_, cpu)| cpu).collect(), physical)
}

/// The largest CPU number that a list may name: what the kernel is built for at most.
const LARGEST_CPU: usize = 8191;

/// The kernel's list format, `0-3,8,10-11` (cpuset(7)); none where it is malformed. Order is kept.
fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text
        .trim()
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (first.trim().parse().ok()?, last.trim().parse().ok()?),
            None => {
                let cpu: usize = part.parse().ok()?;
                (cpu, cpu)
            }
        };
        if first > last || last > LARGEST_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// CPU numbers in the kernel's list format.
fn format_cpu_list(cpus: &[usize]) -> String {
    let mut text = String::new();
    let mut index = 0;
    while index < cpus.len() {
        let first = index;
        while index + 1 < cpus.len() && cpus[index + 1] == cpus[index] + 1 {
            index += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&cpus[first].to_string());
        if index > first {
            // Two in a row read better as "0,1" than as "0-1".
            text.push(if index == first + 1 { ',' } else { '-' });
            text.push_str(&cpus[index].to_string());
        }
        index += 1;
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
