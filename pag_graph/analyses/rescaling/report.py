"""What it brought, and what it cost, that workers joined or left: all tables of it.

Definitions: `docs/model.md`, section "Rescaling"; after Selvatici (2019) 3 to 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.analyses.reports import Report
from pag_graph.analyses.rescaling.answers import NOT_YET, PAID, UNSURE, Work, payback, saturated, verdict, work_in
from pag_graph.analyses.rescaling.data import records_of
from pag_graph.analyses.rescaling.details import held_up, looked_at, steps
from pag_graph.analyses.rescaling.latencies import (
    AFTER,
    BEFORE,
    PHASES,
    SERVICE,
    START,
    courses,
    epochs_of,
)
from pag_graph.analyses.rescaling.operations import births_of, check_spawned, marks_of, most_on_a_host, operations
from pag_graph.analyses.rescaling.routing import read_moves, routing, state_sizes
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.graph.membership import counted_epoch
from pag_graph.model.enums import ActivityType
from pag_graph.model.ranks import nearest_rank
from pag_graph.model.rescaling_tables import RESCALE_TABLES
from pag_graph.model.units import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pag_graph.analyses.rescaling.latencies import Course, DueTimes, Epochs, Period
    from pag_graph.graph.run import Run

    Row = dict[str, Any]

TableName = Literal["operations", "phases", "latency", "steps", "held_up", "routing", "state"]
_SERVICE = (
    "Latencies are service times, from an epoch's first event: what its input waited before that is missing."
    " Say when input was due: --period and --first, or --inputs."
)
_NO_ROUNDS = "The run has no rounds, so there are no latencies to be compared."


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a person knows of a run beside its trace."""

    schedule: Period | DueTimes | None = None
    """When the input of epochs was due; None where nobody says."""
    cores: int | None = None
    """Cores of each host."""
    weight: Literal["epochs", "records"] = "epochs"
    """What percentiles count."""
    moves: Path | None = None
    """File that says which bins moved (`read_moves`)."""


