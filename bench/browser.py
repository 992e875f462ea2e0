"""The workbench as somebody sees it: `pag serve` in a process of its own, and a Chromium that opens, moves and slides.

Times go from an input, or from the address being opened, to the end of the frame that shows the answer to it. They grow
where others work on the machine too; processor time, of the page's thread and of the server, hardly does.
"""

from __future__ import annotations

import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.harness import Figure, Yardstick
from tests.support.chromium import Chromium, find_chromium

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_RESTS = 0.02
"""Processor seconds in half a second: what looking for commits takes at most."""
_SERVE = "import sys; from pag_graph.cli.app import main; sys.argv = ['pag', 'serve', *sys.argv[1:]]; main()"
_LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=\S+")
# Notes when an input came, and when the frame is done that shows the answer to it.
_WATCH = """
let input = 0;
let told = null;
for (const kind of ['wheel', 'keydown', 'input']) addEventListener(kind, (event) => { input = event.timeStamp; }, true);
addEventListener('pointermove', (event) => { if (event.buttons) input = event.timeStamp; }, true);
window.nextAnswer = () => new Promise((resolve, reject) => {
  told = resolve;
  setTimeout(() => reject(new Error('no answer was drawn')), 30000);
});
new MutationObserver(() => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => { told?.({ at: performance.now(), since: performance.now() - input }); };
  channel.port2.postMessage(null);
})).observe(document, { subtree: true, attributes: true, attributeFilter: ['data-drawn', 'data-span'] });
"""


def lack() -> str:
    """Say what is missing on this machine to measure in a browser, or nothing."""
    return "" if find_chromium() else "Chromium"


@contextmanager
def opened() -> Iterator[Chromium]:
    """Start a browser that notes when answers are on the screen."""
    program = find_chromium()
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="pag-bench-") as profile:
        browser = Chromium(program, Path(profile))
        try:
            browser.open_page()
            browser.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
            browser.call("Performance.enable", timeDomain="threadTicks")
            yield browser
        finally:
            browser.close()


