"""What made one window, or one run, longer than another: the difference, divided among activities without a rest.

Definition: `docs/analyses.md`, section "diff"; after ST2 (Sandstede 2019) 6 (epoch against epoch, future work there)
and CPA (Sager 2016) 7.3 (profiles of runs with different worker counts).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses.critical_path import path_steps
from pag_graph.analyses.definition import Chart, PairAnalysis
from pag_graph.analyses.expressions import IS_MESSAGE, operator_names
from pag_graph.analyses.reports import Report
from pag_graph.analyses.result_tables import typed_table
from pag_graph.analyses.view import view_of
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.needs import Needs
from pag_graph.graph.snapshot import Snapshot
from pag_graph.model.tables import DIFF
from pag_graph.model.units import in_markdown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pag_graph.graph.run import Run

_KEY = ["type", "address", "operator_name", "worker", "to_worker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Report):
    """A difference of two windows, or of the rounds of two runs."""

    table: pa.Table
    """Rows of `DIFF`."""
    before: str
    """What was compared with."""
    after: str
    """What was compared with that."""
    before_ns: int
    """Length of the windows before, summed."""
    after_ns: int
    """Length of the windows after, summed."""
    before_windows: int
    """How many there are before."""
    after_windows: int
    """How many there are after."""
    by_worker: bool
    """Whether both have the same workers, so that activities are told apart by worker."""
    appeared: tuple[str, ...]
    """Operators of the dataflow that only the run after has, as ``name (address)``."""
    gone: tuple[str, ...]
    """Operators that only the run before has."""
    workers: Mapping[int, str] = field(default_factory=dict)
    """Names of workers, where activities are told apart by them."""

    @property
    def difference_ns(self) -> int:
        """How much longer it is after; equal to the sum of all contributions."""
        return self.after_ns - self.before_ns

    def summary(self) -> dict[str, Any]:
        """Return everything but the rows as plain values, for programs."""
        return {
            "before": self.before,
            "after": self.after,
            "before_ns": self.before_ns,
            "after_ns": self.after_ns,
            "difference_ns": self.difference_ns,
            "before_windows": self.before_windows,
            "after_windows": self.after_windows,
            "by_worker": self.by_worker,
            "operators_appeared": list(self.appeared),
            "operators_gone": list(self.gone),
        }

    def headline(self) -> str:
        """Return what a person reads before the rows."""
        change = f" ({self.difference_ns / self.before_ns:+.1%})" if self.before_ns else ""
        first = (
            f"Before, {self.before}: {self.before_ns:,} ns. After, {self.after}: {self.after_ns:,} ns."
            f" Difference: {self.difference_ns:+,} ns{change}."
        )
        lines = [first]
        if not self.by_worker:
            lines.append("The workers differ, so activities are compared over all workers.")
        for status, names in (("appeared", self.appeared), ("gone", self.gone)):
            if names:
                lines.append(f"Operators {status}: {', '.join(names)}.")
        return "\n".join(lines)

    def markdown(self, *, top: int = 20) -> str:
        """Return a report for an issue or a pull request.

        Parameters
        ----------
        top
            How many activities to list; the rest is summed up, so that the table still adds up.

        Returns
        -------
        str
            Markdown.
        """
        rows = self.table.to_pylist()
        shown, summed_rows = rows[:top], rows[top:]
        lines = ["### What changed", "", *"\n\n".join(map(in_markdown, self.headline().splitlines())).splitlines(), ""]
        lines += [
            "| activity | before ns | after ns | difference ns | by count | by length |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        numbers = ("before_ns", "after_ns", "difference_ns", "count_ns", "mean_ns")
        for row in shown:
            lines.append(
                f"| {_name(row, self.workers)} | " + " | ".join(_cell(name, row[name]) for name in numbers) + " |"
            )
        if summed_rows:
            sums = {name: sum(row[name] for row in summed_rows) for name in numbers}
            lines.append(f"| {len(summed_rows)} others | " + " | ".join(_cell(n, v) for n, v in sums.items()) + " |")
        total = {name: sum(row[name] for row in rows) for name in numbers}
        lines.append("| **sum** | " + " | ".join(_cell(n, v) for n, v in total.items()) + " |")
        return "\n".join(lines)


def _cell(name: str, value: int) -> str:
    return f"{value:,}" if name in {"before_ns", "after_ns"} else f"{value:+,}"


def _name(row: dict[str, Any], workers: Mapping[int, str]) -> str:
    parts = [row["type"].replace("_", " ")]
    if row["address"] is not None:
        parts.append(in_markdown(f"{row['operator_name']} ({row['address']})"))
    if row["worker"] is not None:
        worker_name, receiver_name = (
            in_markdown(workers.get(row[name], str(row[name]))) for name in ("worker", "to_worker")
        )
        if row["to_worker"] is not None:
            parts.append(f"{worker_name} -> {receiver_name}")
        else:
            parts.append(
                f"{worker_name} (worker {row['worker']})" if row["worker"] in workers else f"worker {worker_name}"
            )
    mark = {"appeared": " *new*", "gone": " *gone*"}.get(row["status"], "")
    return ", ".join(parts) + mark


def diff(before: Snapshot | Sequence[Snapshot], after: Snapshot | Sequence[Snapshot]) -> Difference:
    """Divide the difference of two windows, or of two runs, among the activities on their critical paths.

    Parameters
    ----------
    before, after
        A window each, or all rounds of a run, of runs with aligned clocks. They can be of different runs, with
        different numbers of workers.

    Returns
    -------
    Difference
        Its `table` has rows of `DIFF`, one per activity, largest difference first. The differences add up to that of
        the windows' lengths, to the nanosecond: the paths tile the windows.

    Raises
    ------
    InvalidParameterError
        If there is nothing to compare.

    Notes
    -----
    An activity is a type, an operator and a worker or pair of workers. The operator is given by address and name; for
    a message it is the operator that reads its channel. Workers only count if both runs have the same workers: the
    same number of them and, if the source states what each did, no two that run the same.

    The number of steps is nA before and nB after, and their mean length is mA and mB. Then
    `count_ns` = (nB - nA)(mA + mB)/2, rounded, and `mean_ns` = (mB - mA)(nA + nB)/2 is the rest of the difference. If a
    mean does not exist, the mean of the other side is used. This is accounting: what caused a difference is a question
    for `what-if`. O(path).

    On the command line, without any choice, the slowest round is compared with the round of median length. With only
    `--against` another run, all rounds of both runs are compared.
    """
    olds, news = _list(before), _list(after)
    if not olds or not news:
        message = "There is no window to compare with." if not olds else "There is no window to compare."
        raise InvalidParameterError(message)
    by_worker = _same_workers(olds[0].run, news[0].run)
    joined = (
        _activities(olds, by_worker=by_worker)
        .join(_activities(news, by_worker=by_worker), on=_KEY, how="full", coalesce=True, nulls_equal=True, suffix="_b")
        .rename({"steps": "before_steps", "ns": "before_ns", "steps_b": "after_steps", "ns_b": "after_ns"})
    )
    status = (
        pl.when(pl.col("before_steps").is_null())
        .then(pl.lit("appeared"))
        .when(pl.col("after_steps").is_null())
        .then(pl.lit("gone"))
        .otherwise(pl.lit("both"))
    )
    counts = ["before_steps", "after_steps", "before_ns", "after_ns"]
    # An absent mean is the other side's, so that what appeared or went is all due to its count.
    mean_a = pl.col("before_ns") / pl.col("before_steps")
    mean_b = pl.col("after_ns") / pl.col("after_steps")
    means = pl.coalesce(mean_a, mean_b) + pl.coalesce(mean_b, mean_a)
    added_steps = pl.col("after_steps").fill_null(0) - pl.col("before_steps").fill_null(0)
    rows = (
        joined.with_columns(status=status, count_ns=(added_steps * means / 2).round().cast(pl.Int64))
        .with_columns(pl.col(counts).fill_null(0))
        .with_columns(difference_ns=pl.col("after_ns") - pl.col("before_ns"))
        .with_columns(mean_ns=pl.col("difference_ns") - pl.col("count_ns"))
        .sort(pl.col("difference_ns").abs(), *_KEY, descending=[True, *[False] * len(_KEY)])
    )
    old_names, new_names = _operators(olds[0].run), _operators(news[0].run)
    return Difference(
        table=typed_table(rows, DIFF),
        before=_title(olds),
        after=_title(news),
        before_ns=sum(snapshot.window.span_ns for snapshot in olds),
        after_ns=sum(snapshot.window.span_ns for snapshot in news),
        before_windows=len(olds),
        after_windows=len(news),
        by_worker=by_worker,
        appeared=tuple(sorted(new_names - old_names)),
        gone=tuple(sorted(old_names - new_names)),
        workers=news[0].run.worker_names if by_worker else {},
    )


def _same_workers(before: Run, after: Run) -> bool:
    """Return whether a worker's number says the same in both runs.

    Where a source states what its workers did, as Spark's logs do of cores, those that run the same are interchangeable
    (`Run.peers`): which of them did what in another run is chance.
    """
    if before.workers != after.workers:
        return False
    if after.one_dataflow or before.info.run["run_id"] == after.info.run["run_id"]:
        return True
    return len(set(after.peers.values())) == len(after.workers)


def _list(snapshots: Snapshot | Sequence[Snapshot]) -> list[Snapshot]:
    return [snapshots] if isinstance(snapshots, Snapshot) else list(snapshots)


def _title(snapshots: list[Snapshot]) -> str:
    run = snapshots[0].run.info.run["run_id"]
    return (
        f"{snapshots[0].window.name} of run {run}" if len(snapshots) == 1 else f"{len(snapshots)} rounds of run {run}"
    )


def _operators(run: Run) -> set[str]:
    return {f"{row['operator_name']} ({row['address']})" for row in operator_names(run).iter_rows(named=True)}


def _activities(snapshots: list[Snapshot], *, by_worker: bool) -> pl.DataFrame:
    """Return steps and time on the critical paths per activity."""
    columns = ["type", "worker", "to_worker", "operator", "channel", "duration_ns"]
    steps = pl.concat([path_steps(view_of(snapshot)).select(columns) for snapshot in snapshots])
    steps = steps.with_columns(message=IS_MESSAGE)
    run = snapshots[0].run
    readers = run.channels.select("channel", reader="target_operator").unique("channel", keep="first")
    worker: pl.Expr = pl.col("worker") if by_worker else pl.lit(None, pl.Int32)
    to_worker: pl.Expr = pl.when("message").then("to_worker") if by_worker else pl.lit(None, pl.Int32)
    return (
        steps.join(readers, on="channel", how="left")
        .with_columns(operator=pl.when("message").then("reader").otherwise("operator"))
        .join(operator_names(run), on="operator", how="left")
        .with_columns(worker=worker, to_worker=to_worker)
        .group_by(_KEY)
        .agg(steps=pl.len().cast(pl.Int64), ns=pl.col("duration_ns").sum())
    )


ANALYSIS: PairAnalysis[None] = PairAnalysis(
    name="diff",
    function=diff,
    schema=DIFF,
    output="DIFF",
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5 --against-epoch 4 --format markdown",
    chart=Chart(
        kind="waterfall",
        x=("operator_name", "type", "worker", "to_worker"),
        y=("difference_ns",),
        ends=("before_ns", "after_ns"),
    ),
)