@dataclass(frozen=True, kw_only=True)
class Rescaling(Report):
    """Everything about the operations of a run; tables are made when somebody asks for them."""

    run: Run
    """The run."""
    setting: Setting
    """What is known beside its trace."""
    epochs: Epochs
    """Its rounds."""
    courses: Sequence[Course]
    """Operations in time order."""

    def named(self, name: str) -> pa.Table:
        """Return one of the tables of `RESCALE_TABLES`.

        Parameters
        ----------
        name
            Out of `RESCALE_TABLES`.

        Returns
        -------
        Table
            Rows of that schema.

        Raises
        ------
        InvalidParameterError
            If there is no such table.
        UnsupportedPlanError
            If it needs the table `traffic`, which the store lacks.
        """
        makers: dict[str, Callable[[], pl.DataFrame | list[Row]]] = {
            "operations": self._operations,
            "phases": self._phases,
            "latency": self._latency,
            "steps": self._steps,
            "held_up": self._held_up,
            "routing": self._routing,
            "state": lambda: state_sizes(self.run),
        }
        if name not in makers:
            message = f"There is no table {name!r}; there are {', '.join(makers)}."
            raise InvalidParameterError(message)
        schema, rows = RESCALE_TABLES[name], makers[name]()
        if isinstance(rows, list):
            return pa.Table.from_pylist(rows, schema)
        return rows.select(schema.names).to_arrow().cast(schema)

    @cached_property
    def table(self) -> pa.Table:
        """Rows of `RESCALE_OPERATIONS`."""
        return self.named("operations")

    @cached_property
    def warnings(self) -> list[str]:
        """What has to be known beside the numbers; sentences."""
        warnings = [_NO_ROUNDS] if not len(self.epochs.epoch) else [_SERVICE] if self.epochs.kind == SERVICE else []
        if self.setting.cores is None:
            warnings.append("No trace says how many cores there were: give --cores, so that it is said who lacked one.")
        elif self._cores_shared:
            warnings.append(
                f"There were more workers than the {self.setting.cores} cores of a host: lost cores look like work."
            )
        for number, course in enumerate(self.courses):
            operation = course.operation
            if operation.births and operation.work_ns is None:
                warnings.append(f"Operation {number}: no new worker ever worked.")
            if course.settled_ns is None:
                warnings.append(
                    f"Operation {number}: latencies have not settled ({course.status}), so nothing is compared."
                )
        return warnings

    @cached_property
    def _cores_shared(self) -> bool:
        return self.setting.cores is not None and most_on_a_host(self.run) > self.setting.cores

    def summary(self) -> dict[str, Any]:
        """Return what holds for all rows, as plain values."""
        return {
            "latency_kind": self.epochs.kind,
            "rounds": len(self.epochs.epoch),
            "operations": len(self.courses),
            "warnings": self.warnings,
        }

    def headline(self) -> str:
        """Return what a person reads before the rows: a line per operation, and what has to be known."""
        lines = [_sentence(row) for row in self.table.to_pylist()]
        return "\n".join([*lines, *self.warnings])

    # --- Tables -----------------------------------------------------------------------------------------------------

    def _alive(self, t_ns: int) -> set[int]:
        """Return the workers that live at an instant, as far as births and exits are operations of this run."""
        later = {b.worker for course in self.courses for b in course.operation.births if b.spawned_ns >= t_ns}
        exited = {e.worker for course in self.courses for e in course.operation.exits if e.t_ns < t_ns}
        return set(self.run.workers) - later - exited

    @cached_property
    def _work(self) -> list[dict[str, Work]]:
        """Per operation and phase: what workers did."""
        work_rows = []
        for course in self.courses:
            bounds = {phase: limits for phase in PHASES if (limits := course.bounds(phase)) is not None}
            workers_before = self._alive(course.operation.request_ns)
            work = work_in(self.run, list(bounds.values()), [workers_before] * len(bounds))
            work_rows.append(dict(zip(bounds, work, strict=True)))
        return work_rows

    def _operations(self) -> list[Row]:
        rows = []
        for number, course in enumerate(self.courses):
            operation = course.operation
            before, after = (course.latencies(self.epochs, phase) for phase in (BEFORE, AFTER))
            until_ns = course.until_ns if course.settled_ns is None else course.settled_ns
            troubled = self.epochs.latency_ns[self.epochs.inside(operation.request_ns, until_ns)]
            was = saturated(course, self.epochs, self._work[number][BEFORE], cores_shared=self._cores_shared)
            epoch, status = payback(course, self.epochs)
            rows.append(
                {
                    "operation": number,
                    "kind": operation.kind,
                    "workers": len(self._alive(operation.request_ns)),
                    "new_workers": len(operation.births) - len(operation.exits),
                    "request_ns": operation.request_ns,
                    "birth_ns": operation.birth_ns,
                    "ready_ns": operation.ready_ns,
                    "work_ns": operation.work_ns,
                    "settled_ns": course.settled_ns,
                    "settled": course.status,
                    "saturated": was,
                    "verdict": verdict(course, self.epochs, was),
                    "before_ns": nearest_rank(before, 0.5),
                    "after_ns": nearest_rank(after, 0.5),
                    "worst_ns": nearest_rank(troubled, 1.0),
                    "payback_epoch": epoch,
                    "payback_status": status,
                    "added_worker_ns": sum(self._life(birth.worker, birth.first_ns) for birth in operation.births),
                }
            )
        return rows

    def _life(self, worker: int, first_ns: int) -> int:
        exits = (e.t_ns for course in self.courses for e in course.operation.exits if e.worker == worker)
        return min(exits, default=self.run.end_ns) - first_ns

    @cached_property
    def _records(self) -> list[int | None]:
        return records_of(self.run, self.epochs.epoch.tolist())

    def _phases(self) -> list[Row]:
        rows = []
        for number, course in enumerate(self.courses):
            for phase, work in self._work[number].items():
                start, end = course.bounds(phase) or (0, 0)
                places = course.places(self.epochs, phase)
                row = {"operation": number, "phase": phase, "start_ns": start, "end_ns": end, "epochs": len(places)}
                row |= self._percentiles(places) | {"latency_kind": self.epochs.kind}
                rows.append(row | work._asdict() | self._messages(self.epochs.epoch[places].tolist()))
        return rows

    def _percentiles(self, places: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, int | None]:
        latencies, weights = self.epochs.latency_ns[places], None
        if self.setting.weight == "records":
            weights = np.array([self._records[place] or 0 for place in places.tolist()], np.int64)
        names = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "max_ns": 1.0}
        return {name: nearest_rank(latencies, share, weights) for name, share in names.items()}

    def _messages(self, epochs: list[int]) -> dict[str, float | None]:
        """Return messages per record, and progress messages per epoch, of some epochs."""
        nothing: dict[str, float | None] = {"messages_per_record": None, "progress_per_epoch": None}
        if not self.run.has_traffic or not epochs:
            return nothing
        rows = self.run.scan("traffic").filter(counted_epoch(self.run).is_in(epochs)).collect()
        counts = records_of(self.run, epochs)
        records = None if None in counts else sum(count or 0 for count in counts)
        progress = int(rows.filter(pl.col("type") == str(ActivityType.PROGRESS_MESSAGE))["messages"].sum())
        per_record = int(rows["messages"].sum()) / records if records else None
        return {"messages_per_record": per_record, "progress_per_epoch": progress / len(epochs)}

    def _latency(self) -> list[Row]:
        epochs, count = self.epochs, len(self.epochs.epoch)
        operation_and_phase: list[tuple[int | None, str]] = [(None, START)] * count
        # Epochs between two operations are listed with the first of the two.
        for number, course in reversed(list(enumerate(self.courses))):
            for phase in PHASES:
                for place in course.places(epochs, phase).tolist():
                    operation_and_phase[place] = number, phase
        due_ns = [None] * count if epochs.due_ns is None else epochs.due_ns.tolist()
        columns = (
            epochs.epoch.tolist(),
            due_ns,
            epochs.end_ns.tolist(),
            epochs.latency_ns.tolist(),
            self._records,
            operation_and_phase,
        )
        names = ("epoch", "due_ns", "end_ns", "latency_ns", "records")
        return [
            dict(zip(names, row, strict=True)) | {"operation": operation_phase[0], "phase": operation_phase[1]}
            for *row, operation_phase in zip(*columns, strict=True)
        ]

    def _steps(self) -> list[Row]:
        workers = self.run.scan("workers").collect()
        startup = dict(workers.select("worker", "startup_ns").drop_nulls().iter_rows())
        return [
            row
            for number, course in enumerate(self.courses)
            for row in steps(self.run, number, course, looked_at(self.run, course), startup)
        ]

    def _held_up(self) -> list[Row]:
        return [
            row
            for number, course in enumerate(self.courses)
            for row in held_up(self.run, number, course, looked_at(self.run, course))
        ]

    def _routing(self) -> list[Row]:
        moves = None if self.setting.moves is None else read_moves(self.setting.moves)
        return [
            row
            for number, course in enumerate(self.courses)
            for row in routing(self.run, number, course, self.epochs, moves)
        ]


