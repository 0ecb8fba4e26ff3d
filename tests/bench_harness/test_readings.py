"""What is read from /proc and from load generators."""

import os
import subprocess
import sys
import time

import pytest
from m0bench import load, proc
from m0bench.suites import Case

STAT = "17 (a (b) c) S 5 17 9 0 -1 4194304 100 0 0 0 250 50 30 10 20 0 1 0 100 1 1 1 1 1 1 1 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0"


def test_stat_survives_parentheses_in_the_name():
    ppid, session, own, children = proc.parse_stat(STAT)
    assert (ppid, session) == (5, 9)
    assert own == pytest.approx(300 * proc.TICK)
    assert children == pytest.approx(40 * proc.TICK)


def test_tree_follows_parents_and_the_session_of_orphans():
    table = {1: (0, 1, 0, 0), 10: (1, 10, 0, 0), 11: (10, 10, 0, 0), 12: (11, 12, 0, 0), 13: (1, 10, 0, 0), 20: (1, 20, 0, 0)}
    assert proc.tree(10, table) == [10, 11, 12, 13]
    assert proc.tree(99, table) == []


def test_smaps_rollup():
    text = "555-7ff ---p 0 0:0 0 [rollup]\nRss: 1692 kB\nPss: 267 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty: 100 kB\n"
    assert proc.parse_smaps_rollup(text) == {"rss_kb": 1692, "pss_kb": 267, "private_kb": 104}


def test_cpu_and_memory_of_a_real_process_tree():
    """A parent that sleeps and a child that burns: the tree's CPU is the child's."""
    child = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint('burnt', flush=True)\ntime.sleep(60)"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout.readline() == "burnt\n"
        assert proc.cpu_seconds([process.pid]) >= 0.3
        assert len(proc.tree(process.pid)) == 2
        memory = proc.memory([process.pid])
        assert memory["processes"] == 2
        assert memory["rss_kb"] > memory["pss_kb"] > 0
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()


def test_wakeups_count_sleeps():
    code = "import time\nprint('up', flush=True)\nfor _ in range(100): time.sleep(0.005)\nprint('done', flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        before = proc.wakeups([process.pid])
        assert process.stdout.readline() == "done\n"
        assert proc.wakeups([process.pid]) - before >= 50
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 0100007F:1F90 00000000:0000 0A 0 0 0
   1: 0100007F:1F90 0100007F:9C40 06 0 0 0
   2: 0100007F:9C41 0100007F:1F90 06 0 0 0
   3: 0100007F:0050 0100007F:9C42 06 0 0 0
"""


def test_sockets_by_state_and_port():
    assert proc.parse_sockets(TCP, proc.TIME_WAIT) == 3
    assert proc.parse_sockets(TCP, proc.TIME_WAIT, 8080) == 2
    assert proc.parse_sockets(TCP, "0A", 8080) == 1


def test_drain_does_not_wait_for_a_clean_port():
    begun = time.monotonic()
    proc.drain_time_wait(1, patience=5)
    assert time.monotonic() - begun < 5


REPORT = (
    'Running 1s test\nM0BENCH {"requests":2000,"duration_us":2000000,"bytes":9,"connect":0,"read":1,"write":0,"status":0,"timeout":0,'
    '"p50_us":120,"p75_us":130,"p90_us":150,"p99_us":1500,"p999_us":1600,"max_us":2500,"mean_us":125.0}\n'
)


def test_report_becomes_a_row():
    measured = load.result(load.parse_report(REPORT), wall=2.5, cpu=1.0)
    assert measured["rps"] == 1000.0
    assert measured["p99_ms"] == 1.5
    assert measured["errors"]["read"] == 1
    assert measured["load_cores"] == 0.4


def test_no_report_is_a_failure():
    with pytest.raises(load.LoadFailure):
        load.parse_report("unable to connect to 127.0.0.1:1 Connection refused\n")


def test_h2load_log():
    durations, failed = load.parse_h2load_log(["1 200 30", "2 200 10", "3 503 20", "broken"])
    assert durations == [10, 20, 30]
    assert failed == 1


def test_h2load_counts():
    text = "requests: 100 total, 100 started, 100 done, 98 succeeded, 1 failed, 1 errored, 0 timeout\n"
    assert load.parse_h2load_counts(text) == (98, 2)


@pytest.mark.parametrize("count", [1, 4, 12, 24, 48])
def test_request_has_as_many_fields_as_asked_for(count):
    fields = load.request_fields(count)
    assert len(fields) + 1 == count  # Host is one
    assert len({name.lower() for name, _ in fields}) == len(fields)


@pytest.mark.parametrize("size", [0, 1, 16, 1000, 65536])
def test_body_has_its_size(size):
    assert len(load.request_body(size)) == size


def test_no_slow_request_is_started_for_none():
    """Once, `seq 1 0` counted two: the control carried the treatment's load and everything looked equal."""
    with load.SlowRequests(1, "/slow", 0) as slow:
        assert slow._process is None
    assert slow.finished == 0


def test_default_case_is_a_browser_request_on_sixteen_connections():
    case = Case("x")
    assert (case.fields, case.connections, case.slow, case.close) == (12, 16, 0, False)
