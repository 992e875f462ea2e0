"""Where the time of an operation went: its steps, and who was held up by what."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from pag_graph.analyses import blame
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import END, IS_MESSAGE, MESSAGES, worker_of
from pag_graph.analyses.rescaling.data import PREFIX, names_of_marks
from pag_graph.analyses.rescaling.operations import Mark
from pag_graph.analyses.view import view_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.analyses.rescaling.latencies import Course
    from pag_graph.analyses.rescaling.operations import Birth
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot

    Row = dict[str, Any]

_BOOTSTRAP = f"{PREFIX}bootstrap"
_SPARK = "spark"
_CLIENT, _UNKNOWN, _GAP, _STARTUP = "client", "unknown", "gap", "startup"


class _Part(NamedTuple):
    """A stretch of a worker's time."""

    worker: int
    side: str
    step: str
    start_ns: int
    end_ns: int


def looked_at(run: Run, course: Course) -> Snapshot | None:
    """Return what happened from the request on.

    Parameters
    ----------
    run
        The run.
    course
        The operation.

    Returns
    -------
    Snapshot or None
        Of the window up to when latencies settled, or else it was ready; None where that has no length.
    """
    start = course.operation.request_ns
    end = max(course.operation.ready_ns, course.settled_ns or 0)
    return run.snapshot(run.stretch(start, end)) if end > start else None


def steps(run: Run, number: int, course: Course, shown: Snapshot | None, startup: dict[int, int]) -> list[Row]:
    """Return the steps of an operation.

    Parameters
    ----------
    run, number, course
        The run, and the operation with its number.
    shown
        As from `looked_at`.
    startup
        Per worker: how long it had run before its first event, where its source says so.

    Returns
    -------
    list of dict
        Rows of `RESCALE_STEPS`. What a client did between steps is a ``gap``, so that steps and gaps tile its time
        from the spawn until it was ready. Where nobody logged steps there is one row ``unknown`` per new worker.
    """
    parts = list(_parts(course, startup, str(run.info.run.get("source", {}).get("system"))))
    path = None if shown is None else _local_path(shown)
    carried = _carried(run, parts)
    rows = []
    for part, (records, size) in zip(parts, carried, strict=True):
        row = {"operation": number, "worker": part.worker, "side": part.side, "step": part.step}
        row |= {"start_ns": part.start_ns, "duration_ns": part.end_ns - part.start_ns}
        rows.append(row | {"path_ns": _on_path(path, part), "records": records, "bytes": size})
    return sorted(rows, key=lambda row: (row["start_ns"], row["worker"], row["side"], row["step"]))


def _parts(course: Course, startup: dict[int, int], system: str) -> Iterator[_Part]:
    operation = course.operation
    for mark in operation.marks:
        yield _Part(mark.worker, mark.side, mark.step, mark.start_ns, mark.end_ns)
    for birth in operation.births:
        if startup_ns := startup.get(birth.worker):
            yield _Part(birth.worker, _CLIENT, _STARTUP, birth.first_ns - startup_ns, birth.first_ns)
        client_marks = [mark for mark in operation.marks if mark.worker == birth.worker and mark.side == _CLIENT]
        if not operation.marks and system == _SPARK:
            yield _Part(birth.worker, _CLIENT, "request_to_added", birth.spawned_ns, birth.first_ns)
            work = operation.worked_ns.get(birth.worker)
            if work is not None:
                yield _Part(birth.worker, _CLIENT, "added_to_first_launch", birth.first_ns, work)
        elif not operation.marks:
            yield _Part(birth.worker, _UNKNOWN, _UNKNOWN, birth.spawned_ns, max(operation.ready_ns, birth.spawned_ns))
        else:
            yield from _gaps(birth, client_marks, operation.ready_ns)


