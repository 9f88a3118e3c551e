"""A real browser, without a window: what a page looks like, says, loads and complains about.

Chromium speaks the DevTools protocol over two pipes: JSON, each message ended by a zero byte.
`PATH` is None where there is no browser; MQLOG_BROWSER names another one than Debian's.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

SECONDS: Final = 60
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
PATH: Final = os.environ.get("MQLOG_BROWSER") or next(filter(None, map(shutil.which, _NAMES)), None)
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-dev-shm-usage",
)


class Page:
    """A tab: what it loaded, what its console said, and commands to it."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._rest = write, read, b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._ask(f"{domain}.enable")

    def open(self, path: Path, *, scheme: str = "light", width: int = 1200) -> None:
        """Show the file in that colour scheme, in a window of that width."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setEmulatedMedia", media="", features=features)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        self._loaded = False
        self._ask("Page.navigate", url=path.as_uri())
        end = time.monotonic() + SECONDS
        while not self._loaded:
            self._take(end)

    def value(self, script: str) -> Any:
        """Return what the expression is in the page."""
        told = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def picture(self, target: Path, height: int | None = None) -> bytes:
        """Take a picture of the whole page, or of its upper part."""
        size = self.value("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": height or size[1], "scale": 1}
        told = self._ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        target.write_bytes(base64.b64decode(told["data"]))
        return target.read_bytes()

    def printed(self, target: Path) -> bytes:
        """Print the page as PDF."""
        told = self._ask("Page.printToPDF", preferCSSPageSize=True)
        target.write_bytes(base64.b64decode(told["data"]))
        return target.read_bytes()

    def names(self) -> list[tuple[str, str]]:
        """Return the role and the name of everything that a screen reader is told of."""
        nodes = self._ask("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"]
        ]

    def _ask(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            told = self._take(end)
            if told.get("id") == self._number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result

    def _take(self, end: float) -> dict[str, Any]:
        """Return the next message, and note what it is about."""
        while b"\0" not in self._rest:
            ready = select.select([self._read], [], [], max(end - time.monotonic(), 0))[0]
            assert ready, "the browser says nothing"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        parameters = told.get("params", {})
        match told.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters))
        return told


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Start the browser with an empty profile; end it afterwards."""
    assert PATH
    reads, write = _pipe()
    read, writes = _pipe()
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    ends = [(os.POSIX_SPAWN_DUP2, reads, 3), (os.POSIX_SPAWN_DUP2, writes, 4)]
    words = [PATH, *_FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    process = os.posix_spawn(PATH, words, os.environ, file_actions=[*nothing, *ends])
    ended = os.pidfd_open(process)
    os.close(reads)
    os.close(writes)
    try:
        yield Page(write, read)
    finally:
        os.kill(process, signal.SIGTERM)
        if not select.select([ended], [], [], SECONDS)[0]:
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        for fd in (ended, write, read):
            os.close(fd)


def _pipe() -> tuple[int, int]:
    """Return the ends of a pipe, neither of them the descriptors 3 and 4 of the protocol."""
    low = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in low]
    for fd in low:
        os.close(fd)
    return high[0], high[1]
