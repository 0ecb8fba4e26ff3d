"""What the kernel says about a server process: memory, CPU time, descriptors (proc(5))."""

import os

_TICK = os.sysconf("SC_CLK_TCK")


def _kilobytes(pid, name, source):
    with open(f"/proc/{pid}/{source}") as lines:
        for line in lines:
            if line.startswith(name + ":"):
                return int(line.split()[1])
    raise AssertionError(f"{name} is not in /proc/{pid}/{source}")


def rss_kb(pid):
    """Resident memory now. smaps_rollup is exact where /proc/PID/status may lag behind per-CPU counters."""
    return _kilobytes(pid, "Rss", "smaps_rollup")


def peak_rss_kb(pid):
    """The high-water mark of resident memory since the start or the last `reset_peak_rss`."""
    return _kilobytes(pid, "VmHWM", "status")


def reset_peak_rss(pid):
    """Set the high-water mark back to the present value (proc(5), clear_refs 5)."""
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")


def cpu_seconds(pid):
    """User and system time of all threads."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def open_descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def thread_count(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def drivers(pid):
    """The kernel's numbers of the threads that wait in epoll: those that drive a loop, of a server that has nothing to do.
    None where the kernel doesn't say what threads wait in."""
    found, told = set(), False
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/wchan") as wchan:
                place = wchan.read()
        except FileNotFoundError:
            continue
        told = told or place != "0"
        if place in ("ep_poll", "do_epoll_wait"):
            found.add(int(thread))
    return found if told else None


def descriptors_of(pid, path):
    """How many descriptors are open on the file `path`."""
    count = 0
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            count += os.readlink(f"/proc/{pid}/fd/{number}") == str(path)
        except FileNotFoundError:
            pass
    return count


def is_thread_of(pid, thread):
    return os.path.exists(f"/proc/{pid}/task/{thread}")
