//! Machines of every kind, laid out as files.

use super::*;
use tempfile::TempDir;

/// A machine laid out on disk: (path below the root, contents).
fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, contents) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    root
}

fn read(files: &[(&str, &str)], affinity: &[usize]) -> Topology {
    Topology::read_below(machine(files).path(), affinity)
}

/// A machine of equal CPUs, for tests of what is built on top.
pub(crate) fn equal_cpus(count: usize) -> Topology {
    read(&[], &(0..count).collect::<Vec<_>>())
}

const HYBRID: &[(&str, &str)] = &[
    // Two performance cores with two threads each (0-1, 2-3), two efficiency cores (4, 5).
    ("sys/devices/cpu_core/cpus", "0-3\n"),
    ("sys/devices/cpu_atom/cpus", "4-5\n"),
    (
        "sys/devices/system/cpu/cpu0/topology/core_cpus_list",
        "0-1\n",
    ),
    (
        "sys/devices/system/cpu/cpu1/topology/core_cpus_list",
        "0-1\n",
    ),
    (
        "sys/devices/system/cpu/cpu2/topology/core_cpus_list",
        "2-3\n",
    ),
    (
        "sys/devices/system/cpu/cpu3/topology/core_cpus_list",
        "2-3\n",
    ),
    ("sys/devices/system/cpu/cpu4/topology/core_cpus_list", "4\n"),
    ("sys/devices/system/cpu/cpu5/topology/core_cpus_list", "5\n"),
];

const BIG_LITTLE: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/cpu0/cpu_capacity", "325\n"),
    ("sys/devices/system/cpu/cpu1/cpu_capacity", "325\n"),
    ("sys/devices/system/cpu/cpu2/cpu_capacity", "871\n"),
    ("sys/devices/system/cpu/cpu3/cpu_capacity", "1024\n"),
];

#[test]
fn intel_hybrid_distinct_cores_first_and_no_efficiency_core() {
    let topology = read(HYBRID, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(topology.performance(), [0, 2, 1, 3]);
    assert_eq!(topology.usable(), 2);
    assert_eq!(topology.allowed(), [0, 1, 2, 3, 4, 5]);
    // The mask takes one thread of a core away: the other stands for the core.
    let topology = read(HYBRID, &[1, 2, 3, 5]);
    assert_eq!(
        (topology.performance(), topology.usable()),
        (&[1, 2, 3][..], 2)
    );
    // Efficiency cores only.
    let topology = read(HYBRID, &[4, 5]);
    assert_eq!(
        (topology.performance(), topology.usable()),
        (&[4, 5][..], 2)
    );
}

#[test]
fn arm_capacity_prime_and_big_cores_count() {
    let topology = read(BIG_LITTLE, &[0, 1, 2, 3]);
    assert_eq!(
        (topology.performance(), topology.usable()),
        (&[2, 3][..], 2)
    );
    assert_eq!(read(BIG_LITTLE, &[0, 1]).performance(), [0, 1]);
}

#[test]
fn older_kernels_name_siblings_otherwise_and_a_bare_machine_is_one_of_equals() {
    let topology = read(
        &[
            (
                "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
                "0,2\n",
            ),
            (
                "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
                "1,3\n",
            ),
            (
                "sys/devices/system/cpu/cpu2/topology/thread_siblings_list",
                "0,2\n",
            ),
            (
                "sys/devices/system/cpu/cpu3/topology/thread_siblings_list",
                "1,3\n",
            ),
        ],
        &[0, 1, 2, 3],
    );
    assert_eq!(
        (topology.performance(), topology.usable()),
        (&[0, 1, 2, 3][..], 2)
    );
    assert_eq!(
        (equal_cpus(3).performance(), equal_cpus(3).usable()),
        (&[0, 1, 2][..], 3)
    );
    assert_eq!(equal_cpus(3).quota(), None);
}

#[test]
fn quota_of_cgroup_v2_is_the_smallest_on_the_way_up() {
    let v2 = |own: &str, parent: &str| {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", own),
            ("sys/fs/cgroup/a/cpu.max", parent),
        ];
        read(&files, &[0, 1, 2, 3])
    };
    assert_eq!(v2("250000 100000\n", "max 100000\n").quota(), Some(2.5));
    assert_eq!(v2("250000 100000\n", "max 100000\n").usable(), 2);
    assert_eq!(v2("max 100000\n", "50000 100000\n").quota(), Some(0.5));
    assert_eq!(v2("max 100000\n", "50000 100000\n").usable(), 1);
    assert_eq!(v2("max 100000\n", "max 100000\n").quota(), None);
    assert_eq!(v2("rubbish", "").quota(), None);
    // In a container whose path is the host's.
    let files = [
        ("proc/self/cgroup", "0::/docker/abc\n"),
        ("sys/fs/cgroup/cpu.max", "100000 100000\n"),
    ];
    assert_eq!(read(&files, &[0, 1]).quota(), Some(1.0));
    // A path that climbs out of the namespace (cgroup_namespaces(7)).
    let files = [
        ("proc/self/cgroup", "0::/../../x\n"),
        ("sys/fs/cgroup/cpu.max", "100000 100000\n"),
    ];
    assert_eq!(read(&files, &[0, 1]).quota(), Some(1.0));
}

