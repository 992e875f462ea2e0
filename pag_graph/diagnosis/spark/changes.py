"""What to change: a setting with its recorded and its proposed value, or a place in the program."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.sources.spark.settings import setting, shown

if TYPE_CHECKING:
    from pag_graph.sources.spark.log_tables import SparkLog

__all__ = ["Change", "bytes_of", "of_program", "of_setting", "share_of_memory", "size_of"]

_SIZE = re.compile(r"(\d{1,15})\s*([bkmgtp]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_SHARE = re.compile(r"0?\.\d{1,9}", re.ASCII)
_MEMORY_FRACTION, _USUAL_FRACTION = "spark.memory.fraction", 0.6
_POWERS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}

_IN_MEBIBYTES = frozenset(
    {"spark.driver.memory", "spark.executor.memory", "spark.executor.memoryOverhead", "spark.reducer.maxSizeInFlight"}
)
"""Settings whose bare numbers are MiB; those of all others are bytes."""


class Change(NamedTuple):
    """One thing to change."""

    what: str
    """Name of a setting, or what the program does."""
    recorded: str | None
    """How it was: the setting's value, or what the plan has; None where the log does not say."""
    source: str
    """Where that is from: ``query``, ``application``, ``default``, ``unknown``, or ``plan``."""
    proposed: str
    """How it should be."""
    place: str = ""
    """Where: the stage, and the plan node of a query."""

    @property
    def text(self) -> str:
        """Spell it for people."""
        before = "unknown" if self.recorded is None else self.recorded
        origin = f" ({self.source})" if self.source in {"query", "default"} else ""
        place = f", in {self.place}" if self.place else ""
        return f"{self.what}: {before}{origin} -> {self.proposed}{place}"

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dict(self._asdict())


def of_setting(log: SparkLog, name: str, proposed: str, *, query: int | None = None, place: str = "") -> Change:
    """Return the change of a setting, with the value that the log has of it.

    Parameters
    ----------
    log
        The log, for the value and where it is from.
    name
        Name of the setting, one of `SETTINGS`.
    proposed
        How it should be.
    query
        The query that has the setting for itself; the application's value counts if absent.
    place
        Where the change matters: stage and plan node.

    Returns
    -------
    Change
        Recorded is ``other`` for a value that is no number, size or switch: texts of users are not repeated.
    """
    value, source = setting(log, name, query)
    return Change(name, shown(value), source, proposed, place)


def of_program(what: str, recorded: str, proposed: str, place: str) -> Change:
    """Return a change of the program.

    Parameters
    ----------
    what
        What is to be done otherwise, such as ``the key``.
    recorded
        What the program does, by its plan.
    proposed
        What it should do instead.
    place
        Stage, plan node or call site; empty where it is of no single place.
    """
    return Change(what, recorded, "plan", proposed, place)


def bytes_of(name: str, value: str | None) -> int | None:
    """Return a value of a setting that is a size, in bytes.

    Parameters
    ----------
    name
        Name of the setting. A bare number is bytes or MiB, which differs from setting to setting.
    value
        As Spark's settings write it; None where the log has none.

    Returns
    -------
    int or None
        None for what is no size, such as a negative number.

    Examples
    --------
    >>> bytes_of("spark.executor.memory", "10m"), bytes_of("spark.executor.memory", "512")
    (10485760, 536870912)
    >>> bytes_of("spark.memory.offHeap.size", "512"), bytes_of("spark.sql.autoBroadcastJoinThreshold", "-1")
    (512, None)
    """
    match = _SIZE.fullmatch((value or "").strip())
    unit = "m" if name in _IN_MEBIBYTES else "b"
    return int(match[1]) << _POWERS[match[2].lower() or unit] if match else None


def size_of(log: SparkLog, name: str, query: int | None = None) -> int | None:
    """Return a setting that is a size, in bytes.

    Parameters
    ----------
    log
        As read.
    name
        One of `SETTINGS`.
    query
        The query whose setting counts before the application's; None for what is no query.

    Returns
    -------
    int or None
        Spark's default where the log has none; None where that is not known, or the value is no size.
    """
    return bytes_of(name, setting(log, name, query).value)


def share_of_memory(log: SparkLog, query: int | None = None) -> float:
    """Return the part of an executor's memory that execution and storage share, from 0 to 1.

    Parameters
    ----------
    log
        The log.
    query
        The query whose setting counts before the application's; None for what is no query.

    Returns
    -------
    float
        ``spark.memory.fraction``; Spark's own 0.6 where the log has none, or none that is written as a fraction below
        1.
    """
    fraction = setting(log, _MEMORY_FRACTION, query).value or ""
    return float(fraction) if _SHARE.fullmatch(fraction) else _USUAL_FRACTION
