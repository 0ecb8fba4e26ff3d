"""Fails while it is imported."""


def _deep():
    raise ZeroDivisionError("broken at import")


_deep()