#[test]
fn quota_of_cgroup_v1() {
    let v1 = |quota: &str, mount: &str| {
        let quota_file = format!("sys/fs/cgroup/{mount}/web/cpu.cfs_quota_us");
        let period_file = format!("sys/fs/cgroup/{mount}/web/cpu.cfs_period_us");
        let files = [
            (
                "proc/self/cgroup",
                "4:memory:/web\n3:cpu,cpuacct:/web\n0::/\n",
            ),
            (quota_file.as_str(), quota),
            (period_file.as_str(), "100000\n"),
        ];
        read(&files, &[0, 1, 2, 3]).quota()
    };
    assert_eq!(v1("300000\n", "cpu,cpuacct"), Some(3.0));
    assert_eq!(v1("300000\n", "cpu"), Some(3.0));
    assert_eq!(v1("-1\n", "cpu"), None);
}

#[test]
fn cpu_lists() {
    assert_eq!(parse_cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
    assert_eq!(parse_cpu_list(" 3 , 1 "), Some(vec![3, 1]));
    assert_eq!(parse_cpu_list("\n"), Some(vec![]));
    for wrong in ["x", "3-1", "1-", "-1", "0-99999999", "1 2"] {
        assert_eq!(parse_cpu_list(wrong), None, "{wrong}");
    }
    for list in ["0", "0,1", "0-2,5", "3,1", "0,2-4,8,9"] {
        assert_eq!(format_cpu_list(&parse_cpu_list(list).unwrap()), list);
    }
}

#[test]
fn pin_is_parsed_and_printed() {
    for text in ["auto", "off", "0,2-4", "3,1"] {
        assert_eq!(text.parse::<Pin>().unwrap().to_string(), text);
    }
    for (text, hint) in [
        ("on", "auto, off"),
        ("", "auto, off"),
        ("1,0-2", "CPU 1 is named twice"),
    ] {
        let error = text.parse::<Pin>().unwrap_err().to_string();
        assert!(error.contains(hint), "{text}: {error}");
    }
}

#[test]
fn auto_pins_when_every_core_gets_one_loop() {
    let four = equal_cpus(4);
    assert_eq!(
        Pin::Auto.place(4, &four),
        Ok(Placement::Each(vec![0, 1, 2, 3]))
    );
    assert_eq!(
        Pin::Auto.place(2, &four),
        Ok(Placement::Anywhere("fewer loops than cores"))
    );
    assert_eq!(
        Pin::Auto.place(5, &four),
        Ok(Placement::Anywhere("more loops than cores"))
    );
    let hybrid = read(HYBRID, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(Pin::Auto.place(2, &hybrid), Ok(Placement::Each(vec![0, 2])));
    assert_eq!(
        Pin::Auto.place(4, &hybrid),
        Ok(Placement::Each(vec![0, 2, 1, 3]))
    );
    assert_eq!(
        Pin::Auto.place(1, &hybrid),
        Ok(Placement::Among(vec![0, 1, 2, 3]))
    );
    assert_eq!(
        Pin::Auto.place(9, &hybrid),
        Ok(Placement::Among(vec![0, 1, 2, 3]))
    );
    let mut shared = equal_cpus(4);
    shared.quota = Some(2.0);
    assert_eq!(
        Pin::Auto.place(2, &shared),
        Ok(Placement::Anywhere("under a CPU quota"))
    );
}

#[test]
fn a_list_must_fit_the_loops_and_the_mask() {
    let topology = read(&[], &[0, 1, 3]);
    assert_eq!(
        Pin::List(vec![3, 0]).place(2, &topology),
        Ok(Placement::Each(vec![3, 0]))
    );
    let error = Pin::List(vec![2])
        .place(1, &topology)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("CPU 2 is not one") && error.contains("may use 0,1,3"),
        "{error}"
    );
    let error = Pin::List(vec![0, 1])
        .place(3, &topology)
        .unwrap_err()
        .to_string();
    assert!(error.contains("2 CPUs are named for 3 loops"), "{error}");
    assert_eq!(
        Pin::Off.place(2, &topology).unwrap().to_string(),
        "any (pinning is off)"
    );
    assert_eq!(Placement::Each(vec![0, 1]).cpus(1), Some(&[1][..]));
    assert_eq!(Placement::Each(vec![0, 1]).cpus(2), None);
    assert_eq!(Placement::Among(vec![0, 2]).cpus(7), Some(&[0, 2][..]));
}

#[test]
fn this_thread_goes_where_it_is_told() {
    let here = Topology::read();
    let cpu = *here.allowed().last().unwrap();
    // A thread of its own: the mask is the thread's.
    let mask = std::thread::spawn(move || {
        pin_current_thread(&[cpu]).unwrap();
        affinity()
    });
    assert_eq!(mask.join().unwrap(), [cpu]);
    assert_eq!(affinity(), here.allowed());
    assert!(pin_current_thread(&[1 << 20]).is_err());
}
