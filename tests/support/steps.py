"""Followers that go on step by step, and logs that grow."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.testing.traces import SmallTrace


def until(trace: SmallTrace, rows: list[int]) -> SmallTrace:
    """Return the first rows of each worker: what of a log that goes on is there."""
    return replace(
        trace, complete=False, events=tuple(log[:count] for log, count in zip(trace.events, rows, strict=True))
    )


@st.composite
def portions_of_log(draw_: st.DrawFn, trace: SmallTrace) -> list[SmallTrace]:
    """Draw how a log grows: no worker's part of it gets shorter, and some are behind."""
    steps = draw_(st.integers(1, 4))
    shares = [sorted(draw_(st.lists(st.integers(0, 100), min_size=steps, max_size=steps))) for _ in trace.events]
    parts = [
        until(trace, [len(log) * share[step] // 100 for log, share in zip(trace.events, shares, strict=True)])
        for step in range(steps)
    ]
    return [*(part for part in parts if part.rows), trace]


class Steps(Event):
    """Does the next step whenever a follower has looked, and then asks it to stop."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        """Do the next step."""
        del timeout
        if self._steps:
            self._steps.pop(0)()
        else:
            self.set()
        return self.is_set()


def late_read(last: int, unit: int = 25_000_000) -> SmallTrace:
    """Return rounds of half a second, in which one of two messages of epoch 1 is read in epoch 5."""
    logs: list[list[str]] = [[], []]
    for e in range(last):
        t = {n: (20 * e + n) * unit for n in range(11)}
        extra = f" | {t[1]} send 5>1 #0 | {t[1]} send 5>1 #1" if e == 1 else ""
        read = f" | {t[7]} recv 5<0 #{0 if e == 1 else 1}" if e in {1, 5} else ""
        logs[0].append(f"{t[0]} start 1{extra} | {t[3]} send 3>1 #{e} | {t[4]} stop 1 | {t[5]} park | {t[8]} unpark")
        logs[0].append(f"{t[8]} recv 4<1 #{e} | {t[9]} end")
        logs[1].append(f"{t[0]} park | {t[3]} unpark | {t[4]} recv 3<0 #{e} | {t[5]} start 1{read}")
        logs[1].append(f"{t[7]} send 4>0 #{e} | {t[8]} stop 1 | {t[10]} end")
    return draw(*(" | ".join(log) for log in logs))
