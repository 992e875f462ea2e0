"""What Spark's timers of plan nodes mean: one table for all that reads them.

Four meanings. *Exclusive*: the time that a node itself took. *Inclusive*: it runs on while the node pulls its input, so
what is timed below it is in it. *Lifetime*: from a thing's construction to its exhaustion, whoever worked meanwhile.
*Concurrent*: of requests that are under way at the same time. Only the first two say how long a node took.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["TIMERS", "UNITS", "Meaning"]

UNITS = {"timing": 1_000_000, "nsTiming": 1}
"""Nanoseconds of what a metric of a kind counts."""


class Meaning(StrEnum):
    """What a timer measures."""

    EXCLUSIVE = "exclusive"
    INCLUSIVE = "inclusive"
    LIFETIME = "lifetime"
    CONCURRENT = "concurrent"


_EXCLUSIVE, _INCLUSIVE = Meaning.EXCLUSIVE, Meaning.INCLUSIVE
_LIFETIME, _CONCURRENT = Meaning.LIFETIME, Meaning.CONCURRENT

TIMERS: dict[str, Meaning] = {
    "scan time": _EXCLUSIVE,
    "sort time": _EXCLUSIVE,
    "fetch wait time": _EXCLUSIVE,
    "shuffle write time": _EXCLUSIVE,
    "task commit time": _EXCLUSIVE,
    "exclusive time": _EXCLUSIVE,
    "time to execute Python code": _EXCLUSIVE,
    "time in aggregation build": _INCLUSIVE,
    "time to build hash map": _INCLUSIVE,
    "cumulative time": _INCLUSIVE,
    # From a worker's start to its end, the JVM's waiting for rows included; a worker that is used again counts the time
    # since its last task as one of initialising.
    "time to run Python workers": _LIFETIME,
    "time to start Python workers": _LIFETIME,
    "time to initialize Python workers": _LIFETIME,
    "duration": _LIFETIME,
    "remote reqs duration": _CONCURRENT,
    "remote merged reqs duration": _CONCURRENT,
    "gcs api time": _CONCURRENT,
    "gcs backoff time": _CONCURRENT,
}
"""Timers of Spark and its kin by the name of the metric."""
