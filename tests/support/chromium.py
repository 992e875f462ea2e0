"""A real Chromium without a window, driven over its DevTools pipe: no driver, no other program."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import time
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003  (annotations are read)
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE_S = 90.0


class Chromium:
    """A page in a headless Chromium, driven over its DevTools pipe: JSON that ends with a zero byte."""

    def __init__(self, program: str, profile: Path) -> None:
        switches = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        switches += ["--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe"]
        switches += [f"--user-data-dir={profile}", "--window-size=1280,900", "--hide-scrollbars", "--lang=en"]
        commands_in, self._commands = os.pipe()
        answers, answers_out = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4. Copies that are out of the way come first,
        # in case one of the pipes has such a number itself.
        self._pid = os.posix_spawn(
            program,
            [program, *switches, "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, commands_in, 100),
                (os.POSIX_SPAWN_DUP2, answers_out, 101),
                (os.POSIX_SPAWN_DUP2, 100, 3),
                (os.POSIX_SPAWN_DUP2, 101, 4),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
        )
        os.close(commands_in)
        os.close(answers_out)
        self._answers = os.fdopen(answers, "rb")
        self._number = 0
        self._session: str | None = None
        self._buffer = b""
        self.problems: list[str] = []
        """What the console said is wrong, and addresses other than this machine's that were asked for."""
        self.refused: list[str] = []
        """What a page's own policy has kept it from asking for."""
        self._outside: dict[str, str] = {}

    def open_page(self) -> None:
        """Open a page of its own, and listen to what goes wrong on it."""
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.size(1280, 900)
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def size(self, width: int, height: int) -> None:
        """Give the page a screen of so many pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, facts = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(facts["exceptionDetails"]))
        elif method == "Log.entryAdded" and facts["entry"]["level"] == "error":
            self.problems.append(f"{facts['entry']['text']} {facts['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and facts["type"] == "error":
            self.problems.append(str(facts["args"]))
        elif method == "Network.requestWillBeSent":
            address = facts["request"]["url"]
            if not address.startswith(("http://127.0.0.1:", "http://localhost:", "file:", "data:", "about:", "blob:")):
                self.problems.append(f"asks for {address}")
                self._outside[facts["requestId"]] = self.problems[-1]
        elif method == "Network.loadingFailed" and facts.get("blockedReason") == "csp":
            self._refuse(facts["requestId"])

    def _refuse(self, request: str) -> None:
        """Count a request that the page's own policy has kept from leaving as none."""
        if (refused := self._outside.pop(request, None)) is not None:
            self.problems.remove(refused)
            self.refused.append(refused)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            received = self._answers.read1(65536)
            assert received, "Chromium has ended"
            self._buffer += received
        text, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(text))

    def evaluate(self, code: str) -> Any:
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, code: str, awaited: str) -> Any:
        """Wait until the code gives something true, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if value := self.evaluate(code):
                return value
            time.sleep(0.2)
        text = str(self.evaluate("document.body.innerText"))[:2000]
        pytest.fail(f"Browser shows no {awaited}; it shows:\n{text}")

    def click(self, x: float, y: float) -> None:
        """Click at a place of the page."""
        self.drag((x, y), (x, y))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the left button at one place and release it at another one."""
        button = {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=start[0], y=start[1])
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], **button)
        if start != end:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=end[0], y=end[1], button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], **button)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, *, control: bool = False, text: str = "") -> None:
        facts = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 2 if control else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **facts)
        self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Look into the frame of the page, which may have a process of its own, instead of at the page itself."""
        page = self._session
        deadline = time.monotonic() + PATIENCE_S
        frames: list[str] = []
        while not frames and time.monotonic() < deadline:
            targets = self.call("Target.getTargets")["targetInfos"]
            frames = [target["targetId"] for target in targets if target["type"] == "iframe"]
            time.sleep(0.1)
        self._session = self.call("Target.attachToTarget", targetId=frames[0], flatten=True)["sessionId"]
        try:
            for domain in ("Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            yield
        finally:
            self._session = page

    def counts(self, *names: str) -> list[int]:
        """Return how many nodes (``nodes``) or listeners (``jsEventListeners``) the page has, those in use only."""
        self.call("HeapProfiler.collectGarbage")
        counters = self.call("Memory.getDOMCounters")
        return [int(counters[name]) for name in names]

    def picture(self, file: Path) -> None:
        shot = self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._commands)
        self._answers.close()


def find_chromium() -> str | None:
    """Return the path of a Chromium of this machine, or None."""
    return os.environ.get("PAG_CHROMIUM") or next((place for name in NAMES if (place := shutil.which(name))), None)
