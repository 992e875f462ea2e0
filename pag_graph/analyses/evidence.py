"""What `why` knows of a window before it says anything: the rows of the other analyses, and which cause they point to.

The causes are looked for in a fixed order, and the first that is large enough is named; each stands on the numbers of
another analysis, so that nothing is found here that could not be asked for by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from pag_graph.analyses import blame, causal_profile, invariants, k_hops, skew, stragglers, traffic, waits
from pag_graph.analyses.critical_path import CriticalPath, critical_path
from pag_graph.analyses.diff import Difference, diff
from pag_graph.analyses.expressions import IS_MESSAGE, UNKNOWN, local_inside, operator_labels, rounds
from pag_graph.analyses.runner import with_epochs
from pag_graph.analyses.view import View
from pag_graph.analyses.what_if import WhatIfParameters, what_if
from pag_graph.builder.rule_choice import CONTRADICTS, INFERRED_WAITS
from pag_graph.errors import AnalysisError, PagError
from pag_graph.model.enums import MESSAGE_TYPES, RESTING_TYPES, ActivityType, EdgeFlags, EpochRole
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window

_HOPS = 10
_WAKE_UP, _DATA = str(ActivityType.WAKE_UP), str(ActivityType.DATA_MESSAGE)
_BUSY, _PROGRAM = str(ActivityType.BUSY), str(ActivityType.PROGRAM)
_NO_INPUT = (str(ActivityType.INPUT_WAIT), str(ActivityType.IDLE))
_NO_WORK = [_WAKE_UP, *(str(kind) for kind in (ActivityType.WAITING, *RESTING_TYPES))]
_MOST_OF = 0.75


class Cause(StrEnum):
    """What mainly made a window as long as it was."""

    DATA_SKEW = "data_skew"
    """One worker has many more records to read than the others, who wait for it."""
    SLOW_WORKER = "slow_worker"
    """One worker takes longer than the others for no more records, and they wait for it."""
    UNEVEN_WORK = "uneven_work"
    """The workers wait, most of the time for one of them."""
    BOTTLENECK = "bottleneck"
    """Workers run different operators, and what one of them does holds up the end, or all others."""
    TAKING_TURNS = "taking_turns"
    """The workers wait for each other in turn."""
    WAKE_UP = "wake_up"
    """The operating system took its time to let workers run that had something to do."""
    TRANSFER = "transfer"
    """Messages were under way, while nobody worked on what the end depends on."""
    INPUT = "input"
    """There was no input."""
    UNKNOWN = "unknown"
    """The trace does not say."""
    UNUSUAL = "unusual"
    """The workers are balanced, but the round took much longer than others do."""
    WORK = "work"
    """The workers are balanced, and work: it takes as long as the work takes."""


ALARMING = frozenset(set(Cause) - {Cause.WORK, Cause.INPUT, Cause.UNKNOWN})
"""Causes that somebody could do something about; of the others `why` raises no alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The cause, and who and what it points at."""

    cause: Cause
    share: float
    """How much of the window, or of all workers' time in it, stands for the cause."""
    worker: int | None = None
    """Whose work stands for it; None where nobody's does."""
    operator: int | None = None
    """Number of the operator; None where there is none."""
    time_ns: int = 0
    """How long it took."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The rows of other analyses on one window; each is computed when it is first asked for."""

    snapshot: Snapshot
    """The window."""
    above: float
    """A straggler works more than so many times the median of those that run the same."""
    notable: float
    """Share from which on a cause is one."""
    message_share: float
    """Share of the median round from which on a message is slow."""
    baseline: int
    """Earlier rounds to learn limits from, `FEWEST` at least; 0 for none."""

    @property
    def window(self) -> Window:
        """The window."""
        return self.snapshot.window

    @property
    def is_round(self) -> bool:
        """Whether it can be compared with other rounds."""
        return self.window.role is EpochRole.ROUND

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path."""
        return critical_path(self.snapshot)

    @cached_property
    def labels(self) -> dict[int, str]:
        """What people call the operators."""
        return operator_labels(self.snapshot.run)

    @cached_property
    def waits(self) -> list[dict[str, Any]]:
        """Rows of `WAITS`."""
        return _rows(waits.ANALYSIS(self.snapshot))

    @cached_property
    def blame(self) -> list[dict[str, Any]]:
        """Rows of `BLAME`."""
        return _rows(blame.ANALYSIS(self.snapshot))

    @cached_property
    def waiting_by_worker(self) -> dict[int, int]:
        """How long each worker waited, if it did."""
        sums: dict[int, int] = {}
        for row in self.waits:
            if row["waiting_ns"] > 0:
                sums[row["worker"]] = sums.get(row["worker"], 0) + row["waiting_ns"]
        return dict(sorted(sums.items()))

    @property
    def waiting_ns(self) -> int:
        """How long all workers waited."""
        return sum(self.waiting_by_worker.values())

    @cached_property
    def waiting_share(self) -> float:
        """The same as a share of all workers' time; one that was not born yet, or has ended, has none."""
        return self.waiting_ns / (int(local_inside(self.snapshot)["inside_ns"].sum()) or 1)

    @cached_property
    def blamed_by_worker(self) -> dict[int, int]:
        """Waiting that is charged to what each worker did, most first; what messages took is charged to nobody."""
        sums: dict[int, int] = {}
        for row in self.blame:
            if row["by_worker"] == row["to_worker"]:
                sums[row["by_worker"]] = sums.get(row["by_worker"], 0) + row["blamed_ns"]
        return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))

    @cached_property
    def stragglers(self) -> list[dict[str, Any]]:
        """Rows of `STRAGGLERS`."""
        return _rows(stragglers.ANALYSIS(self.snapshot, stragglers.StragglersParameters(above=self.above)))

    def peers(self, worker: int) -> list[int]:
        """Return the workers in the window that a worker can be compared with, itself included."""
        there = {row["worker"] for row in self.stragglers}
        return [peer for peer in self.snapshot.run.peer_group(worker) if peer in there]

    @cached_property
    def skew(self) -> list[dict[str, Any]]:
        """Rows of `SKEW`."""
        return _rows(skew.ANALYSIS(self.snapshot))

    @cached_property
    def skewed_messages(self) -> dict[str, Any] | None:
        """Row of `SKEW` of the worker that reads most of an operator's records, and what messages of its own took.

        None unless messages from it and to it take a notable share of the path: that is ``message_ns``.
        """
        messages = self.steps.filter(IS_MESSAGE)
        for row in self.skew:
            own_messages = messages.filter((pl.col("worker") == row["worker"]) | (pl.col("to_worker") == row["worker"]))
            spent = int(own_messages["duration_ns"].sum())
            if row["skewed"] and row["mean_ratio"] == row["skew_ratio"] and spent >= self.notable * self.window.span_ns:
                return {**row, "message_ns": spent}
        return None

    @cached_property
    def sent(self) -> dict[tuple[int, int], tuple[int, int | None]]:
        """Data messages and records from worker to worker, most records first; None where nobody counts them."""
        sums: dict[tuple[int, int], tuple[int, int | None]] = {}
        for row in traffic.ANALYSIS(self.snapshot).to_pylist():
            if row["type"] == _DATA:
                pair = (row["from_worker"], row["to_worker"])
                messages, records = sums.get(pair, (0, 0))
                known = records is not None and row["records"] is not None
                sums[pair] = messages + row["messages"], records + row["records"] if known else None
        return dict(sorted(sums.items(), key=lambda item: (item[1][1] is None, -(item[1][1] or 0), item[0])))

    @cached_property
    def steps(self) -> pl.DataFrame:
        """Time on the path per type, worker, receiver and operator, most first."""
        return (
            pl.DataFrame(pl.from_arrow(self.path.steps))
            .group_by("type", "worker", "to_worker", "operator")
            .agg(pl.col("duration_ns").sum())
            .sort("duration_ns", "type", "worker", "to_worker", "operator", descending=[True, *[False] * 4])
        )

    @cached_property
    def on_path(self) -> dict[int, int]:
        """Local time on the path per worker, most first."""
        local = self.steps.filter(~IS_MESSAGE).group_by("worker").agg(pl.col("duration_ns").sum())
        return dict(local.sort("duration_ns", "worker", descending=[True, False]).iter_rows())

    @cached_property
    def worked_on_path(self) -> pl.DataFrame:
        """Time on the path in which a worker worked, per worker and operator: ``worker``, ``operator``, ``work_ns``."""
        worked = self.steps.filter(~IS_MESSAGE, ~pl.col("type").is_in(_NO_WORK))
        return worked.group_by("worker", "operator").agg(work_ns=pl.col("duration_ns").sum())

    @cached_property
    def between_ns(self) -> int:
        """Time on the path outside of all activations, in which a worker ran and nobody logged what.

        A worker that marks where its steps end tells the program's time, and what is `busy` is Timely's.
        """
        edges = self.snapshot.edges
        marked = edges.filter(pl.col("type") == _PROGRAM)["src"].unique() // (1 << POSITION_BITS)
        between = self.steps.filter(pl.col("operator").is_null(), pl.col("type") == _BUSY)
        return int(between.filter(~pl.col("worker").is_in(marked.unique().implode()))["duration_ns"].sum())

    @cached_property
    def spans(self) -> list[int]:
        """Lengths of all rounds, ascending."""
        spans = rounds(self.snapshot.run).select(span=pl.col("end_ns") - pl.col("start_ns"))["span"]
        return [int(span) for span in spans.sort()]

    @property
    def median_ns(self) -> int:
        """Length that half of all rounds do not exceed."""
        return self.spans[(len(self.spans) - 1) // 2] if self.spans else 0

    @property
    def rank(self) -> int:
        """1 for the longest round."""
        return sum(span > self.window.span_ns for span in self.spans) + 1

    @cached_property
    def slow_message_ns(self) -> int:
        """What a message must not exceed."""
        return max(int(self.message_share * (self.median_ns or self.window.span_ns)), 1)

    @cached_property
    def violations(self) -> list[dict[str, Any]]:
        """Rows of `INVARIANTS` of this epoch: slow messages, and what is more than earlier rounds allow."""
        if not self.is_round:
            return []
        run, epoch = self.snapshot.run, self.window.epoch
        round_epochs = rounds(run).filter(pl.col("epoch") <= epoch)["epoch"].to_list()[-self.baseline - 1 :]
        parameters = invariants.InvariantsParameters(
            message_max_ns=self.slow_message_ns,
            learn=self.baseline > 0,
            over=max(len(round_epochs) - 1, invariants.FEWEST),
        )
        windows = [run.window(epoch=number) for number in round_epochs]
        parts = [
            with_epochs(invariants.ANALYSIS.table(View(run=run, windows=part), parameters), part)
            for part in run.stretches(windows)
        ]
        rows = invariants.invariants(run, parameters, parts=pa.concat_tables(parts)).to_pylist()
        return [row for row in rows if row["epoch"] == epoch]

    @cached_property
    def hops(self) -> dict[tuple[str, int], float]:
        """Shares of the time within 10 hops before the ends of the waits, per type and worker, largest first."""
        try:
            rows = pl.DataFrame(pl.from_arrow(k_hops.ANALYSIS(self.snapshot, k_hops.KHopsParameters(k=_HOPS))))
        except AnalysisError:
            # More walks than can be counted: the other sections stand without them.
            return {}
        total = rows["walk_ns"].sum()
        if total <= 0:
            return {}
        shares = rows.group_by("type", "worker").agg(share=pl.col("walk_ns").sum() / total)
        ordered = shares.sort("share", "type", "worker", descending=[True, False, False])
        return {(row["type"], row["worker"]): row["share"] for row in ordered.iter_rows(named=True)}

    @cached_property
    def typical(self) -> Difference | None:
        """The difference from the round of median length; None for that round itself."""
        if not self.is_round or len(self.spans) < 2 or self.window.span_ns == self.median_ns:  # noqa: PLR2004
            return None
        run = self.snapshot.run
        span = pl.col("end_ns") - pl.col("start_ns")
        epoch = rounds(run).filter(span == self.median_ns)["epoch"][0]
        return diff(run.snapshot(run.window(epoch=epoch)), self.snapshot)

    @cached_property
    def helps(self) -> list[dict[str, Any]]:
        """What would make the window shorter: `kind`, what it is, `factor`, `span_ns` and `saved_ns`; most first."""
        try:
            changes = self._faster() + self._balanced() + self._woken_at_once()
        except (PagError, AnalysisError):
            # A recording that contradicts itself cannot be replayed; `doubts` says so.
            return []
        # What saves nothing helps nobody, not even in a window that takes no time.
        least_ns = max(self.window.span_ns / 100, 1)
        return sorted((row for row in changes if row["saved_ns"] >= least_ns), key=lambda row: -row["saved_ns"])

    def _faster(self) -> list[dict[str, Any]]:
        rows = causal_profile.ANALYSIS(self.snapshot, causal_profile.CausalProfileParameters(steps=2)).to_pylist()
        half = 50.0
        return [{**row, "factor": 0.5} for row in rows if row["virtual_speedup_percent"] == half]

    def _balanced(self) -> list[dict[str, Any]]:
        """Say what an operator whose records one worker reads would save if all read as many."""
        largest: dict[int, dict[str, Any]] = {}
        for row in self.skew:
            if row["skewed"] and row["operator"] is not None and row["operator"] not in largest:
                largest[row["operator"]] = row
        worth = sorted(largest.values(), key=lambda row: -row["processing_ns"])[:3]
        changes = []
        for row in worth:
            if row["processing_ns"] < self.notable * self.window.span_ns:
                continue
            factor = 1 / row["mean_ratio"]
            change = WhatIfParameters(operator=(row["operator"],), worker=(row["worker"],), factor=factor)
            replayed = what_if(self.snapshot, change)
            facts = {"operator": row["operator"], "worker": row["worker"], "factor": factor}
            changes.append({"kind": "balance", **facts, "span_ns": replayed.span_ns, "saved_ns": replayed.saved_ns})
        return changes

    def _woken_at_once(self) -> list[dict[str, Any]]:
        if self.path.by_type.get(_WAKE_UP, 0) < self.window.span_ns / 100:
            return []
        replayed = what_if(self.snapshot, WhatIfParameters(type=(ActivityType.WAKE_UP,), factor=0.0))
        return [{"kind": "wake_up", "factor": 0.0, "span_ns": replayed.span_ns, "saved_ns": replayed.saved_ns}]

    @cached_property
    def findings(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many findings of each kind concern this window, and how many all of the run."""
        run = self.snapshot.run
        rows = run.scan("findings").select("finding", "vertex").collect()
        vertices = rows["vertex"].drop_nulls().unique()
        counts_inside: dict[str, int] = {}
        if len(vertices):
            ids = pl.concat([self.snapshot.edges["src"], self.snapshot.edges["dst"]]).unique()
            findings_inside = rows.filter(pl.col("vertex").is_in(ids.implode()))
            counts_inside = dict(findings_inside.group_by("finding").len().sort("finding").iter_rows())
        return counts_inside, dict(rows.group_by("finding").len().sort("finding").iter_rows())

    @cached_property
    def negative(self) -> int:
        """Messages that were read before they were sent."""
        flags = self.snapshot.messages["flags"].to_numpy()
        return int(((flags & int(EdgeFlags.NEGATIVE)) != 0).sum())

    @cached_property
    def clock_ns(self) -> int | None:
        """How far off the workers' clocks may be from each other; None where that is not known."""
        uncertainties = self.snapshot.run.scan("workers").select("uncertainty_ns").collect()["uncertainty_ns"]
        return (
            None
            if uncertainties.null_count() or not len(uncertainties)
            else int(uncertainties.sort(descending=True).head(2).sum())
        )

    @cached_property
    def confidence(self) -> str:
        """``high``, ``medium`` or ``low``."""
        explained, path = self.path.explained, self.path
        inferred = INFERRED_WAITS in self.findings[1]
        doubtful = bool(path.alternatives or path.ties or self.negative or inferred or self.findings[0])
        if path.all_waiting or explained < 0.8 or CONTRADICTS in self.findings[1]:  # noqa: PLR2004
            return "low"
        return "medium" if doubtful or explained < 0.95 else "high"  # noqa: PLR2004

    @cached_property
    def verdict(self) -> Verdict:
        """What mainly made the window as long as it was."""
        for look in (self._straggler, self._delay, self._bottleneck, self._wait, self._unusual):
            candidate = look()
            if candidate is not None:
                return candidate
        work = self.steps.filter(~IS_MESSAGE)
        operator = work.group_by("operator").agg(pl.col("duration_ns").sum()).drop_nulls("operator")
        top = operator.sort("duration_ns", "operator", descending=[True, False]).head(1).to_dicts()
        ns = top[0]["duration_ns"] if top else 0
        share = ns / (self.window.span_ns or 1)
        return Verdict(cause=Cause.WORK, share=share, operator=top[0]["operator"] if top else None, time_ns=ns)

    def _culprit(self, worker: int) -> int | None:
        """Return the operator of a worker that most waiting is charged to."""
        sums: dict[int | None, int] = {}
        for row in self.blame:
            if row["by_worker"] == row["to_worker"] == worker:
                sums[row["operator"]] = sums.get(row["operator"], 0) + row["blamed_ns"]
        return max(sums, key=lambda operator: (sums[operator], -(operator or 0)), default=None)

    def _straggler(self) -> Verdict | None:
        span = self.window.span_ns or 1
        woken = local_inside(self.snapshot).filter(pl.col("type") == _WAKE_UP)
        late_ns = dict(woken.group_by("worker").agg(pl.col("inside_ns").sum()).iter_rows())
        for row in self.stragglers:
            # Time until the operating system lets a worker run is no work of its own.
            own_ns = row["work_ns"] - late_ns.get(row["worker"], 0)
            if self.snapshot.run.unlike and row["path_ns"] < self.notable * span:
                # It may be slower than its like, but what the end depends on is done by others.
                continue
            if row["straggler"] and row["blamed_ns"] >= self.notable * span and 2 * own_ns >= row["work_ns"]:
                cause = Cause.DATA_SKEW if row["cause"] == "data" else Cause.SLOW_WORKER
                share = row["blamed_ns"] / (self.waiting_ns or 1)
                operator = self._culprit(row["worker"])
                return Verdict(
                    cause=cause, share=share, worker=row["worker"], operator=operator, time_ns=row["blamed_ns"]
                )
        return None

    def _delay(self) -> Verdict | None:
        span, by_type = self.window.span_ns or 1, self.path.by_type
        messages = sum(ns for kind, ns in by_type.items() if kind in MESSAGE_TYPES)
        looked_for = (
            (Cause.UNKNOWN, by_type.get(UNKNOWN, 0), 0.5),
            (Cause.INPUT, sum(by_type.get(kind, 0) for kind in _NO_INPUT), 0.5),
            (Cause.WAKE_UP, by_type.get(_WAKE_UP, 0), self.notable),
            (Cause.TRANSFER, messages, self.notable),
        )
        for cause, ns, least_ns in looked_for:
            if ns >= least_ns * span:
                return Verdict(cause=cause, share=ns / span, time_ns=ns)
        return None

    def _bottleneck(self) -> Verdict | None:
        """Return the worker whose work is half of the path, where workers run different operators.

        One that works about as much as others that run the same is none: the work is spread, and takes its time. Nor is
        one that has no like, but that nobody waits for.
        """
        run, span = self.snapshot.run, self.window.span_ns or 1
        sums = self.worked_on_path.group_by("worker").agg(pl.col("work_ns").sum())
        top = sums.sort("work_ns", "worker", descending=[True, False]).head(1).to_dicts()
        if not top or not run.unlike or 2 * top[0]["work_ns"] < span:
            return None
        worker = top[0]["worker"]
        row = next(row for row in self.stragglers if row["worker"] == worker)
        alone = self.peers(worker) == [worker]
        stands_out = row["blamed_ns"] >= self.notable * span if alone else (row["work_ratio"] or 0) > self.above
        return self._held_up_by(worker) if stands_out else None

    def _held_up_by(self, worker: int) -> Verdict:
        worked = self.worked_on_path.filter(pl.col("worker") == worker)
        by_work = worked.drop_nulls("operator").sort("work_ns", "operator", descending=[True, False])
        operator = by_work["operator"][0] if by_work.height else self._culprit(worker)
        ns = int(worked["work_ns"].sum())
        share = ns / (self.window.span_ns or 1)
        return Verdict(cause=Cause.BOTTLENECK, share=share, worker=worker, operator=operator, time_ns=ns)

    def _wait(self) -> Verdict | None:
        if self.waiting_share < self.notable:
            return None
        charged = self.blamed_by_worker
        worker = next(iter(charged), None)
        if worker is not None and charged[worker] >= _MOST_OF * self.waiting_ns:
            share, ns = charged[worker] / self.waiting_ns, charged[worker]
            if all(row["worker"] != worker for row in self.stragglers):
                # Nothing is recorded of it: nobody can say that it had more to do than others.
                return Verdict(cause=Cause.UNKNOWN, share=share, worker=worker, time_ns=ns)
            if self.snapshot.run.unlike:
                return self._held_up_by(worker)
            return Verdict(
                cause=Cause.UNEVEN_WORK, share=share, worker=worker, operator=self._culprit(worker), time_ns=ns
            )
        return Verdict(cause=Cause.TAKING_TURNS, share=self.waiting_share, time_ns=self.waiting_ns)

    def _unusual(self) -> Verdict | None:
        extra_ns = self.window.span_ns - self.median_ns
        learned = any(row["invariant"] == "epoch_max" and row["learned"] for row in self.violations)
        if not (self.is_round and learned and extra_ns >= self.notable * self.window.span_ns):
            return None
        return Verdict(cause=Cause.UNUSUAL, share=extra_ns / self.window.span_ns, time_ns=extra_ns)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
