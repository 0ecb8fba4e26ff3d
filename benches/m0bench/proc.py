"""Readings from /proc: a process tree's CPU, memory and wake-ups, the machine's own CPU, sockets in TIME_WAIT.

Only reads. A process that ends between two readings is left out, but its CPU time is not lost: the kernel adds it
to its parent's, which is counted.
"""

import os
import time
from pathlib import Path

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
TIME_WAIT = "06"


def parse_stat(text):
    """(ppid, session, CPU seconds of the process, of its ended and awaited children) from /proc/PID/stat."""
    # The name stands in parentheses and may hold anything: fields count from behind the last one.
    fields = text[text.rindex(")") + 2 :].split()
    own = (int(fields[11]) + int(fields[12])) * TICK
    children = (int(fields[13]) + int(fields[14])) * TICK
    return int(fields[1]), int(fields[3]), own, children


def _stats():
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                table[int(name)] = parse_stat(Path(f"/proc/{name}/stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return table


def tree(root, table=None):
    """The process, its descendants, and whatever else lives in its session (workers whose parent has ended)."""
    table = _stats() if table is None else table
    found = {root} if root in table else set()
    grown = True
    while grown:
        new = {pid for pid, (ppid, session, *_) in table.items() if pid not in found and (ppid in found or session == root)}
        grown = bool(new)
        found |= new
    return sorted(found)


def cpu_seconds(roots):
    """CPU seconds used so far by the trees of these processes, ended children included."""
    table = _stats()
    pids = {pid for root in roots for pid in tree(root, table)}
    return sum(table[pid][2] + table[pid][3] for pid in pids)


def parse_smaps_rollup(text):
    """{"rss_kb": …, "pss_kb": …, "private_kb": …} from /proc/PID/smaps_rollup."""
    values = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        values[name] = int(rest.split()[0])
    return {
        "rss_kb": values["Rss"],
        "pss_kb": values["Pss"],
        "private_kb": values["Private_Clean"] + values["Private_Dirty"],
    }


def memory(roots):
    """Memory of the trees together. The sum of RSS counts shared pages once for each process, PSS once in all."""
    total = {"rss_kb": 0, "pss_kb": 0, "private_kb": 0, "processes": 0, "threads": 0}
    for pid in {pid for root in roots for pid in tree(root)}:
        try:
            part = parse_smaps_rollup(Path(f"/proc/{pid}/smaps_rollup").read_text())
            threads = len(os.listdir(f"/proc/{pid}/task"))
        except (FileNotFoundError, ProcessLookupError, KeyError):
            continue
        for name, value in part.items():
            total[name] += value
        total["processes"] += 1
        total["threads"] += threads
    return total


def wakeups(roots):
    """How often the threads of these trees have gone to sleep of their own will: each time is one wake-up."""
    total = 0
    for pid in {pid for root in roots for pid in tree(root)}:
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            try:
                text = status.read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            total += int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return total


def machine_busy():
    """CPU seconds that all processes of the machine have used, and those that the hypervisor took (steal)."""
    fields = [int(field) * TICK for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return user + nice + system + irq + softirq, steal


def parse_sockets(text, state, port=None):
    """How many sockets of a /proc/net/tcp table are in this state; with a port, only those that it is one end of."""
    count = 0
    for line in text.splitlines()[1:]:
        fields = line.split()
        ends = (int(fields[1].rpartition(":")[2], 16), int(fields[2].rpartition(":")[2], 16))
        count += fields[3] == state and (port is None or port in ends)
    return count


def time_wait(port=None):
    count = 0
    for name in ("tcp", "tcp6"):
        try:
            count += parse_sockets(Path(f"/proc/net/{name}").read_text(), TIME_WAIT, port)
        except FileNotFoundError:
            continue
    return count


def drain_time_wait(port, limit=1000, patience=70.0):
    """Waits until the server's port has few sockets in TIME_WAIT, and the machine room for many more.

    A client's port is taken only towards the address that it was used for, and every server has a port of its own: what an
    earlier server left behind costs this one no port. It does count against the kernel's table, which throws sockets
    out when it is full. The kernel keeps them for 60 s. Returns (seconds waited, sockets left on the port).
    """
    room = int(_read_number("/proc/sys/net/ipv4/tcp_max_tw_buckets", 65536)) // 2
    begun = time.monotonic()
    while ((left := time_wait(port)) > limit or time_wait() > room) and time.monotonic() - begun < patience:
        time.sleep(0.5)
    return time.monotonic() - begun, left


def _read_number(path, otherwise):
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return otherwise
