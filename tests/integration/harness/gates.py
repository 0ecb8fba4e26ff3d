"""Events between a view and its test, so that no test sleeps.

A view that calls `reporting.hold(path)` connects to the gate's Unix socket, says who it is and waits there
until the test lets it go: the test knows that the view runs, and decides when it ends. `reporting.report`
says something without waiting.
"""

import os
import select
import socket
import tempfile

from .wire import HANG


class Visit:
    """One view at the gate."""

    def __init__(self, sock, message):
        self._sock = sock
        self.message = message

    def release(self):
        try:
            self._sock.sendall(b"\n")
        except OSError:
            pass
        self._sock.close()


class Gate:
    def __init__(self):
        # The path must fit sun_path (108 bytes): not below pytest's deep tmp_path.
        self._directory = tempfile.TemporaryDirectory(prefix="m0")
        self.path = os.path.join(self._directory.name, "gate")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(1024)
        self._visits = []

    def next(self, timeout=HANG):
        """The next view that arrives."""
        self._listener.settimeout(timeout)
        sock, _ = self._listener.accept()
        sock.settimeout(HANG)
        message = b""
        while not message.endswith(b"\n"):
            data = sock.recv(4096)
            assert data, "a view left the gate without a word"
            message += data
        visit = Visit(sock, message[:-1].decode())
        self._visits.append(visit)
        return visit

    def next_message(self):
        return self.next().message

    def fileno(self):
        """For select and poll: readable while somebody waits."""
        return self._listener.fileno()

    def is_empty(self):
        """Nobody waits now."""
        return not select.select([self._listener], [], [], 0)[0]

    def close(self):
        self._listener.close()
        for visit in self._visits:
            visit.release()
        self._directory.cleanup()