class Served:
    """A process that serves a store, and a browser that has opened its link.

    Parameters
    ----------
    store
        What is served.
    browser
        As from `opened`.
    """

    def __init__(self, store: Path, browser: Chromium) -> None:
        self.browser = browser
        command = [sys.executable, "-c", _SERVE, str(store), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        printed = ""
        assert self.process.stdout
        while not (link := _LINK.search(printed)):
            line = self.process.stdout.readline()
            assert line, f"`pag serve` has ended: {printed}"
            printed += line
        self.origin = f"http://127.0.0.1:{link[1]}"
        browser.call("Page.navigate", url=link[0])
        browser.until("document.getElementById('main')?.dataset.page === 'runs'", "list of runs")

    def rest(self) -> None:
        """Wait until the server has loaded its code, and works on nothing."""
        before = -1.0
        while (now := self.used()[1]) - before > _RESTS:
            before = now
            time.sleep(0.5)

    def open(self, address: str) -> float:
        """Open an address in a document of its own; return the seconds until the frame that shows it is done."""
        self.browser.call("Page.navigate", url="about:blank")
        self.browser.call("Page.navigate", url=f"{self.origin}/#/{address}")
        return float(self.browser.evaluate("nextAnswer().then(({ at }) => at)")) / 1e3

    def after(self, act: Callable[[], object]) -> float:
        """Do something on the page; return the seconds from the input to the end of the frame that shows its answer."""
        self.browser.evaluate("window.awaited = nextAnswer(); null")
        act()
        return float(self.browser.evaluate("awaited.then(({ since }) => since)")) / 1e3

    def used(self) -> tuple[float, float]:
        """Return the processor seconds of the page's thread, and of the server, up to now."""
        metrics = self.browser.call("Performance.getMetrics")["metrics"]
        page = next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return page, sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the server."""
        self.browser.call("Page.navigate", url="about:blank")
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


def first_paint(store: Path, browser: Chromium, address: str, stick: Yardstick, runs: int, *, rested: bool) -> Figure:
    """Open a window in a server that was started anew for each run, in turn with the yardstick.

    Parameters
    ----------
    store, browser
        What is served to whom.
    address
        Of the window, behind ``#/``.
    stick
        Runs before each run.
    runs
        How many.
    rested
        Whether the server has loaded its code before, as while somebody looks at the list of runs, or just listens.
    """
    server_state = "the server has loaded its code" if rested else "the server has just begun to listen"
    figure = Figure(name=f"browser: first paint of the whole run, {server_state}", target="under 1 s" if rested else "")
    figure.yardstick = stick.name
    used = []
    for _ in range(runs):
        stick_start = time.perf_counter()
        stick.run()
        figure.yardstick_seconds.append(time.perf_counter() - stick_start)
        served = Served(store, browser)
        try:
            if rested:
                served.rest()
            before = served.used()
            figure.seconds.append(served.open(address))
            used.append(np.subtract(served.used(), before))
        finally:
            served.close()
    figure.values = _processor(np.median(used, axis=0))
    return figure


def _processor(seconds: Any) -> dict[str, Any]:
    """Return processor time of the page's thread, and of the server, as values of a figure."""
    page, server = (round(float(part) * 1e3, 1) for part in seconds)
    return {"page's thread [ms]": page, "server's processor [ms]": server}


def moves(served: Served, count: int) -> Figure:
    """Zoom by the wheel, drag, and press keys at random places, as somebody does who looks around."""
    browser, generator = served.browser, np.random.default_rng(1)
    box = browser.evaluate(
        "(({ left, top }) => ({ left, top }))(document.querySelector('#lanes').getBoundingClientRect())"
    )
    browser.evaluate("document.querySelector('#lanes').focus()")
    y = box["top"] + 40

    def wheel(delta: int) -> None:
        x = box["left"] + 200 + generator.random() * 900
        browser.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)

    def drag(sign: int) -> None:
        x = box["left"] + 600 + generator.random() * 100
        browser.drag((x, y), (x + sign * (50 + generator.random() * 150), y))

    # Each is undone by a later one: at the ends of the run there would be nothing to draw.
    turns = itertools.cycle(
        [
            partial(wheel, -120),
            partial(drag, 1),
            partial(browser.press, "ArrowRight", 39),
            partial(drag, -1),
            partial(browser.press, "ArrowLeft", 37),
            partial(wheel, 120),
        ]
    )

    def act() -> None:
        next(turns)()

    browser.until("document.querySelector('#why h2') !== null", "report")
    for _ in range(4):
        served.after(partial(browser.press, "+", 187))
    served.rest()
    before = served.used()
    seconds = [served.after(act) for _ in range(count)]
    values = _processor(np.subtract(served.used(), before) / count)
    name = f"browser: {count:,} random moves and zooms, from the input to the frame with its edges"
    return of_moves(name, seconds, values)


def of_moves(name: str, seconds: Sequence[float], values: Mapping[str, Any]) -> Figure:
    """Return the figure of many moves: the median, the 95th of a hundred and the slowest, and other values."""
    ordered = sorted(seconds)
    spread = {"p95 [ms]": ordered[int(0.95 * len(ordered))], "most [ms]": ordered[-1]}
    return Figure(
        name=name,
        seconds=[statistics.median(ordered)],
        target="p95 under 150 ms",
        values={**{title: round(seconds_taken * 1e3, 1) for title, seconds_taken in spread.items()}, **values},
    )


def slider(served: Served, address: str, runs: int) -> Figure:
    """Move the slider of a worker, and wait for the replay."""
    served.open(address)
    browser = served.browser
    browser.until("document.querySelector('#answer').dataset.interval", "interval")
    move = (
        "(() => {{ const slider = document.querySelector('[data-change=\"worker=0\"]'); slider.value = {factor};"
        " slider.dispatchEvent(new Event('input')); }})()"
    )
    seconds = []
    for factor in np.linspace(0.2, 0.9, runs):
        seconds.append(served.after(partial(browser.evaluate, move.format(factor=factor))))
        # The interval over all assumptions comes later, and is drawn as well.
        browser.until("document.querySelector('#answer').dataset.interval", "interval")
    return Figure(name="browser: a slider of the slowest round", seconds=seconds, target="under 1 s")
