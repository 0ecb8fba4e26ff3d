"""Requests that must be refused: RFC 9112's framing rules and the cases of public bug reports.

Each is sent whole and byte by byte. The answer must be one strict response that closes the connection, and
nothing that came behind the refused bytes may be taken for a request (smuggling).
"""

import contextlib
from random import Random

import pytest

from harness.wire import Closed, get, post, post_chunked

P = b"POST /target/p HTTP/1.1\r\nHost: a\r\n"
G = b"GET /target/g HTTP/1.1\r\nHost: a\r\n"
TC = b"Transfer-Encoding: chunked\r\n\r\n"
BODY = {400}
BEHIND = b"GET /target/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

HEADS = {
    # RFC 9112 6.1 and 6.3: an unknown coding, or one in which chunked is not the last, has no length.
    "te-unknown": (P + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "te-identity": (P + b"Transfer-Encoding: identity\r\n\r\n", {400, 501}),
    "te-gzip": (P + b"Transfer-Encoding: gzip\r\n\r\n", {400, 501}),
    "te-gzip-chunked": (P + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "te-chunked-gzip": (P + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", {400, 501}),
    "te-chunked-identity": (P + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", {400, 501}),
    "te-chunked-twice": (P + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "te-two-fields": (P + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "te-two-fields-unknown": (P + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n", {400, 501}),
    "te-empty": (P + b"Transfer-Encoding:\r\n\r\n", {400, 501}),
    "te-quoted": (P + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n', {400, 501}),
    "te-parameter": (P + b"Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n", {400, 501}),
    "te-vertical-tab": (P + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "te-http-1.0": (b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    # RFC 9112 6.3 and 11.2: both lengths is how requests are smuggled.
    "cl-and-te": (P + b"Content-Length: 5\r\n" + TC + b"0\r\n\r\n", {400}),
    "te-and-cl": (P + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", {400}),
    "cl-zero-and-te": (P + b"Content-Length: 0\r\n" + TC + b"0\r\n\r\n", {400}),
    # RFC 9112 6.3 (5): differing or malformed lengths.
    "cl-differ": (P + b"Content-Length: 1\r\nContent-Length: 5\r\n\r\nhello", {400}),
    "cl-list-differ": (P + b"Content-Length: 1, 5\r\n\r\nhello", {400}),
    "cl-negative": (P + b"Content-Length: -5\r\n\r\nhello", {400}),
    "cl-plus": (P + b"Content-Length: +5\r\n\r\nhello", {400}),
    "cl-words": (P + b"Content-Length: five\r\n\r\nhello", {400}),
    "cl-hex": (P + b"Content-Length: 0x5\r\n\r\nhello", {400}),
    "cl-underscore": (P + b"Content-Length: 1_0\r\n\r\nhello", {400}),
    "cl-fraction": (P + b"Content-Length: 5.0\r\n\r\nhello", {400}),
    "cl-inner-space": (P + b"Content-Length: 5 5\r\n\r\nhello", {400}),
    "cl-empty": (P + b"Content-Length:\r\n\r\nhello", {400}),
    "cl-overflow": (P + b"Content-Length: 18446744073709551621\r\n\r\nhello", {400, 413}),
    "cl-forty-digits": (P + b"Content-Length: " + b"9" * 40 + b"\r\n\r\nhello", {400, 413}),
    "cl-arabic-digit": (P + "Content-Length: ٥\r\n\r\nhello".encode(), {400}),
    # RFC 9112 5.1: no whitespace between a field's name and the colon.
    "colon-space": (P + b"Content-Length : 5\r\n\r\nhello", {400}),
    "colon-tab": (P + b"Content-Length\t: 5\r\n\r\nhello", {400}),
    "te-colon-space": (P + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", {400}),
    # RFC 9112 5.2: obs-fold; 2.2: whitespace before the first field.
    "fold-space": (G + b"X-A: 1\r\n 2\r\n\r\n", {400}),
    "fold-tab": (G + b"X-A: 1\r\n\t2\r\n\r\n", {400}),
    "fold-first": (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", {400}),
    "fold-te": (P + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", {400}),
    # RFC 9110 5.5: CR, LF and NUL in values; other controls are refused with them.
    "value-bare-cr": (G + b"X: a\rb\r\n\r\n", {400}),
    "value-nul": (G + b"X: a\0b\r\n\r\n", {400}),
    "value-escape": (G + b"X: a\x1bb\r\n\r\n", {400}),
    "value-delete": (G + b"X: a\x7fb\r\n\r\n", {400}),
    "value-cr-end": (G + b"X: a\r\r\n\r\n", {400}),
    # RFC 9112 2.2 lets a server take a bare LF for a line end; taking it differently from a proxy is a hole.
    "lf-request-line": (b"GET / HTTP/1.1\nHost: a\r\n\r\n", {400}),
    "lf-field": (b"GET / HTTP/1.1\r\nHost: a\nX-A: b\r\n\r\n", {400}),
    "lf-end": (b"GET / HTTP/1.1\r\nHost: a\r\n\n", {400}),
    "lf-everywhere": (b"GET / HTTP/1.1\nHost: a\n\n", {400}),
    # RFC 9110 5.1: a field name is a token.
    "name-empty": (G + b": a\r\n\r\n", {400}),
    "name-space": (G + b"X A: b\r\n\r\n", {400}),
    "name-missing-colon": (G + b"X-A\r\n\r\n", {400}),
    "name-nul": (G + b"X\0A: b\r\n\r\n", {400}),
    "name-brackets": (G + b"X[A]: b\r\n\r\n", {400}),
    "name-slash": (G + b"X/A: b\r\n\r\n", {400}),
    "name-utf-8": (G + b"X-\xc3\xa9: b\r\n\r\n", {400}),
    "name-del": (G + b"X\x7f: b\r\n\r\n", {400}),
    # RFC 9112 3.2: one Host, and a valid one.
    "host-empty": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", {400}),  # RFC 9110 4.2.1: no http URI has an empty host
    "host-missing": (b"GET / HTTP/1.1\r\n\r\n", {400}),
    "host-two": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", {400}),
    "host-two-equal": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", {400}),
    "host-space": (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", {400}),
    "host-slash": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", {400}),
    "host-userinfo": (b"GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", {400}),
    "host-list": (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", {400}),
    # RFC 9112 3: the request line.
    "line-http-0.9": (b"GET /\r\n\r\n", {400, 505}),
    "line-two-words": (b"GET HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-four-words": (b"GET / / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-double-space": (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-tab": (b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-trailing-space": (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", {400}),
    "line-leading-space": (b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-method-brackets": (b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-method-colon": (b"GET: / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-method-utf-8": (b"G\xc3\x89T / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-method-empty": (b" / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-lower-version": (b"GET / http/1.1\r\nHost: a\r\n\r\n", {400, 505}),
    "line-no-minor": (b"GET / HTTP/1\r\nHost: a\r\n\r\n", {400, 505}),
    "line-long-version": (b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", {400, 505}),
    "line-other-protocol": (b"GET / ICY/1.1\r\nHost: a\r\n\r\n", {400, 505}),
    "line-version-2": (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", {505}),
    "line-version-0.9": (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", {400, 505}),
    "line-version-3": (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", {400, 505}),
    "line-http-2-preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}),
    "line-tls-hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x17" * 64 + b"\r\n\r\n", {400}),
    "line-nul": (b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-cr": (b"GET /a\rb HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "line-control": (b"GET /a\x01b HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "target-relative": (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "target-asterisk-get": (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "target-empty-authority": (b"GET http:///p HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "target-authority-userinfo": (b"GET http://me@a/p HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "connect": (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", {400, 405, 501}),
    # RFC 9110 10.1.1
    "expect-unknown": (P + b"Content-Length: 5\r\nExpect: the-moon\r\n\r\nhello", {417}),
    "expect-also-unknown": (P + b"Content-Length: 5\r\nExpect: 100-continue, the-moon\r\n\r\nhello", {417}),
}

CHUNKED = {
    # RFC 9112 7.1: chunk-size is 1*HEXDIG; everything else differs between servers and is refused.
    "size-empty": (b"\r\nhello\r\n0\r\n\r\n", BODY),
    "size-words": (b"xyz\r\nhello\r\n0\r\n\r\n", BODY),
    "size-prefix": (b"0x5\r\nhello\r\n0\r\n\r\n", BODY),
    "size-plus": (b"+5\r\nhello\r\n0\r\n\r\n", BODY),
    "size-negative": (b"-5\r\nhello\r\n0\r\n\r\n", BODY),
    "size-underscore": (b"1_0\r\nhello\r\n0\r\n\r\n", BODY),
    "size-leading-space": (b" 5\r\nhello\r\n0\r\n\r\n", BODY),
    "size-overflow": (b"1" + b"0" * 16 + b"5\r\nhello\r\n0\r\n\r\n", {400, 413}),
    "size-64-bits": (b"FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", {400, 413}),
    "size-endless-zeros": (b"0" * 20_000 + b"5\r\nhello\r\n0\r\n\r\n", {400, 413, 431}),
    "size-lf": (b"5\nhello\r\n0\r\n\r\n", BODY),
    "size-cr": (b"5\rXhello\r\n0\r\n\r\n", BODY),
    "data-too-long": (b"5\r\nhello!\r\n0\r\n\r\n", BODY),
    "data-lf-end": (b"5\r\nhello\n0\r\n\r\n", BODY),
    "data-no-end": (b"5\r\nhello0\r\n\r\n", BODY),
    "last-lf": (b"5\r\nhello\r\n0\n\r\n", BODY),
    "extension-lf": (b"5;a=b\nhello\r\n0\r\n\r\n", BODY),
    "extension-cr": (b"5;a\rb\r\nhello\r\n0\r\n\r\n", BODY),
    "extension-nul": (b"5;a=\0\r\nhello\r\n0\r\n\r\n", BODY),
    "extension-endless": (b"5;a=" + b"b" * 100_000 + b"\r\nhello\r\n0\r\n\r\n", {400, 413, 431}),
    "trailer-lf": (b"5\r\nhello\r\n0\r\nX-T: 1\n\r\n", BODY),
    "trailer-no-colon": (b"5\r\nhello\r\n0\r\nX-T\r\n\r\n", BODY),
    "trailer-space": (b"5\r\nhello\r\n0\r\nX-T : 1\r\n\r\n", BODY),
    "trailer-endless": (b"5\r\nhello\r\n0\r\n" + b"X-T: 1\r\n" * 20_000 + b"\r\n", {400, 413, 431}),
    "trailer-one-endless": (b"5\r\nhello\r\n0\r\nX-T: " + b"t" * 200_000 + b"\r\n\r\n", {400, 413, 431}),
}

CASES = HEADS | {
    "chunked-" + name: (P + TC + body, statuses) for name, (body, statuses) in CHUNKED.items()
}


def _refused(server, data, statuses, step):
    with server.connect() as client:
        client.offer(data + BEHIND, step)
        response = client.read_response()
        assert response.status in statuses, response
        assert response.closes, "a refusal must announce that it closes"
        assert b"smuggled" not in response.body
        client.expect_end()


@pytest.mark.parametrize("name", CASES)
def test_refused_whole(shared, mode, name):
    data, statuses = CASES[name]
    _refused(shared(*mode, "probe:application"), data, statuses, None)


@pytest.mark.parametrize("name", CASES)
def test_refused_byte_by_byte(shared, any_mode, name):
    data, statuses = CASES[name]
    _refused(shared(*any_mode, "probe:application"), data, statuses, 1 if len(data) < 1000 else 997)


@pytest.mark.parametrize("name", CASES)
def test_refused_behind_a_good_request(shared, mode, name):
    """The answer to the good request in front must not get lost."""
    data, statuses = CASES[name]
    with shared(*mode, "probe:application").connect() as client:
        client.offer(get("/target/good") + data + BEHIND)
        assert client.read_response().body == b"GET /target/good?"
        response = client.read_response()
        assert response.status in statuses
        assert response.closes
        client.expect_end()


@pytest.mark.parametrize("seed", range(4))
def test_damaged_requests_get_sound_answers(shared, mode, seed):
    """Octets of good and bad requests changed, lost or doubled at random: whatever it makes of them, the server answers
    in well-formed HTTP, and goes on."""
    random = Random(seed)
    good = [get("/target/a"), post("/echo", b"hello"), post_chunked("/echo", b"hel", b"lo"), get("/target/b", "X-A: b")]
    sources = good + [data for data, _ in CASES.values() if len(data) < 1000]
    server = shared(*mode, "probe:application")
    for _ in range(500):
        data = bytearray(random.choice(sources) + random.choice(good))
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(data))
            match random.randrange(4):
                case 0:
                    data[at] = random.choice(b"\r\n\0 :;,\t0aZ\xff") if random.random() < 0.7 else random.randrange(256)
                case 1:
                    del data[at]
                case 2:
                    data[at:at] = data[at : at + random.randint(1, 20)]
                case 3:
                    del data[at : at + random.randint(1, 20)]
        with server.connect() as client:
            client.offer(bytes(data))
            with contextlib.suppress(OSError):
                client.half_close()
            try:
                while True:
                    response = client.read_response()
                    assert response.status in (200, 400, 413, 414, 417, 431, 501, 505)
                    if response.closes:
                        client.expect_end()
            except Closed:
                pass
            except AssertionError as fault:
                raise AssertionError(f"for {bytes(data)!r}") from fault
    assert server.fetch(get("/target/next")).body == b"GET /target/next?"


def test_refusals_reach_no_view(serve, any_mode):
    """None of them is handed to the application, whatever the answer says."""
    server = serve(*any_mode, "counting:application")
    for data, _ in CASES.values():
        with server.connect() as client:
            client.offer(data + BEHIND)
            client.drain()
    assert server.fetch(get("/")).body == b"0"


def test_the_log_of_a_refusal_is_one_escaped_line(serve, any_mode):
    """uvicorn CVE-2020-7694: what a client sends must not write lines or terminal codes into the log."""
    server = serve(*any_mode, "--access-log", "-", "probe:application")
    assert server.fetch(b"GET /%1b[31m%0aFAKE HTTP/1.1\r\nHost: a\r\nUser-Agent: evil\tX\r\n\r\n").status == 200
    assert server.fetch(b"GET /\x1b[31m\x0aFAKE HTTP/1.1\r\nHost: a\r\n\r\n").status == 400
    assert server.fetch(b'GET /"quoted HTTP/1.1\r\nHost: a\r\nReferer: a" "b\r\n\r\n').status in (200, 400)
    assert server.stop() == 0
    for text in (server.stdout.text(), server.stderr.text()):
        assert "\x1b" not in text
        assert not [line for line in text.splitlines() if line.startswith("FAKE")]
