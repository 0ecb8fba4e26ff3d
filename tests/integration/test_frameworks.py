"""Django and Flask served for real, asked by the clients that people use."""

import concurrent.futures
import hashlib
import http.client
import shutil
import subprocess

import httpx
import pytest
import requests

from harness import serving
from harness.wire import host_and_port

DJANGO = serving.REPOSITORY / "apps" / "django_wsgi"
DATA = bytes(n % 251 for n in range(1000)) * 1500  # beyond 512 KiB


@pytest.fixture
def flask(shared, mode):
    return shared(*mode, "flask_app:app")


@pytest.fixture
def session():
    with requests.Session() as session:
        session.trust_env = False  # no proxy of the machine
        yield session


def test_flask_basics(flask, session):
    assert session.get(flask.url + "/").text == "hello from Flask"
    assert session.head(flask.url + "/").headers["Content-Length"] == "16"
    answer = session.get(flask.url + "/greet/J%C3%B6rg%20%2B", params={"q": ["a b", "ü"]}).json()
    assert (answer["name"], answer["q"]) == ("Jörg +", ["a b", "ü"])
    assert session.get(flask.url + "/nowhere").status_code == 404
    assert session.post(flask.url + "/").status_code == 405
    assert session.options(flask.url + "/").headers["Allow"]
    assert session.get(flask.url + "/empty").status_code == 204
    redirected = session.get(flask.url + "/redirect")
    assert (redirected.text, len(redirected.history)) == ("hello from Flask", 1)


def test_flask_forms_and_uploads(flask, session):
    answer = session.post(flask.url + "/form", data={"a": ["1", "ü"], "b": ""})
    assert answer.json() == {"a": ["1", "ü"], "b": [""]}
    assert session.post(flask.url + "/json", json={"a": [1, None, "ü"]}).json() == {"got": {"a": [1, None, "ü"]}}
    files = {"small": ("s.txt", b"small", "text/plain"), "large": ("l.bin", DATA, "application/x-large")}
    answer = session.post(flask.url + "/upload", files=files).json()
    assert answer["small"] == ["s.txt", "text/plain", hashlib.sha256(b"small").hexdigest()]
    assert answer["large"] == ["l.bin", "application/x-large", hashlib.sha256(DATA).hexdigest()]


def test_flask_chunked_upload(flask, session):
    """From a generator: no Content-Length. Frameworks that trust wsgi.input_terminated see the whole of it."""
    pieces = (DATA[at : at + 10_007] for at in range(0, len(DATA), 10_007))
    answer = session.put(flask.url + "/raw", data=pieces)
    assert answer.json()["sha256"] == hashlib.sha256(DATA).hexdigest()


def test_flask_streams(flask, session):
    lines = session.get(flask.url + "/stream", params={"n": 1000}, stream=True).iter_lines()
    assert [line.decode() for line in lines] == [f"{n} /stream" for n in range(1000)]


def test_flask_cookies_and_sessions(flask, session):
    assert session.get(flask.url + "/cookies").json() == {}
    assert session.get(flask.url + "/cookies").json() == {"first": "1", "second": "2; 3"}
    assert [session.get(flask.url + "/visits").text for _ in range(3)] == ["1", "2", "3"]


def test_flask_files(flask, session):
    whole = bytes(range(256)) * 2000
    answer = session.get(flask.url + "/file")
    assert answer.content == whole
    assert answer.headers["Content-Length"] == str(len(whole))
    part = session.get(flask.url + "/file", headers={"Range": "bytes=1000-300000"})
    assert (part.status_code, part.content) == (206, whole[1000:300_001])
    assert session.get(flask.url + "/file", headers={"If-None-Match": '"fixed"'}).status_code == 304
    assert session.get(flask.url + "/file-path").text.startswith('"""A Flask application')
    memory = session.get(flask.url + "/memory-file")
    assert memory.content == b"in memory"
    assert "filename*=UTF-8''sch%C3%B6n.txt" in memory.headers["Content-Disposition"]


def test_flask_errors_and_teardown(serve, mode, session):
    server = serve(*mode, "flask_app:app")
    assert session.get(server.url + "/error").status_code == 500
    assert server.stderr.wait_for("RuntimeError: a Flask view failed")
    for _ in range(9):
        assert session.get(server.url + "/").content
    assert session.get(server.url + "/torn-down").text == "10"


def test_flask_below_a_root(serve, any_mode, session):
    server = serve(*any_mode, "--root-path", "/site", "flask_app:app")
    for path in ("/site/greet/x", "/greet/x"):
        answer = session.get(server.url + path).json()
        assert (answer["url"], answer["root"]) == ("/site/greet/x", "/site")


def test_flask_many_at_once(flask):
    """Sessions of many threads, each with its own connection: no answer goes astray."""

    def visit(n):
        with requests.Session() as session:
            session.trust_env = False
            for round_ in range(10):
                answer = session.get(f"{flask.url}/greet/{n}-{round_}").json()
                assert answer["name"] == f"{n}-{round_}"
                assert session.get(flask.url + "/visits").text == str(round_ + 1)

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(visit, range(16)))


@pytest.fixture(scope="module")
def django_database(tmp_path_factory):
    return tmp_path_factory.mktemp("django") / "db.sqlite3"


