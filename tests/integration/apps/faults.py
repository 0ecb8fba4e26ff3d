"""Views that fail, and wsgi.errors. The path names the view."""

import sys

_TEXT = [("Content-Type", "text/plain")]


def deep(n=0):
    return deep(n + 1)


def error(environ, start_response):
    raise RuntimeError("a plain error")


def chained(environ, start_response):
    try:
        raise KeyError("the cause")
    except KeyError as cause:
        raise RuntimeError("the effect") from cause


def after_start(environ, start_response):
    start_response("200 OK", _TEXT)
    raise RuntimeError("after start_response")


def system_exit(environ, start_response):
    raise SystemExit(7)


def sys_exit(environ, start_response):
    sys.exit("words at exit")


def keyboard_interrupt(environ, start_response):
    raise KeyboardInterrupt


def generator_exit(environ, start_response):
    raise GeneratorExit


def base_exception(environ, start_response):
    raise BaseException("of the base")


def recursion(environ, start_response):
    deep()


def memory(environ, start_response):
    raise MemoryError


class _Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text either")

    __repr__ = __str__


def unprintable(environ, start_response):
    raise _Unprintable


def surrogates(environ, start_response):
    raise RuntimeError("a lone \udc80 surrogate and \x1b[31m a colour\nand a line")


def wrong_arguments(environ):
    return [b"never"]


def errors(environ, start_response):
    log = environ["wsgi.errors"]
    log.write("written to wsgi.errors\n")
    log.writelines(["first of two\n", "second of two\n"])
    print("printed to wsgi.errors: \u20ac \U0001f600", file=log)
    log.flush()
    start_response("200 OK", _TEXT)
    return [b"logged"]


def errors_in_parts(environ, start_response):
    for part in ("one ", "line ", "in parts", "\n"):
        environ["wsgi.errors"].write(part)
    environ["wsgi.errors"].flush()
    start_response("200 OK", _TEXT)
    return [b"logged"]


def errors_of_bytes(environ, start_response):
    try:
        environ["wsgi.errors"].write(b"octets")
    except TypeError:
        start_response("200 OK", _TEXT)
        return [b"TypeError"]
    start_response("200 OK", _TEXT)
    return [b"accepted"]


def ok(environ, start_response):
    start_response("200 OK", _TEXT)
    return [b"ok"]


VIEWS = {
    "error": error,
    "chained": chained,
    "after-start": after_start,
    "system-exit": system_exit,
    "sys-exit": sys_exit,
    "keyboard-interrupt": keyboard_interrupt,
    "generator-exit": generator_exit,
    "base-exception": base_exception,
    "recursion": recursion,
    "memory": memory,
    "unprintable": unprintable,
    "surrogates": surrogates,
    "wrong-arguments": lambda environ, start_response: wrong_arguments(environ, start_response),
    "errors": errors,
    "errors-in-parts": errors_in_parts,
    "errors-of-bytes": errors_of_bytes,
    "ok": ok,
}


def application(environ, start_response):
    return VIEWS[environ["PATH_INFO"][1:]](environ, start_response)
