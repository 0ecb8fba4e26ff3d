"""wsgi.input read in every way that PEP 3333 names. The path names the way; the answer is the JSON of what came."""

import json


def _text(value):
    return value.decode("latin-1") if isinstance(value, bytes) else [_text(v) for v in value]


def read_all(input_):
    return [input_.read(), input_.read(), input_.read(5)]


def read_minus_one(input_):
    return [input_.read(-1), input_.read(-1)]


def read_none(input_):
    return [input_.read(None), input_.read(None)]


def read_pieces(input_):
    pieces = []
    while piece := input_.read(7):
        assert len(piece) <= 7
        pieces.append(piece)
    return [b"".join(pieces), input_.read(7)]


def read_more(input_):
    return [input_.read(1 << 30), input_.read(1 << 30)]


def read_nothing(input_):
    return [input_.read(0), input_.read()]


def lines(input_):
    found = []
    while line := input_.readline():
        found.append(line)
    return [found, input_.readline()]


def short_lines(input_):
    found = []
    while line := input_.readline(4):
        assert len(line) <= 4
        found.append(line)
    return [found, input_.readline(4)]


def readline_zero(input_):
    return [input_.readline(0), input_.readline(-1), input_.read()]


def all_lines(input_):
    return [input_.readlines(), input_.readlines()]


def hinted_lines(input_):
    first = input_.readlines(1)
    return [first[:1], first + input_.readlines()]


def iterated(input_):
    found = [line for line in input_]
    return [found, input_.read()]


def by_next(input_):
    iterator = iter(input_)
    return [next(iterator, b""), input_.read()]


def mixed(input_):
    return [input_.read(3), input_.readline(), next(iter(input_), b""), input_.read(2), input_.read()]


WAYS = {
    "read": read_all,
    "read-minus-one": read_minus_one,
    "read-none": read_none,
    "read-pieces": read_pieces,
    "read-more": read_more,
    "read-nothing": read_nothing,
    "lines": lines,
    "short-lines": short_lines,
    "readline-zero": readline_zero,
    "all-lines": all_lines,
    "hinted-lines": hinted_lines,
    "iterated": iterated,
    "by-next": by_next,
    "mixed": mixed,
}


def application(environ, start_response):
    found = WAYS[environ["PATH_INFO"][1:]](environ["wsgi.input"])
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(_text(found)).encode()]