@pytest.fixture
def django(shared, mode, django_database):
    env = tuple(sorted(serving.environment(DJANGO_DB=django_database, DJANGO_SETTINGS_MODULE=None).items()))
    return shared(*mode, "djangoproj.wsgi:application", app_dir=str(DJANGO), env=env)


def test_django_basics(django, session):
    assert session.get(django.url + "/").text == "Hello, World!"
    assert session.get(django.url + "/nowhere").status_code == 404
    assert session.get(django.url + "/page").headers["Content-Type"].startswith("text/html")
    assert session.get(django.url + "/static/djangoproj/page.css").status_code == 200
    assert session.get(django.url + "/stream", params={"n": 50, "size": 1000}).content == b"d" * 50_000
    assert session.get(django.url + "/slow", params={"ms": 1}).text.startswith("slept")


def test_django_model(django, session):
    made = session.post(django.url + "/notes/", json={"title": "ü", "body": "text"})
    assert made.status_code == 201
    location = django.url + made.headers["Location"]
    assert session.get(location).json()["title"] == "ü"
    assert session.post(django.url + "/notes/", data={"title": "form", "body": "b"}).status_code == 201
    assert session.post(django.url + "/notes/", data="{", headers={"Content-Type": "application/json"}).status_code == 400
    assert session.get(django.url + "/notes/").json()["count"] >= 2
    assert session.delete(location).status_code == 204
    assert session.get(location).status_code == 404


def test_django_sessions(django, session):
    assert [session.get(django.url + "/visits").json()["visits"] for _ in range(3)] == [1, 2, 3]


def test_django_uploads(django, session):
    files = {"small": ("s.txt", b"small"), "large": ("l.bin", DATA * 2)}
    answer = session.post(django.url + "/upload", files=files, data={"a": "1"}).json()
    assert answer["fields"] == {"a": "1"}
    assert answer["files"]["large"]["sha256"] == hashlib.sha256(DATA * 2).hexdigest()
    assert answer["files"]["small"]["size"] == 5


def test_django_chunked_post(django, session):
    """Django asks CONTENT_LENGTH only: without one for chunked bodies it would see nothing."""
    body = [b'{"title": "chunked", ', b'"body": "b"}']
    made = session.post(django.url + "/notes/", data=iter(body), headers={"Content-Type": "application/json"})
    assert (made.status_code, made.json()["title"]) == (201, "chunked")


def test_django_error(django, session):
    before = len(django.stderr.lines)
    assert session.get(django.url + "/error").status_code == 500
    assert django.stderr.wait_for("RuntimeError: an error in the view", after=before)


def test_django_many_at_once(django):
    """Database connections are per thread in Django: handlers keep theirs."""

    def visit(n):
        with requests.Session() as session:
            session.trust_env = False
            for round_ in range(5):
                made = session.post(django.url + "/notes/", json={"title": f"{n}-{round_}", "body": ""})
                assert made.status_code == 201
                assert session.get(django.url + made.headers["Location"]).json()["title"] == f"{n}-{round_}"

    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        list(threads.map(visit, range(6)))


def test_httpx(flask):
    with httpx.Client(trust_env=False) as client:
        for _ in range(5):
            assert client.get(flask.url + "/").text == "hello from Flask"
        assert client.put(flask.url + "/raw", content=(b"x" * 1000 for _ in range(10))).json()["length"] in (10_000, None)
        with client.stream("GET", flask.url + "/stream?n=100") as response:
            assert sum(1 for _ in response.iter_lines()) == 100


def test_http_client(flask):
    host, port = host_and_port(flask.address)
    connection = http.client.HTTPConnection(host, port, timeout=30)
    for n in range(10):
        connection.request("PUT", "/raw", body=iter([b"a" * n, b"b"]), headers={"Transfer-Encoding": "chunked"}, encode_chunked=True)
        assert connection.getresponse().read()
    connection.request("HEAD", "/file")
    response = connection.getresponse()
    assert (response.read(), response.getheader("Content-Length")) == (b"", "512000")
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"hello from Flask"
    connection.close()


@pytest.mark.parametrize(
    "options, body",
    [
        (["/"], b"hello from Flask"),
        (["--http1.0", "/"], b"hello from Flask"),
        (["--head", "/empty"], None),
        (["-F", "f=@-;filename=x", "/upload"], None),
        (["-T", "-", "/raw"], None),
        (["-H", "Expect: 100-continue", "-X", "PUT", "--data-binary", "@-", "/raw"], None),
        (["--http2", "/"], b"hello from Flask"),
        (["--compressed", "/stream?n=2"], b"0 /stream\n1 /stream\n"),
    ],
    ids=["plain", "1.0", "head", "form", "chunked", "expect", "h2c", "stream"],
)
def test_curl(flask, options, body):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl on PATH")
    *options, path = options
    done = subprocess.run(
        [curl, "--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "30", *options, flask.url + path],
        input=DATA,
        capture_output=True,
    )
    if done.returncode == 2 and b"--http2" in done.stderr or b"does not support" in done.stderr:
        pytest.skip("this curl has no HTTP/2")
    assert done.returncode == 0, done.stderr
    if body is not None:
        assert done.stdout == body
    elif "/raw" in path or "/upload" in path:
        assert hashlib.sha256(DATA).hexdigest().encode() in done.stdout
