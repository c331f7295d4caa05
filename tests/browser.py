"""A real Chromium without a screen, driven over its debugging pipe: pages that stay connected can be looked at, too."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)
PLACED = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Becomes a program that finds two pipes where Chromium expects them."""


class Page:
    """One page. What it logs as errors, and what it asks for over the network, is kept."""

    def __init__(self, send, receive, width, height, dark):
        self._out, self._in = send, receive
        self._number, self._rest = 0, b""
        self.errors, self.requests = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def call(self, method, **parameters):
        """Send a command, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def value(self, script):
        """Return what a script gives."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)["result"].get(
            "value"
        )

    def wait_for(self, script, seconds=20):
        """Wait until a script gives something true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.value(script):
                return found
            time.sleep(0.1)
        raise AssertionError(
            f"never true: {script}; errors: {self.errors}; body: {self.value('document.body.innerText')}"
        )

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _next(self):
        while b"\0" not in self._rest:
            read = os.read(self._in, 1 << 20)
            assert read, "the browser is gone"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(event["params"]["exceptionDetails"]["text"])
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.errors.append(event["params"]["entry"]["text"])


@contextmanager
def page(folder, width=1000, height=1400, dark=False):
    """Start a browser, give a page, and end it."""
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()

    process = subprocess.Popen(
        [sys.executable, "-c", PLACED, str(theirs_in), str(theirs_out), BROWSER, *FLAGS, f"--user-data-dir={folder}"],
        pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(ours_out, ours_in, width, height, dark)
    finally:
        process.kill()
        process.wait()
        os.close(ours_in)
        os.close(ours_out)
