"""The views' side of harness.gates: say something to the test, and wait for it."""

import socket


def say(path, message):
    """Tell the test, which answers on the connection that this returns."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    sock.sendall(message.encode() + b"\n")
    return sock


def report(path, message):
    """Tell the test; don't wait."""
    say(path, message).close()


def hold(path, message):
    """Tell the test and wait until it lets this view go on (or has gone itself)."""
    with say(path, message) as sock:
        sock.recv(1)