def _gaps(birth: Birth, client_marks: list[Mark], ready_ns: int) -> Iterator[_Part]:
    """Yield what a client's steps leave out, from its spawn until it was ready."""
    done_ns = birth.spawned_ns
    for mark in [*client_marks, Mark(birth.worker, "", ready_ns, ready_ns)]:
        if done_ns < mark.start_ns <= ready_ns:
            yield _Part(birth.worker, _CLIENT, _GAP, done_ns, mark.start_ns)
        done_ns = max(done_ns, mark.end_ns)


def _local_path(shown: Snapshot) -> pl.DataFrame:
    path = pl.DataFrame(pl.from_arrow(critical_path(shown).steps))
    return path.filter(~IS_MESSAGE).select("worker", "start_ns", end_ns=END)


def _on_path(path: pl.DataFrame | None, part: _Part) -> int:
    if path is None:
        return 0
    inside_ns = pl.min_horizontal("end_ns", pl.lit(part.end_ns)) - pl.max_horizontal("start_ns", pl.lit(part.start_ns))
    return int(path.filter(pl.col("worker") == part.worker).select(inside_ns.clip(lower_bound=0).sum()).item())


def _carried(run: Run, parts: list[_Part]) -> list[tuple[int | None, int | None]]:
    """Return what bootstrap messages a worker sent or read in each piece: records and bytes."""
    channels = run.channels.filter(pl.col("type") == _BOOTSTRAP)["channel"]
    if not len(channels) or not parts:
        return [(None, None)] * len(parts)
    bootstrap_messages = (
        run.scan("edges")
        .filter(IS_MESSAGE, pl.col("channel").is_in(channels.implode()))
        .select("start_ns", "records", "bytes", end_ns=END, sender=worker_of("src"), reader=worker_of("dst"))
        .collect()
    )

    begins = Counter((part.worker, part.start_ns) for part in parts)

    def inside(part: _Part, worker: str, t_ns: str) -> pl.Expr:
        """Say whether somebody sent or read in a piece: its end is the next one's, if one begins there."""
        others = begins[part.worker, part.end_ns] - (part.start_ns == part.end_ns)
        return (pl.col(worker) == part.worker) & pl.col(t_ns).is_between(
            part.start_ns, part.end_ns, closed="left" if others else "both"
        )

    def carried(part: _Part) -> tuple[int | None, int | None]:
        sent, read = inside(part, "sender", "start_ns"), inside(part, "reader", "end_ns")
        messages = bootstrap_messages.filter(sent | read)
        return tuple(int(messages[name].sum()) if messages[name].count() else None for name in ("records", "bytes"))  # type: ignore[return-value]

    return [carried(part) for part in parts]


def held_up(run: Run, number: int, course: Course, shown: Snapshot | None) -> list[Row]:
    """Charge the waiting from the request until latencies settled.

    Parameters
    ----------
    run
        The run.
    number
        Number of the operation.
    course
        The operation.
    shown
        As from `looked_at`.

    Returns
    -------
    list of dict
        Rows of `RESCALE_HELD_UP`, which add up to the waiting; heaviest first.
    """
    if shown is None:
        return []
    operation = course.operation
    taking_part = operation.new | {birth.by_worker for birth in operation.births}
    taking_part |= {mark.worker for mark in operation.marks}
    step = pl.col("operator").replace_strict(names_of_marks(run), default=None, return_dtype=pl.String)
    cause = (
        pl.when(pl.col("type").is_in(MESSAGES))
        .then(pl.lit("transfer"))
        .when(pl.col("step").is_not_null())
        .then(pl.lit("step"))
        .when(pl.col("by_worker").is_in(sorted(taking_part)))
        .then(pl.lit("other_work"))
        .otherwise(pl.lit("rest"))
    )
    charged = blame.blame(view_of(shown)).with_columns(step=step).with_columns(cause=cause)
    keys = ["worker", "by_worker", "cause", "step"]
    summed = charged.group_by(keys).agg(pl.col("blamed_ns").sum())
    rows = summed.sort("blamed_ns", *keys, descending=[True, False, False, False, False], nulls_last=True)
    return [{"operation": number, **row} for row in rows.to_dicts()]
