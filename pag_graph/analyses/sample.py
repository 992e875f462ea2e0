"""What holds for all rounds, from some of them: for runs too large to be read whole.

Sources of the formulas: Cochran, Sampling Techniques (3rd ed., 1977), chapters 2 (means), 5 (strata) and 6 (ratios);
for percentiles David and Nagaraja, Order Statistics (3rd ed., 2003), section 7.1, with the hypergeometric distribution
of a finite population, and for strata Woodruff, Confidence intervals for medians and other position measures (1952).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.analyses.definition import Chart, RunAnalysis
from pag_graph.analyses.distributions import hypergeometric, student_quantile
from pag_graph.analyses.expressions import rounds, worker_label
from pag_graph.analyses.profile import ProfileParameters, divided
from pag_graph.analyses.reports import Report
from pag_graph.analyses.view import IS_LOCAL, WAITING, worker_of
from pag_graph.analyses.waits import last_sent
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.needs import Needs
from pag_graph.model.ranks import rank_of
from pag_graph.model.tables import SAMPLE

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.analyses.view import View
    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

    F64 = NDArray[np.float64]
    I64 = NDArray[np.int64]

_LEAST = 2
"""Rounds of a stratum that are looked at: one alone says nothing about how much rounds differ."""
_PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleParameters:
    """Parameters of `sample`."""

    fraction: Annotated[float, "Share of the rounds to look at, above 0 and at most 1."] = 0.1
    confidence: Annotated[float, "Share of samples whose interval holds the true value, between 0 and 1."] = 0.95
    strata: Annotated[int, "Draw from this many groups of rounds of similar length; 1 draws uniformly from all."] = 1
    seed: Annotated[int, "Seed of the drawing; another number draws other rounds."] = 0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises
        ------
        InvalidParameterError
            If a value is out of its range.
        """
        message = ""
        if not 0 < self.fraction <= 1:
            message = f"fraction is {self.fraction}, and must be over 0 and up to 1."
        elif not 0 < self.confidence < 1:
            message = f"confidence is {self.confidence}, and must be between 0 and 1."
        elif self.strata < 1 or self.seed < 0:
            message = (
                f"strata is {self.strata} and seed is {self.seed}; the one must be positive, the other not negative."
            )
        if message:
            raise InvalidParameterError(message, "sample(fraction=0.1, confidence=0.95)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Report):
    """Estimates for all rounds, and what they were made from."""

    table: pa.Table
    """Rows of `SAMPLE`."""
    sampled: tuple[int, ...]
    """Epochs that were looked at."""
    rounds: int
    """Rounds that there are."""
    confidence: float
    """Share of such samples whose intervals hold the value of all rounds."""

    def summary(self) -> dict[str, Any]:
        """Return everything but the rows as plain values, for programs."""
        return {"rounds": self.rounds, "sampled_rounds": len(self.sampled), "sampled_epochs": list(self.sampled)}

    def headline(self) -> str:
        """Return what a person reads before the rows."""
        return (
            f"{len(self.sampled):,} of {self.rounds:,} rounds were looked at. Of samples drawn like this,"
            f" {self.confidence:.4g} have intervals (low to high) that hold the value of all rounds."
        )


@dataclass(frozen=True, slots=True)
class _Design:
    """Which rounds were drawn: per round drawn its stratum, and per stratum how many there are."""

    stratum: I64
    sizes: I64

    @property
    def drawn(self) -> I64:
        return np.bincount(self.stratum, minlength=len(self.sizes))

    @property
    def weights(self) -> F64:
        """How many rounds each round drawn stands for."""
        return (self.sizes / self.drawn)[self.stratum]

    @property
    def freedom(self) -> int:
        return max(int(self.drawn.sum()) - len(self.sizes), 1)

    def mean(self, values: F64) -> tuple[float, float]:
        """Return the mean over all rounds, and the standard error of it (Cochran 2.15 and 5.13)."""
        total, variance = int(self.sizes.sum()), 0.0
        for number, (size, drawn) in enumerate(zip(self.sizes, self.drawn, strict=True)):
            if drawn < size:
                spread = float(np.var(values[self.stratum == number], ddof=1))
                variance += (size / total) ** 2 * (1 - drawn / size) * spread / drawn
        return float(self.weights @ values / total), float(np.sqrt(variance))

    def ratio(self, numerator: F64, denominator: F64) -> tuple[float, float]:
        """Return the ratio of two sums over all rounds, and the standard error of it (Cochran 6.13 and 6.48)."""
        total = float(self.weights @ denominator)
        if total == 0:
            return 0.0, 0.0
        value = float(self.weights @ numerator) / total
        _, error = self.mean(numerator - value * denominator)
        return value, error * int(self.sizes.sum()) / total


def chosen_rounds(run: Run, parameters: SampleParameters) -> list[Window]:
    """Draw the rounds to look at.

    Parameters
    ----------
    run
        Of any rule set with rounds.
    parameters
        How many, from what, and the seed.

    Returns
    -------
    list of Window
        In time order; at least two of every stratum, all of one that has no more. Only the table of epochs is read.
    """
    round_rows = rounds(run).with_columns(span=pl.col("end_ns") - pl.col("start_ns"))
    number = _strata(round_rows, parameters.strata)
    chance = np.random.default_rng(parameters.seed)
    places: list[int] = []
    for stratum in range(int(number.max()) + 1):
        members = np.flatnonzero(number == stratum)
        count = min(len(members), max(_LEAST, round(parameters.fraction * len(members))))
        places += chance.choice(members, count, replace=False).tolist()
    epochs = round_rows["epoch"].to_list()
    return [run.window(epoch=epochs[place]) for place in sorted(places)]


def _strata(round_rows: pl.DataFrame, count: int) -> I64:
    """Return per round its group of like length; no group is too small to be drawn from."""
    order = round_rows.select(pl.struct("span", "epoch").rank("ordinal") - 1).to_series().to_numpy().astype(np.int64)
    count = max(1, min(count, len(order) // _LEAST))
    return order * count // len(order)


def round_facts(view: View, parameters: SampleParameters) -> pl.DataFrame:
    """Return what rounds add to a sample.

    Parameters
    ----------
    view
        Of rounds of a run with aligned clocks.
    parameters
        Not used: what a round is does not depend on how it was drawn.

    Returns
    -------
    DataFrame
        One row per window, division and key of the critical path, and per window and pair of workers of which one
        waited for the other; `by`, `key` and `value_ns`. Only edges of the windows are read.
    """
    del parameters
    waits = view.collect(
        view.local.filter(nw.col("type") == WAITING, nw.col("inside_ns") > 0).select(
            "window", "dst", "worker", "inside_ns"
        )
    )
    # The message that ends a wait after the round is in files of other rounds.
    messages = last_sent(view.edges.filter(~IS_LOCAL), "window", "dst")
    enders = view.collect(messages.select("window", "dst", by=worker_of("src")))
    sender = worker_label(view.run, "by").fill_null("a later round")
    waited = (
        waits.join(enders, on=["window", "dst"], how="left")
        .select("window", key=pl.format("{} for {}", worker_label(view.run, "worker"), sender), value_ns="inside_ns")
        .group_by("window", "key")
        .agg(pl.col("value_ns").sum())
        .sort("window", "key")
    )
    path = divided(view, ProfileParameters(n=0)).select("window", "by", "key", value_ns="path_ns")
    return pl.concat([path, waited.select("window", pl.lit("wait").alias("by"), "key", "value_ns")])


def sample(run: Run, parameters: SampleParameters, *, parts: pa.Table) -> Sample:
    """Estimate from some rounds what the critical paths and waits of all rounds are made of.

    Parameters
    ----------
    run
        Of a run with aligned clocks.
    parameters
        How the rounds were drawn, and how sure the intervals are to be.
    parts
        Rows of `round_facts` of the rounds that `chosen_rounds` drew, with their `epoch`.

    Returns
    -------
    Sample
        Its `table` has rows of `SAMPLE`, one per estimate with the interval around it.

    Raises
    ------
    InvalidParameterError
        If a parameter is out of its range.

    Notes
    -----
    Rounds are drawn without replacement, with a seed. They are drawn uniformly, or from `strata` groups of rounds of
    similar length, in proportion to the groups' sizes and at least two of each. The table of epochs has the length and
    the waiting of all rounds. For values that are known from there, `exact` gives them beside the estimate.

    All intervals are for a finite population, so they have no width if all rounds were looked at:

    - means: Student's t (Cochran, Sampling Techniques, 1977, 2.15; strata 5.13);
    - shares of the path: ratio of sums, linearised (Cochran 6.13; strata 6.48), cut at 0 and 1;
    - percentiles: order statistics with the hypergeometric distribution, exact for every distribution (David and
      Nagaraja, Order Statistics, 2003, 7.1); with strata from the interval of the proportion (Woodruff 1952). An end
      is null if so few rounds cannot bound it.

    The first two are approximate. With fewer than about 30 rounds, or for what happens in few rounds (`rounds`), they
    contain the true value less often than they say. Only the files that hold the drawn rounds are read.
    """
    round_rows = rounds(run).with_columns(span=pl.col("end_ns") - pl.col("start_ns"))
    observations = pl.DataFrame(pl.from_arrow(parts))
    windows = chosen_rounds(run, parameters)
    epochs = [window.epoch for window in windows]
    number = _strata(round_rows, parameters.strata)
    place = {epoch: position for position, epoch in enumerate(round_rows["epoch"].to_list())}
    drawn = number[[place[epoch] for epoch in epochs]]
    design = _Design(drawn, np.bincount(number))
    chosen = pl.DataFrame({"epoch": epochs}, schema={"epoch": pl.Int64})
    drawn_rounds = chosen.join(round_rows, on="epoch", how="left", maintain_order="left")
    lengths, waiting = (_column(drawn_rounds, name) for name in ("span", "waiting_ns"))
    rows = [
        _mean("length", "mean", lengths, design, parameters.confidence, exact=round_rows["span"].mean()),
        *_percentiles(lengths, round_rows["span"].to_numpy(), design, parameters.confidence),
        _mean("waiting", "mean", waiting, design, parameters.confidence, exact=round_rows["waiting_ns"].mean()),
    ]
    for (division, key), members in sorted(observations.group_by("by", "key"), key=lambda item: str(item[0])):
        of_drawn = chosen.join(members, on="epoch", how="left", maintain_order="left")
        values = _column(of_drawn, "value_ns")
        if division == "wait":
            rows.append(_mean("wait", str(key), values, design, parameters.confidence, count=members.height))
        else:
            rows.append(_share(str(division), str(key), values, lengths, design, parameters.confidence, members.height))
    order = {"length": 0, "waiting": 1, "wait": 2, "type": 3, "operator": 4, "worker": 5, "pair": 6}
    rows.sort(key=lambda row: (order[row["by"]], 0 if row["by"] == "length" else -row["estimate"], row["key"]))
    empty = pl.DataFrame(pl.from_arrow(SAMPLE.empty_table()))
    return Sample(
        table=pl.DataFrame(rows, schema=empty.schema).to_arrow().cast(SAMPLE),
        sampled=tuple(int(epoch) for epoch in epochs if epoch is not None),
        rounds=round_rows.height,
        confidence=parameters.confidence,
    )


def _column(frame: pl.DataFrame, name: str) -> F64:
    return frame[name].fill_null(0).to_numpy().astype(np.float64)


def _row(
    division: str,
    key: str,
    unit: str,
    *,
    estimate: float,
    low: float | None,
    high: float | None,
    count: int,
    exact: Any,
) -> dict[str, Any]:
    return {
        "by": division,
        "key": key,
        "unit": unit,
        "estimate": estimate,
        "low": low,
        "high": high,
        "exact": exact,
        "rounds": count,
    }


def _t(design: _Design, confidence: float) -> float:
    return student_quantile((1 + confidence) / 2, design.freedom)


def _mean(
    division: str,
    key: str,
    values: F64,
    design: _Design,
    confidence: float,
    *,
    exact: Any = None,
    count: int | None = None,
) -> dict[str, Any]:
    mean, error = design.mean(values)
    margin = _t(design, confidence) * error
    count = len(values) if count is None else count
    # Times are not negative.
    low = max(mean - margin, 0.0)
    return _row(division, key, "ns", estimate=mean, low=low, high=mean + margin, count=count, exact=exact)


def _share(
    division: str, key: str, values: F64, lengths: F64, design: _Design, confidence: float, count: int
) -> dict[str, Any]:
    share, error = design.ratio(values, lengths)
    margin = _t(design, confidence) * error
    low, high = max(share - margin, 0.0), min(share + margin, 1.0)
    return _row(division, key, "share", estimate=share, low=low, high=high, count=count, exact=None)


def _percentiles(lengths: F64, population: I64, design: _Design, confidence: float) -> list[dict[str, Any]]:
    ordered = np.sort(population)
    rows = []
    for percent in _PERCENTILES:
        exact = float(ordered[rank_of(percent / 100, len(ordered)) - 1])
        if len(design.sizes) == 1:
            estimate, low, high = quantile_interval(lengths, len(population), percent, confidence)
        else:
            estimate, low, high = _woodruff(lengths, design, percent, confidence)
        rows.append(
            _row("length", f"p{percent}", "ns", estimate=estimate, low=low, high=high, count=len(lengths), exact=exact)
        )
    return rows


def quantile_interval(
    values: F64, population: int, percent: int, confidence: float
) -> tuple[float, float | None, float | None]:
    """Estimate a percentile of a finite population from values drawn without replacement.

    Parameters
    ----------
    values
        Drawn uniformly.
    population
        How many there are.
    percent
        From 1 to 100.
    confidence
        Share of samples whose interval holds the percentile; at least, for every distribution.

    Returns
    -------
    estimate, low, high
        Values of the sample; an end is None where the sample is too small to bound it.

    Notes
    -----
    With K the percentile's rank in the population, the count of values among its lowest K is hypergeometric. The lower
    end is the highest x(l) that exceeds the percentile with a chance of at most (1 - confidence)/2, the upper end the
    lowest x(u) that is below it with as small a chance. O(values).
    """
    ordered, drawn = np.sort(values), len(values)
    rank, tail = rank_of(percent / 100, population), (1 - confidence) / 2
    # x(l) is above the percentile if fewer than l values are among the lowest K; x(u) below it if u are among K - 1.
    chance_above = np.cumsum(hypergeometric(population, rank, drawn))[:-1]
    chance_below = np.cumsum(hypergeometric(population, rank - 1, drawn)[::-1])[::-1][1:]
    lows, highs = np.flatnonzero(chance_above <= tail), np.flatnonzero(chance_below <= tail)
    return (
        float(ordered[rank_of(percent / 100, drawn) - 1]),
        float(ordered[lows[-1]]) if len(lows) else None,
        float(ordered[highs[0]]) if len(highs) else None,
    )


def _woodruff(
    values: F64, design: _Design, percent: int, confidence: float
) -> tuple[float, float | None, float | None]:
    """Estimate a percentile from strata: the interval of the proportion, read off the distribution."""
    order = np.argsort(values, kind="stable")
    ordered, cumulated = values[order], np.cumsum(design.weights[order])
    cumulated /= cumulated[-1]

    def at(share: float) -> float | None:
        hits = np.flatnonzero(cumulated >= share - 1e-12)
        return float(ordered[hits[0]]) if len(hits) and share > 0 else None

    estimate = at(percent / 100)
    assert estimate is not None  # noqa: S101  (the whole distribution is below its end)
    _, error = design.mean((values <= estimate).astype(np.float64))
    margin = _t(design, confidence) * error
    return estimate, at(percent / 100 - margin), at(percent / 100 + margin)


ANALYSIS = RunAnalysis(
    name="sample",
    function=sample,
    part=round_facts,
    choose=chosen_rounds,
    parameters=SampleParameters,
    schema=SAMPLE,
    output="SAMPLE",
    needs=Needs.ALIGNED_CLOCKS,
    example="--fraction 0.1 --confidence 0.95 --seed 0",
    rows="estimates",
    chart=Chart(kind="bars", x=("key",), y=("estimate",), panel="by", interval=("low", "high"), unit="unit"),
)
