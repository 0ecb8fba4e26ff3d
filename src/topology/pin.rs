//! Which loop's driver runs on which CPU: the grammar of `--pin` and what it comes to on this machine.
//!
//! Owns the decision and the system call. Must not decide which thread drives. The decision is made on the main
//! thread; each thread pins itself.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::{Topology, format_cpu_list, parse_cpu_list};

/// The value of `--pin`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    #[default]
    Auto,
    Off,
    List(Vec<usize>),
}

/// A wrong `--pin`, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PinError(String);

impl FromStr for Pin {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Pin, PinError> {
        match text {
            "auto" => return Ok(Pin::Auto),
            "off" => return Ok(Pin::Off),
            _ => {}
        }
        let cpus = parse_cpu_list(text)
            .filter(|cpus| !cpus.is_empty())
            .ok_or_else(|| {
                PinError(
                    "write auto, off, or CPU numbers as in 0,2-3 (the numbers that lscpu -e shows)"
                        .into(),
                )
            })?;
        let mut sorted = cpus.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PinError(format!(
                "CPU {} is named twice; each loop needs its own",
                twice[0]
            )));
        }
        Ok(Pin::List(cpus))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pin::Auto => f.write_str("auto"),
            Pin::Off => f.write_str("off"),
            Pin::List(cpus) => f.write_str(&format_cpu_list(cpus)),
        }
    }
}

/// Where the drivers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Where the scheduler likes; the reason is for the start-up line.
    Anywhere(&'static str),
    /// All on the performance cores, wherever the scheduler likes among them.
    Among(Vec<usize>),
    /// The loop with index i on the i-th CPU.
    Each(Vec<usize>),
}

impl Pin {
    /// What the option means for so many loops on this machine.
    ///
    /// `auto` gives each driver a performance core of its own when there is exactly one for each of them. With fewer
    /// loops than cores, another process that chose in the same way would sit on the very same cores while others are
    /// idle, so the scheduler chooses; but never an efficiency core. Under a CPU quota the machine is shared with
    /// strangers, and the same holds.
    pub fn place(&self, loops: usize, topology: &Topology) -> Result<Placement, PinError> {
        let performance = topology.performance();
        let unfixed = |why| {
            if topology.is_hybrid() {
                Placement::Among(sorted(performance))
            } else {
                Placement::Anywhere(why)
            }
        };
        match self {
            Pin::Off => Ok(Placement::Anywhere("pinning is off")),
            Pin::Auto
                if topology
                    .quota
                    .is_some_and(|quota| quota < performance.len() as f64) =>
            {
                Ok(unfixed("under a CPU quota"))
            }
            Pin::Auto if loops > performance.len() => Ok(unfixed("more loops than cores")),
            Pin::Auto if loops == topology.physical || loops == performance.len() => {
                Ok(Placement::Each(performance[..loops].to_vec()))
            }
            Pin::Auto => Ok(unfixed("fewer loops than cores")),
            Pin::List(cpus) => {
                if let Some(cpu) = cpus.iter().find(|cpu| !topology.allowed().contains(cpu)) {
                    return Err(PinError(format!(
                        "CPU {cpu} is not one that this process may use; it may use {}",
                        format_cpu_list(topology.allowed())
                    )));
                }
                if cpus.len() != loops {
                    return Err(PinError(format!(
                        "{} named for {loops} {}: name as many as --threads has",
                        count(cpus.len(), "CPU is", "CPUs are"),
                        if loops == 1 { "loop" } else { "loops" },
                    )));
                }
                Ok(Placement::Each(cpus.clone()))
            }
        }
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn sorted(cpus: &[usize]) -> Vec<usize> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus
}

impl Placement {
    /// The CPUs for the driver of this loop; none: leave the thread as it is.
    pub fn cpus(&self, loop_index: usize) -> Option<&[usize]> {
        match self {
            Placement::Anywhere(_) => None,
            Placement::Among(cpus) => Some(cpus),
            Placement::Each(cpus) => cpus.get(loop_index..=loop_index),
        }
    }
}

impl Placement {
    /// All CPUs that drivers are placed on; none: anywhere.
    pub fn all(&self) -> Option<&[usize]> {
        match self {
            Placement::Anywhere(_) => None,
            Placement::Among(cpus) | Placement::Each(cpus) => Some(cpus),
        }
    }
}

impl fmt::Display for Placement {
    /// For the start-up line, behind the word "cores".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Anywhere(why) => write!(f, "any ({why})"),
            Placement::Among(cpus) => write!(f, "any of {}", format_cpu_list(cpus)),
            Placement::Each(cpus) => f.write_str(&format_cpu_list(cpus)),
        }
    }
}

/// Restricts the calling thread to these CPUs (sched_setaffinity(2)). Threads that it starts later inherit the mask.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    pin(None, cpus)
}

/// The same for the thread with this number (see [`current_thread`]).
pub fn pin_thread(number: u32, cpus: &[usize]) -> io::Result<()> {
    pin(rustix::thread::Pid::from_raw(number as i32), cpus)
}

/// The kernel's number for the calling thread (gettid(2)).
pub fn current_thread() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

fn pin(thread: Option<rustix::thread::Pid>, cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus {
        if cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("there is no CPU {cpu}"),
            ));
        }
        set.set(cpu);
    }
    Ok(rustix::thread::sched_setaffinity(thread, &set)?)
}
