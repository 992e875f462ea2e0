"""How the critical path of a program changes with the number of its workers, over repetitions.

Definition: CPA (Sager 2016) 7.3 (time on the path per activity and operator, absolute and relative, for a growing
number of workers).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.analyses import profile
from pag_graph.analyses.expressions import is_recorded, operator_names, presence, share_of
from pag_graph.analyses.reports import Report
from pag_graph.analyses.result_tables import typed_table
from pag_graph.analyses.view import View, end_ns
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import EpochRole
from pag_graph.model.tables import SCALING
from pag_graph.model.units import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

TOTAL = "total"
WHOLE = "(whole path)"
_DIVISIONS: tuple[Literal["type", "operator"], ...] = ("type", "operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling(Report):
    """The paths of several runs of one program, by number of workers."""

    table: pa.Table
    """Rows of `SCALING`."""
    runs: tuple[dict[str, Any], ...]
    """Per run, by number of workers and then as given: ``store``, ``run_id``, ``workers`` (that were there at once, at
    most), ``mean_workers``, ``unrecorded`` (workers that are not counted, as nothing is recorded of them) and
    ``path_ns``, all of the rounds that are compared."""
    rounds: tuple[int, ...]
    """Epochs of the rounds that all runs have, which are compared."""
    left_out: int
    """Rounds that not all runs have, counted once."""
    cores: int | None
    """How many cores the runs had, if somebody said so."""
    strange: tuple[str, ...]
    """Operators that not all runs have, as ``name (address)``."""

    def summary(self) -> dict[str, Any]:
        """Return everything but the rows as plain values, for programs."""
        return {
            "runs": list(self.runs),
            "rounds": len(self.rounds),
            "first_round": self.rounds[0],
            "last_round": self.rounds[-1],
            "rounds_left_out": self.left_out,
            "cores": self.cores,
            "operators_not_in_all": list(self.strange),
        }

    def headline(self) -> str:
        """Return what a person reads before the rows."""
        repeated = Counter(run["workers"] for run in self.runs)
        repeats = ", ".join(f"{count} with {_workers(workers)}" for workers, count in sorted(repeated.items()))
        rounds = _counted(len(self.rounds), "round")
        left_out = f" ({self.left_out} rounds that only some have are left out)" if self.left_out else ""
        whole_paths = [row for row in self.table.to_pylist() if row["by"] == TOTAL]
        lines = [
            f"{len(self.runs)} runs: {repeats}. Compared: {rounds} that all have{left_out}.",
            *(_line(row, whole_paths[0]) for row in whole_paths),
        ]
        too_many = sorted(workers for workers in repeated if self.cores is not None and workers > self.cores)
        if too_many:
            number = ", ".join(map(str, too_many))
            lines.append(
                f"More workers ({number}) than cores ({self.cores}): their threads take turns on them, so this says"
                " nothing of how the program scales."
            )
        if self.cores is None:
            lines.append("No trace says how many cores there were: give --cores, so that it is said who lacked one.")
        if unrecorded := [f"{run['unrecorded']} of {run['store']}" for run in self.runs if run["unrecorded"]]:
            lines.append(f"Workers of which nothing is recorded in these rounds do not count: {', '.join(unrecorded)}.")
        if self.strange:
            lines.append(f"Not the same program? Operators that not all runs have: {', '.join(self.strange)}.")
        return "\n".join(lines)


def _line(row: dict[str, Any], fewest: dict[str, Any]) -> str:
    spread = "" if row["deviation_ns"] is None else f" +- {duration(round(row['deviation_ns']))}"
    mean = "" if row["mean_workers"] == row["workers"] else f" ({row['mean_workers']:.3g} on average)"
    text = f"{_workers(row['workers'])}{mean}: {duration(round(row['mean_ns']))}{spread}"
    if row is fewest or row["speed_up"] is None:
        return text
    ideal = row["mean_workers"] / fewest["mean_workers"]
    return f"{text}, {row['speed_up']:.2f} x as fast as {_workers(fewest['workers'])} (ideal: {ideal:.3g} x)"


def _workers(count: int) -> str:
    return _counted(count, "worker")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def scaling(runs: Sequence[Run], *, n: int = 5, cores: int | None = None) -> Scaling:
    """Divide the critical paths of runs with different numbers of workers by activity and by operator.

    Parameters
    ----------
    runs
        Of one program on the same input, with different numbers of workers, each number as often as one likes.
    n
        Activities and operators to tell apart, those with most time over all runs; the others are summed up.
    cores
        How many cores the runs had, to say where workers outnumber them.

    Returns
    -------
    Scaling
        Its `table` has rows of `SCALING`, one per division, key and number of workers.

    Raises
    ------
    InvalidParameterError
        If there are fewer than two runs, one is given twice, no round is in all of them, or a number is out of range.
    UnsupportedPlanError
        If the clocks of a run are not aligned.

    Notes
    -----
    Compared are the rounds that all runs have: their paths are as long as the rounds, so the times of a division add
    up to the length of these rounds. A key that is not on a run's path counts as 0 there. A worker whose whole time in
    all of these rounds is `unknown` counts as none, unless all do. `ideal_ns` is the mean of the
    fewest workers, divided by how many times as many there are. The deviation is that of a sample (n - 1). O(paths).
    """
    _check(runs, n, cores)
    rounds_of_runs = [
        {w.epoch for w in run.windows() if w.role is EpochRole.ROUND and w.epoch is not None} for run in runs
    ]
    common = sorted(set.intersection(*rounds_of_runs))
    if not common:
        message = "No round is in all of these runs: they have no epoch in common."
        raise InvalidParameterError(message, "Compare runs of one program on the same input.")
    windows_of_run = [[run.window(epoch=epoch) for epoch in common] for run in runs]
    facts = [_facts(run, windows) for run, windows in zip(runs, windows_of_run, strict=True)]
    paths = pl.concat([_path(run, place, facts[place], windows_of_run[place]) for place, run in enumerate(runs)])
    path_rows = _first(paths, n)
    names: list[set[str]] = [{f"{row['operator_name']} ({row['address']})" for row in _operators(run)} for run in runs]
    return Scaling(
        table=typed_table(_compared(path_rows, facts, cores), SCALING),
        runs=tuple(sorted(facts, key=lambda fact: fact["workers"])),
        rounds=tuple(common),
        left_out=len(set.union(*rounds_of_runs)) - len(common),
        cores=cores,
        strange=tuple(sorted(set[str]().union(*names) - names[0].intersection(*names))),
    )


def _check(runs: Sequence[Run], n: int, cores: int | None) -> None:
    message = ""
    if len(runs) < 2:  # noqa: PLR2004
        message = f"{_counted(len(runs), 'run')} cannot be compared; give two or more."
    elif n < 1 or (cores is not None and cores < 1):
        message = f"n is {n} and cores is {cores}; both must be at least 1."
    if message:
        raise InvalidParameterError(message, "pag scaling w1.pag w2.pag w4.pag --cores 4")
    runs_by_trace: dict[str, Run] = {}
    for run in runs:
        profile.ANALYSIS.check(run)
        first_run = runs_by_trace.setdefault(str(run.info.run["trace_id"]), run)
        if first_run is not run:
            message = f"{run.info.path} and {first_run.info.path} hold the same run. A repetition must be a new run."
            raise InvalidParameterError(message, "Give each recording once.")


def _operators(run: Run) -> list[dict[str, Any]]:
    return operator_names(run).to_dicts()


def _facts(run: Run, windows: Sequence[Window]) -> dict[str, Any]:
    """Return what is said of a run, over some of its rounds."""
    path_ns = sum(window.span_ns for window in windows)
    all_lives = pl.concat([_lives(View(run=run, windows=stretch)) for stretch in run.stretches(windows)])
    times = all_lives.group_by("worker").agg(pl.col("inside_ns", "unknown_ns").sum())
    lives = all_lives.join(times.filter(is_recorded()), on="worker", how="semi")
    # Where nobody is recorded, nobody knows who worked.
    lives = lives if lives.height else all_lives
    begins, ends = (np.sort(lives[name].to_numpy()) for name in ("begin_ns", "end_ns"))
    # Who ends in an instant makes room for who begins in it.
    at_once = np.searchsorted(begins, begins, side="right") - np.searchsorted(ends, begins, side="right")
    # In rounds without length all have their whole lives.
    there = lives["worker"].n_unique()
    return {
        "store": str(run.info.path),
        "run_id": run.info.run["run_id"],
        "workers": int(at_once.max()) if path_ns else there,
        "mean_workers": int((ends - begins).sum()) / path_ns if path_ns else float(there),
        "unrecorded": all_lives["worker"].n_unique() - there,
        "path_ns": path_ns,
    }


def _lives(view: View) -> pl.DataFrame:
    """Return which part of its life each worker has in each window in which it is there, and how much is known."""
    inside = view.local.filter(view.shows_worker).select(
        "window",
        "worker",
        begin_ns=nw.max_horizontal("start_ns", "window_start_ns"),
        end_ns=nw.min_horizontal(end_ns(), "window_end_ns"),
        **presence(),
    )
    sums = nw.col("inside_ns", "unknown_ns").sum()
    return view.collect(inside.group_by("window", "worker").agg(nw.col("begin_ns").min(), nw.col("end_ns").max(), sums))


def _path(run: Run, place: int, facts: Mapping[str, Any], windows: Sequence[Window]) -> pl.DataFrame:
    """Return time on the paths of some rounds of a run per division and key."""
    parts = [
        profile.divided(View(run=run, windows=stretch), profile.ProfileParameters(by=division))
        for stretch in run.stretches(windows)
        for division in _DIVISIONS
    ]
    rows = pl.concat([part.select("by", "key", "path_ns") for part in parts])
    total = pl.DataFrame({"by": [TOTAL], "key": [WHOLE], "path_ns": [facts["path_ns"]]})
    summed = pl.concat([total, rows.group_by("by", "key").agg(pl.col("path_ns").sum())])
    return summed.with_columns(run=pl.lit(place, pl.Int64), workers=pl.lit(facts["workers"], pl.Int64))


def _first(paths: pl.DataFrame, n: int) -> pl.DataFrame:
    """Rank keys by their time in all runs; those behind the first `n` of a division become one."""
    totals = paths.group_by("by", "key").agg(pl.col("path_ns").sum()).with_columns(profile.ranks_by("by"))
    is_other = pl.col("rank") > n
    return (
        paths.join(totals.select("by", "key", "rank"), on=["by", "key"])
        .with_columns(
            key=pl.when(is_other).then(pl.lit(profile.OTHER)).otherwise("key"),
            rank=pl.when(is_other).then(n + 1).otherwise("rank").cast(pl.Int64),
        )
        .group_by("run", "workers", "by", "rank", "key")
        .agg(pl.col("path_ns").sum())
    )


def _compared(path_rows: pl.DataFrame, facts: Sequence[dict[str, Any]], cores: int | None) -> pl.DataFrame:
    """Return means and deviations per division, key and number of workers."""
    columns = {name: [fact[name] for fact in facts] for name in ("workers", "mean_workers")}
    runs = pl.DataFrame({"run": range(len(facts)), **columns})
    spent = (
        path_rows.select("by", "rank", "key")
        .unique()
        .join(runs, how="cross")
        .join(path_rows, on=["by", "rank", "key", "run", "workers"], how="left")
        .group_by("by", "rank", "key", "workers")
        .agg(
            runs=pl.len().cast(pl.Int64),
            mean_workers=pl.col("mean_workers").sort().mean(),
            # Sorted, so that the same runs in another order are rounded in the same way.
            mean_ns=pl.col("path_ns").fill_null(0).sort().mean(),
            deviation_ns=pl.col("path_ns").fill_null(0).sort().std(),
        )
    )
    total = spent.filter(pl.col("by") == TOTAL).select("workers", total_ns="mean_ns")
    fewest = int(runs["workers"].min())  # type: ignore[arg-type]
    base = spent.filter(pl.col("workers") == fewest).select("by", "key", base_ns="mean_ns", base_workers="mean_workers")
    return (
        spent.join(total, on="workers")
        .join(base, on=["by", "key"])
        .with_columns(
            share=share_of("mean_ns", pl.col("total_ns")),
            ideal_ns=pl.col("base_ns") * pl.col("base_workers") / pl.col("mean_workers"),
            speed_up=pl.when(pl.col("mean_ns") > 0).then(pl.col("base_ns") / pl.col("mean_ns")),
            over_cores=pl.lit(None, pl.Boolean) if cores is None else pl.col("workers") > cores,
        )
        .sort(pl.col("by").cast(pl.Enum([TOTAL, *_DIVISIONS])), "rank", "workers")
    )
