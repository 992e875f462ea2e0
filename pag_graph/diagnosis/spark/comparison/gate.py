"""Whether a run took too long beside others of the same work: for pipelines that are to stop then.

Definitions stand in `docs/spark.md`, "Two runs".
"""

from __future__ import annotations

import math
import re
import statistics
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer

__all__ = ["Measure", "Verdict", "judge", "measured", "share_of"]

_ENOUGH = 5
"""From so many baselines on their spread is known."""
_CERTAINTY, _OUTLYING = 0.975, 0.9999
"""Share of runs of the same work that are below the limit, and beyond which the slowest baseline is an outlier."""
_SHARE = re.compile(r"(\d{1,4}(?:\.\d{1,6})?)\s*%", re.ASCII)


class Measure(StrEnum):
    """What is compared."""

    SPAN = "span"
    ACTIVE = "active"
    CORE_HOURS = "core-hours"


class Verdict(NamedTuple):
    """What a run is, beside its baselines."""

    too_long: bool
    of: Measure
    new: int
    """In nanoseconds; of cores together for core-hours."""
    median: int
    limit: int
    """What the run must not be above."""
    baselines: int
    noise: str
    """How the noise of such runs is known: ``unknown``, ``slowest`` of them, or ``deviation``."""

    @property
    def text(self) -> str:
        """Spell it for people."""
        judgement = "too long" if self.too_long else "not too long"
        noise = {
            "unknown": "noise unknown: one baseline",
            "slowest": f"no slower than the slowest of {self.baselines}",
            "deviation": f"39 of 40 such runs would be below it, by the spread of {self.baselines}",
        }[self.noise]
        times = f"{self.new / 1e9:,.2f} s, median {self.median / 1e9:,.2f} s, limit {self.limit / 1e9:,.2f} s"
        return f"{self.of.value}: {judgement}: {times} ({noise})"

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**self._asdict(), "of": self.of.value}


def share_of(text: str) -> float:
    """Return a share that a person wrote as a percentage.

    Raises
    ------
    InvalidParameterError
        If it is none.

    Examples
    --------
    >>> share_of("10%")
    0.1
    """
    match = _SHARE.fullmatch(text.strip())
    if match is None:
        message = f"{text!r} is not a percentage."
        raise InvalidParameterError(message, "Write it as in --fail-over 10%.", {"fail_over": text})
    return float(match[1]) / 100


def measured(answer: SparkAnswer, of: Measure) -> int:
    """Return a measure of a run.

    Parameters
    ----------
    answer
        Of the run.
    of
        Which measure.

    Returns
    -------
    int
        Nanoseconds: of the application, of its time since the first job, or of all its cores for `Measure.CORE_HOURS`.
    """
    diagnosis = answer.diagnosis
    return {
        Measure.SPAN: diagnosis.span_ns,
        Measure.ACTIVE: diagnosis.active_ns,
        Measure.CORE_HOURS: sum(diagnosis.core_ns.values()),
    }[of]


def judge(new: int, baselines: Sequence[int], share: float, of: Measure = Measure.SPAN) -> Verdict:
    """Say whether a run took too long.

    Parameters
    ----------
    new
        Of the run.
    baselines
        Of others, at least one.
    share
        By how much it may exceed their median.
    of
        What is compared.

    Returns
    -------
    Verdict
        A run is too long above the median with the share on top; with two to four baselines it must also be slower than
        all of them, from five on above the limit below which 97.5 % of runs are that scatter as the baselines do
        (`_upper`). A slowest baseline that is beyond the limit of 99.99 % beside the others says nothing of the spread.
    """
    median = statistics.median(baselines)
    limit, noise = median * (1 + share), "unknown"
    if len(baselines) >= _ENOUGH:
        *others, slowest = sorted(baselines)
        alike = others if slowest > _upper(others, _OUTLYING) else baselines
        limit, noise = max(limit, _upper(alike, _CERTAINTY)), "deviation"
    elif len(baselines) > 1:
        limit, noise = max(limit, *baselines), "slowest"
    return Verdict(new > limit, of, new, int(median), int(limit), len(baselines), noise)


def _upper(times: Sequence[int], certainty: float) -> float:
    """Return the upper end of the prediction interval: below it, a further run of normal noise is this certainly.

    Mean and deviation of few runs are themselves uncertain; Student's t makes up for that.
    """
    count = len(times)
    return statistics.fmean(times) + _student(certainty, count - 1) * statistics.stdev(times) * math.sqrt(1 + 1 / count)


@cache
def _student(certainty: float, degrees: int) -> float:
    """Return the quantile of Student's t: the root of its distribution, which is a finite sum for whole degrees.

    Examples
    --------
    >>> round(_student(0.975, 4), 3), round(_student(0.999, 3), 3)
    (2.776, 10.215)
    """
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, degrees) < 2 * certainty - 1 else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


_HALVINGS = 50


def _below(angle: float, degrees: int) -> float:
    """Return the part of Student's t between -t and t, where the angle is that of tan = t / sqrt(degrees)."""
    square, odd = math.cos(angle) ** 2, degrees % 2
    term = math.sin(angle) * (math.cos(angle) if odd else 1.0)
    total = 0.0
    for step in range(1 + odd, degrees, 2):
        total += term
        term *= square * step / (step + 1)
    return (angle + total) * 2 / math.pi if odd else total
