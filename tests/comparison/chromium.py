"""A headless Chromium driven by its own protocol over two pipes: no port, no driver, no package."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")


class Page:
    """One page. What it complains of is kept in `complaints`."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out = into, out
        self._number = 0
        self._read = b""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self._ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """A command to this page, and its answer."""
        return self._ask(method, parameters, session=self._session)

    def resize(self, width: int, height: int) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def dark(self) -> None:
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def open(self, file: Path) -> None:
        self.ask("Page.navigate", url=file.resolve().as_uri())
        self.run("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")

    def run(self, script: str) -> Any:
        """The value of an expression, or what its promise brings."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as from a keyboard."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)

    def picture(self, file: Path, *, whole: bool = True) -> None:
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _ask(self, method: str, parameters: dict[str, Any], session: str | None = None) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]
            self._note(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            piece = os.read(self._out, 1 << 20)
            assert piece, "the browser has gone"
            self._read += piece
        first, _, self._read = self._read.partition(b"\0")
        told: dict[str, Any] = json.loads(first)
        return told

    def _note(self, told: dict[str, Any]) -> None:
        parameters = told.get("params", {})
        match told.get("method"):
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(parameters))
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case _:
                pass


@contextmanager
def browser() -> Iterator[Page]:
    """A browser of the test's own, gone afterwards."""
    assert PROGRAM is not None
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", f"--user-data-dir={profile}", "--remote-debugging-pipe",
        ]  # fmt: skip
        line = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$0" "$@"'
        process = subprocess.Popen(
            ["bash", "-c", line, PROGRAM, *flags], pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Page(ours_out, ours_in)
        finally:
            process.terminate()
            process.wait(20)
            os.close(ours_in)
            os.close(ours_out)