def _sentence(row: Row) -> str:
    change = f"{row['workers']} workers, {row['new_workers']:+d}" if row["new_workers"] else f"{row['workers']} workers"
    text = f"Operation {row['operation']} ({row['kind']}, {change}) at {duration(row['request_ns'])}:"
    text += f" {row['verdict'].replace('_', ' ')}; saturated before: {row['saturated']}"
    if row["before_ns"] is not None and row["after_ns"] is not None:
        text += f"; latency {duration(row['before_ns'])} before, {duration(row['after_ns'])} after"
    if row["worst_ns"] is not None:
        text += f", at worst {duration(row['worst_ns'])}"
    paid = {PAID: "paid for itself by epoch {}", NOT_YET: "would pay for itself by epoch {}"}
    if row["payback_status"] != UNSURE:
        text += f"; {paid.get(row['payback_status'], 'never pays for itself').format(row['payback_epoch'])}"
    return f"{text}."


def rescale(run: Run, setting: Setting) -> Rescaling:
    """Say what it brought, and what it cost, that workers joined or left.

    Parameters
    ----------
    run
        Of aligned clocks.
    setting
        What is known beside the trace.

    Returns
    -------
    Rescaling
        Its tables, by name. O(edges).

    Raises
    ------
    UnsupportedPlanError
        If the run has no operation, clocks that are not aligned, or a worker that was bootstrapped without a spawn; if
        a follower has removed its first epochs; or if something needs the table `traffic`, and the store lacks it.
    InvalidParameterError
        If a number is out of range, or an epoch is complete before its input is said to be due.
    """
    run.require_aligned("Rescaling compares times of different workers")
    # Who was there before, and since when somebody was asked for, is said by what went before.
    run.require_whole("What rescaling did needs the run from its beginning")
    if setting.cores is not None and setting.cores < 1:
        message = f"cores is {setting.cores}; it must be at least 1."
        raise InvalidParameterError(message)
    marks = marks_of(run)
    births = births_of(run)
    check_spawned(run, marks, births)
    epochs = epochs_of(run, setting.schedule)
    early_rows = np.flatnonzero(epochs.latency_ns < 0)
    if len(early_rows):
        epoch, ns = int(epochs.epoch[early_rows[0]]), -int(epochs.latency_ns[early_rows[0]])
        message = f"Epoch {epoch} was complete {duration(ns)} before its input is said to be due."
        raise InvalidParameterError(message, "Times count from the run's origin; `--first` is that of epoch 0.")
    rescaling = Rescaling(
        run=run, setting=setting, epochs=epochs, courses=courses(operations(run, marks, births), epochs)
    )
    if setting.weight == "records" and any(count is None for count in rescaling._records):  # noqa: SLF001  (its maker)
        message = f"{run.info.path} does not tell how many records each epoch had, so percentiles cannot count records."
        raise UnsupportedPlanError(message, "Leave out `--weight records`.")
    return rescaling
