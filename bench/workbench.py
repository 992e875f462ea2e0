"""The workbench: what its server needs for a first view, moves, and a slider, on a window of a million edges."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench import browser
from bench.analyses import triangles
from bench.harness import Bench, Figure, Session, polars_reads, status_bytes
from pag_graph.workbench import answers
from pag_graph.workbench.library import Library

if TYPE_CHECKING:
    from pathlib import Path

    from bench.harness import Yardstick
    from pag_graph.graph.run import Run

_PIXELS = 1_200
_MOVES = 1_000


def run(session: Session) -> None:
    """Make the measurements."""
    _, store = triangles(session)
    library = Library([store])
    (name,) = library.stores()
    run_of = library.open(name).pag.run
    edges = int(run_of.epochs["edges"].sum())
    stick = polars_reads(run_of.info.files("edges"), name="Polars reads all edges")
    session.measure(
        "first view of the whole run",
        lambda: answers.in_bytes(first_view(store, 0, run_of.end_ns)),
        against=stick,
        items=edges,
        unit="edges",
        target="under 1 s",
    )
    session.keep(_moves(library, name))
    if browser.lack():
        session.say(f"{browser.lack()} is missing: nothing is measured in a browser")
    else:
        _in_browser(session, store, f"store={name}", run_of, stick)
    window = run_of.slowest()
    chosen = {"epoch": window.epoch}
    snapshot = run_of.snapshot(window)
    whole_run = {"between": (0, run_of.end_ns)}
    for title, window_of, assumptions, items in (
        ("a slider: the slowest round replayed under all assumptions", chosen, "all", snapshot.edges.height),
        ("a slider: the whole run replayed under the usual assumptions", whole_run, "usual", edges),
        ("the same under the others, for the interval", whole_run, "others", edges),
    ):
        opened = library.open(name)
        opened.ask(window_of)
        session.measure(
            title,
            partial(answers.replays, opened, window_of, ["worker=0 factor=0.5"], assumptions),
            items=items,
            unit="edges",
            target="" if assumptions == "others" else "under 1 s",
        )


def _in_browser(session: Session, store: Path, named: str, run_of: Run, stick: Yardstick) -> None:
    """Measure what somebody sees."""
    runs, moves = (3, 40) if session.quick else (7, 300)
    whole_run = f"window?{named}&from=0&to={run_of.end_ns}"
    with browser.opened() as chromium:
        for rested in (True, False):
            session.keep(browser.first_paint(store, chromium, whole_run, stick, runs, rested=rested))
        served = browser.Served(store, chromium)
        try:
            served.open(whole_run)
            session.keep(browser.moves(served, moves))
            session.keep(browser.slider(served, f"what-if?{named}&epoch={run_of.slowest().epoch}", runs))
        finally:
            served.close()


def first_view(store: Path, begin_ns: int, end_ns: int) -> object:
    """Open a store and draw a part of it, with nothing kept from before."""
    library = Library([store])
    (name,) = library.stores()
    return library.open(name).lanes.draw(begin_ns, end_ns, _PIXELS)


def _moves(library: Library, name: str) -> Figure:
    """Move and zoom at random, as somebody does who looks around."""
    opened = library.open(name)
    end = opened.pag.run.end_ns
    generator = np.random.default_rng(1)
    middle, span = end / 2, float(end)
    seconds = []
    before = status_bytes("VmRSS") or 0
    for _ in range(_MOVES):
        span = float(np.clip(span * generator.choice([0.5, 0.7, 1, 1, 1.4, 2]), 1_000, end))
        middle = float(np.clip(middle + generator.normal() * span / 3, span / 2, end - span / 2))
        begin = int(middle - span / 2)
        started = time.perf_counter()
        view = begin, min(int(begin + span) + 1, end)
        answers.in_bytes(opened.lanes.draw(*view, _PIXELS))
        answers.in_bytes(answers.path(opened, {"between": (0, end)}, view, _PIXELS))
        seconds.append(time.perf_counter() - started)
    grown = round(((status_bytes("VmRSS") or 0) - before) / 2**20)
    return browser.of_moves(f"{_MOVES:,} random moves and zooms", seconds, {"memory after, above before [MiB]": grown})


BENCH = Bench(
    name="workbench",
    title="The workbench",
    run=run,
    about=(
        "The first rows are the time that the server of `pag serve` needs for what a browser asks, on a run of"
        " 2.1 M events. If there is a Chromium, the rows `browser` are what a user sees: the time from the"
        " address, or from the input, to the end of the frame that shows the answer. Processor time is that of the"
        " page's own thread, and of the server."
    ),
)
