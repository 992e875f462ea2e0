"""Points: what happens at an instant on a lane of the driver, as rows in the making."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from pag_graph.sources.spark.schedule import Schedule

__all__ = [
    "BUSY",
    "EXECUTORS",
    "EXIT",
    "GOT",
    "IDLE",
    "IN_JOB",
    "JOB_END",
    "JOB_START",
    "LANES",
    "LAUNCH",
    "NOTE",
    "OFFERS",
    "RECEIVE",
    "RESULT",
    "SAME",
    "SEND",
    "SPAWN",
    "WAIT",
    "Places",
    "PointRows",
]

LAUNCH, RESULT, LANES, EXECUTORS, OFFERS = range(5)
"""Channels: task launched, task done, between driver lanes, executor came or went, core free for another lane's job."""

NOTE, JOB_START, JOB_END, SEND, RECEIVE, GOT, SPAWN, EXIT = range(8)
"""What happens at a point."""

SAME, IN_JOB, BUSY, WAIT, IDLE = range(-1, 4)
"""What a lane does from a point on; otherwise it goes on as before."""


class PointRows:
    """Points in the making: columns of lists."""

    names = ("lane", "stretch", "t", "rank", "kind", "peer", "channel", "number", "operator", "mode", "unit")

    def __init__(self) -> None:
        self.columns: dict[str, list[int]] = {name: [] for name in self.names}

    def add(
        self,
        lane: int,
        stretch: int,
        t: int,
        rank: int,
        kind: int,
        *,
        peer: int = -1,
        channel: int = -1,
        number: int = -1,
        operator: int = -1,
        mode: int = SAME,
        unit: int = -1,
    ) -> None:
        """Add a point; numbers that do not apply are -1.

        Parameters
        ----------
        lane, stretch
            Where: the lane of the driver, and the stretch of it (`Places.stretch`).
        t, rank
            When, in nanoseconds from the origin; of one instant points are in the order of their ranks.
        kind
            What happens: ``NOTE``, ``SEND``, ``RECEIVE`` and so on.
        peer, channel, number
            Of a message or a spawn: the other worker, the channel, and the message's number in it.
        operator
            What the lane works for.
        mode
            What the lane does from then on; ``SAME`` leaves it as it is.
        unit
            The job that ends, or the executor that came or went.
        """
        values = (lane, stretch, t, rank, kind, peer, channel, number, operator, mode, unit)
        for name, value in zip(self.names, values, strict=True):
            self.columns[name].append(value)

    def frame(self) -> pl.DataFrame:
        """Return one row per point."""
        return pl.DataFrame(self.columns, schema=dict.fromkeys(self.names, pl.Int64))


class Places:
    """Finds the stretch of a lane that an instant lies in.

    Parameters
    ----------
    schedule
        Its lanes and jobs; jobs of a lane never overlap.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._starts = [np.array([schedule.jobs[j].start_ns for j in lane.jobs]) for lane in schedule.lanes]
        self._ends = [np.array([schedule.jobs[j].end_ns for j in lane.jobs]) for lane in schedule.lanes]

    def stretch(self, lane: int, t: int) -> int:
        """Return the stretch of a lane that an instant lies in: 2k + 1 within the lane's job k, else 2k before it.

        Parameters
        ----------
        lane
            The lane, from 0.
        t
            The instant, in nanoseconds from the origin. That of a job's end is the job's own; where the next one begins
            then, it is still that of the first.

        Notes
        -----
        O(log n) in the lane's jobs.
        """
        before = int(np.searchsorted(self._ends[lane], t, side="left"))
        inside = before < len(self._starts[lane]) and self._starts[lane][before] <= t
        return 2 * before + (1 if inside else 0)
