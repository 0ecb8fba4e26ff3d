"""apps/sse in a real browser: headless Chromium, where there is one, over its DevTools protocol."""

import contextlib
import itertools
import json
import re
import shutil
import subprocess
import urllib.request

import pytest
import websockets.sync.client
from asking import wait_for
from harness.serving import REPOSITORY

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")


class Page:
    """One tab."""

    def __init__(self, address, url):
        request = urllib.request.Request(f"http://{address}/json/new?{url}", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            target = json.load(answer)["webSocketDebuggerUrl"]
        self._closing = contextlib.ExitStack()
        self._socket = self._closing.enter_context(websockets.sync.client.connect(target, max_size=None))
        self._numbers = itertools.count(1)

    def evaluate(self, expression):
        number = next(self._numbers)
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        self._socket.send(json.dumps({"id": number, "method": "Runtime.evaluate", "params": parameters}))
        while (answer := json.loads(self._socket.recv(timeout=30))).get("id") != number:
            pass
        return answer["result"]["result"].get("value")

    def text(self, selector):
        return self.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")

    def close(self):
        self._closing.close()


@pytest.fixture
def browser(tmp_path):
    process = subprocess.Popen(
        [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            # Nothing of its own is to be fetched.
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-quic",
            "--remote-debugging-port=0",
            "--remote-allow-origins=*",
            f"--user-data-dir={tmp_path}",
            "about:blank",
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    pages = []
    for line in process.stderr:
        if found := re.search(r"DevTools listening on ws://([^/]+)/", line):
            break
    else:
        pytest.skip("Chromium does not start here")

    def open_page(url):
        pages.append(Page(found[1], url))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()
    process.terminate()
    process.wait(30)
    process.stderr.close()


def test_every_page_sees_every_click(shared, one_thread, browser):
    server = shared("app:app", *one_thread, app_dir=REPOSITORY / "apps" / "sse")
    first, second = browser(server.url + "/"), browser(server.url + "/")
    wait_for(lambda: first.text("#count").isdigit() and second.text("#count").isdigit(), "the first event")
    before = int(first.text("#count"))
    wait_for(lambda: "2 here" in first.text("#present"), "the other page")
    first.evaluate("document.querySelector('#plus').click()")
    wait_for(lambda: second.text("#count") == str(before + 1), "the click on the other page")
    second.evaluate("const say = document.querySelector('#say'); say.value = '<b>hello</b>'; say.onchange({target: say})")
    wait_for(lambda: "<b>hello</b>" in first.text("#said"), "what was said")
    assert first.evaluate("document.querySelectorAll('#said b').length") == 0
