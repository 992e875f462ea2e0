"""Planted causes that are harder to tell: hardly large enough to matter, or one beside another.

A program of `NEAR` has the cause of one of `plan_programs.py`, made small, before ten times as much work that nothing
is wrong with. One of `PAIRS` runs two programs one after the other: the cause is that of the first, and the other
one's stays, whatever the role. So an answer must name a cause that another one may hide, and its saving is measured
alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from plan_programs import (
    PROGRAMS,
    Program,
    broadcast_missed,
    exploding_join,
    healthy_work,
    python_udf,
    repeated_subplan,
    sleeping_udf,
    small_files_written,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plan_programs import Role
    from pyspark.sql import SparkSession

__all__ = ["NEAR", "PAIRS"]

_KNOWN = {program.name: program for program in PROGRAMS}
_HEALTHY_S = 6.0
"""Time of the work that nothing is wrong with; the causes beside it cost about a tenth of it."""
_SMALL: dict[str, Callable[[SparkSession, Role, Path], None]] = {
    "python-udf": partial(python_udf, rows=700_000),
    "sleeping-udf": partial(sleeping_udf, rows=110),
    "broadcast-missed": partial(broadcast_missed, rows=900_000),
    "exploding-join": partial(exploding_join, rows=1_000),
    "small-files-read": _KNOWN["small-files-read"].run,
    "small-files-written": partial(small_files_written, parts=12),
    "repeated-subplan": partial(repeated_subplan, milliseconds=1),
}
_TOGETHER = (
    ("python-udf", "small-files-written"),
    ("small-files-written", "python-udf"),
    ("broadcast-missed", "sleeping-udf"),
    ("small-files-read", "repeated-subplan"),
    ("repeated-subplan", "pandas-udf"),
    ("exploding-join", "small-files-read"),
)


def _near(name: str) -> Program:
    def run(spark: SparkSession, role: Role, folder: Path) -> None:
        _SMALL[name](spark, role, folder)
        healthy_work(spark, _HEALTHY_S)

    return replace(_KNOWN[name], name=f"near-{name}", run=run)


def _pair(first: Program, second: Program) -> Program:
    def run(spark: SparkSession, role: Role, folder: Path) -> None:
        first.run(spark, role, folder)
        second.run(spark, "planted", folder)

    def prepare(folder: Path) -> None:
        for program in (first, second):
            if program.prepare is not None:
                program.prepare(folder)

    settings = {**second.settings, **first.settings}
    return replace(first, name=f"{first.name}+{second.name}", run=run, prepare=prepare, settings=settings)


NEAR = tuple(_near(name) for name in _SMALL)
"""Causes that cost a tenth of what the program does besides."""
PAIRS = tuple(_pair(_KNOWN[first], _KNOWN[second]) for first, second in _TOGETHER)
"""The cause of one program beside that of another."""
