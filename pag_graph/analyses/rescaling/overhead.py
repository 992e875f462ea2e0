"""What it costs a program to be able to rescale, while nobody joins or leaves (Selvatici 2019, 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.analyses.repetitions import ENOUGH, compared, enough
from pag_graph.analyses.reports import Report
from pag_graph.analyses.rescaling.data import records_of
from pag_graph.analyses.view import View
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import COUNTED_TYPES, WARM_UP_ROUNDS, EpochRole
from pag_graph.model.rescaling_tables import RESCALE_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.graph.run import Run

_ROUND = "round"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead(Report):
    """Two lists of runs, compared."""

    table: pa.Table
    """Rows of `RESCALE_OVERHEAD`."""
    runs: tuple[int, int]
    """How many there are of each."""
    rounds: int
    """Rounds that all have, without the first three."""

    def summary(self) -> dict[str, Any]:
        """Return what holds for all rows, as plain values."""
        return {"base_runs": self.runs[0], "fork_runs": self.runs[1], "rounds": self.rounds}

    def headline(self) -> str:
        """Return what a person reads before the rows."""
        row = self.table.to_pylist()[0]
        text = f"{self.runs[0]} and {self.runs[1]} runs, {self.rounds} rounds that all have:"
        text += f" a round takes {row['ratio_low']:.3f} to {row['ratio_high']:.3f} times as long ({row['decision']})."
        if not enough(*self.runs):
            text += f"\nFewer than {ENOUGH} runs a side, so one program would differ from itself: nothing is decided."
        return text


def overhead(base: Sequence[Run], fork: Sequence[Run]) -> Overhead:
    """Compare the rounds of two lists of runs.

    Parameters
    ----------
    base, fork
        Runs of a program without and with what is asked about.

    Returns
    -------
    Overhead
        Per measure the interval of ratios between any run of one side and any of the other. O(edges).

    Raises
    ------
    InvalidParameterError
        If there is no run on a side, or no round that all have.
    UnsupportedPlanError
        If the clocks of a run are not aligned.
    """
    if not base or not fork:
        message = "There is no run on one of the sides."
        raise InvalidParameterError(
            message,
            "pag rescale-overhead b1.pag b2.pag b3.pag b4.pag --fork f1.pag --fork f2.pag --fork f3.pag --fork f4.pag",
        )
    for run in (*base, *fork):
        run.require_aligned("Rounds are compared by aligned clocks")
    rounds = [set(_rounds(run)) for run in (*base, *fork)]
    common = sorted(set.intersection(*rounds))
    if not common:
        message = f"No round is in all of these runs, beside the first {WARM_UP_ROUNDS} of each."
        raise InvalidParameterError(message, "Compare runs of one program on the same input.")
    measured = [[_measures(run, common) for run in side] for side in (base, fork)]
    names = [name for name in measured[0][0] if all(name in measures for side in measured for measures in side)]
    rows = [_row(name, *([measures[name] for measures in side] for side in measured)) for name in names]
    return Overhead(table=pa.Table.from_pylist(rows, RESCALE_OVERHEAD), runs=(len(base), len(fork)), rounds=len(common))


def _rounds(run: Run) -> list[int]:
    rounds = run.epochs.filter(pl.col("role") == str(EpochRole.ROUND)).sort("end_ns", "epoch")["epoch"].to_list()
    return rounds[WARM_UP_ROUNDS:]


def _measures(run: Run, common: Sequence[int]) -> dict[str, float]:
    """Return the median of a run's rounds, and its time per record by type of work, where records are known."""
    windows = run.windows(common)
    # A round that no clock could measure took less than a nanosecond: ratios need something above zero.
    measures = {_ROUND: max(1.0, float(np.median([window.span_ns for window in windows])))}
    counts = records_of(run, common)
    records = 0 if None in counts else sum(count or 0 for count in counts)
    if not records:
        return measures
    spent: dict[str, int] = {}
    for stretch in run.stretches(windows):
        view = View(run=run, windows=stretch)
        sums = view.collect(view.local.select("type", "inside_ns")).group_by("type").agg(pl.col("inside_ns").sum())
        for kind, ns in sums.iter_rows():
            spent[str(kind)] = spent.get(str(kind), 0) + ns
    return measures | {
        f"{kind} per record": spent[kind] / records for kind in map(str, COUNTED_TYPES) if spent.get(kind)
    }


def _row(name: str, base: Sequence[float], fork: Sequence[float]) -> dict[str, Any]:
    ratio = compared(base, fork)
    decided = enough(len(base), len(fork))
    decision = "slower" if decided and ratio.low > 1 else "faster" if decided and ratio.high < 1 else "undecided"
    return {
        "what": name,
        "base": float(np.median(base)),
        "fork": float(np.median(fork)),
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "decision": decision,
    }
