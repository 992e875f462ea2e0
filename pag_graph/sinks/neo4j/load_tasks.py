"""How a task of an engine loads a group of epochs."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.builder.engine import silent
from pag_graph.sinks.neo4j.content import Reader, inside
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.events import EventSync
from pag_graph.sinks.neo4j.load_steps import write_summary
from pag_graph.sinks.neo4j.query import plain_errors
from pag_graph.sinks.neo4j.writer import Writer, patiently

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pag_graph.builder.build import Progress
    from pag_graph.graph.pinned import PinnedRun
    from pag_graph.graph.window import Window
    from pag_graph.neo4j_server.lease import Lease
    from pag_graph.sinks.neo4j.connection import Connection
    from pag_graph.sinks.neo4j.content import Content
    from pag_graph.sinks.neo4j.groups import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one task of an engine loads."""

    state: PinnedRun
    connection: Connection
    lease: Lease
    group: Group
    batch_rows: int
    patience_s: float
    lane: int
    others: tuple[tuple[Window, ...], ...]
    """Windows of all other tasks that load everything which lies in theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a task says of its epochs."""

    content: Content
    """Only what is short."""
    counts: Mapping[str, int]


def run_task(step: str, task: Task) -> Done:
    """Do one step of a task's load.

    Parameters
    ----------
    step
        ``nodes``: the events that lack, with the activities between those of one transaction. ``relationships``: all
        other activities, when all tasks have done the first step. ``summary``: segments and results, and the marks of
        critical paths, when all have done the second.
    task
        Its epochs, and the lane that it alone uses.

    Returns
    -------
    Done
        The same after each step.

    Raises
    ------
    Neo4jError
        If another load, or another attempt at this task, has taken over; if the server refuses, or has been away for
        longer than `Task.patience_s`.
    StoreError
        If a file of the store is missing or damaged.

    Notes
    -----
    Opens the store and reads the content anew, so that a step can be done by any process, and done again. An attempt
    has a name of its own: what an earlier one, which was given up but is not dead, sends later is refused.
    """
    run = task.state.open()
    reader = Reader(run)
    content = reader.read(task.group.windows, task.group.detail)
    lease = replace(task.lease, attempt=f"{step}-{os.getpid()}-{random.getrandbits(64):x}")
    others = [window for windows in task.others for window in windows]
    with task.connection.open() as driver, plain_errors(f"load run {reader.run_id}"):
        writer = Writer(driver, lease, lane=task.lane)

        def load() -> None:
            writer.claim()
            sync = EventSync(run, writer, content, task.batch_rows, others=others)
            unseen = Advance(silent, "", 0, 0)
            if step == "nodes":
                sync.write_nodes(unseen)
            elif step == "relationships":
                sync.write_rest(unseen)
            else:
                write_summary(writer, content, task.batch_rows, unseen)
                sync.mark_critical()

        patiently(load, task.patience_s, writer)
    counts = Counts()
    counts.add(content)
    return Done(content=content.small(), counts=counts.values)


class Counts:
    """Sums over contents: what lies in their own windows, so that nothing counts for two of them."""

    def __init__(self) -> None:
        self.values = {"events": 0, "relationships": 0, "segments": 0, "critical": 0}

    def add(self, content: Content) -> None:
        """Add what a content holds: events and relationships that end in its windows, segments that begin there."""
        epochs = [window.epoch for window in content.windows]
        ends = pl.col("start_ns") + pl.col("duration_ns")
        if content.islands:
            in_windows = inside_events = pl.col("epoch").is_in(epochs)
        else:
            in_windows, inside_events = inside(content.windows, ends), inside(content.windows, pl.col("t_ns"))
        activities = content.activities.filter(in_windows)
        segments = content.segments.filter(pl.col("round").is_in(epochs))
        critical = activities["critical"]
        if not content.detail.covers(Detail.CRITICAL):
            critical = content.released.filter(pl.col("target").is_in(segments["id"].implode()))["critical"]
        for name, rows in (
            ("events", content.events.filter(inside_events).height),
            ("relationships", activities.height),
            ("segments", segments.height),
            ("critical", int(critical.sum() or 0)),
        ):
            self.values[name] += rows


class Advance:
    """Counts rows as they are written, and reports them."""

    def __init__(self, progress: Progress, label: str, base: int, total: int) -> None:
        self.progress, self.label, self.done, self.total = progress, label, base, total

    def __call__(self, rows: int) -> None:
        """Report so many rows more."""
        self.done += rows
        self.progress(self.label, min(self.done, self.total), self.total)
