"""What an application's time is bound by: the stage with most of the critical path, its operators, and the resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from pag_graph.diagnosis.spark.look import seconds
from pag_graph.sources.spark.operators import stage_nodes

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.causes import Diagnosis
    from pag_graph.sources.spark.mapping import Mapped

__all__ = ["Bound", "bound_by"]

_RESOURCES = {
    "cpu_ns": "the processor",
    "gc_ns": "garbage collection",
    "fetch_wait_ns": "waiting for shuffle blocks",
    "write_ns": "writing shuffle files",
    "deserialize_ns": "loading code and data for tasks",
    "delay_ns": "launching and finishing tasks",
}
"""Columns of the table of stages, in words."""

_WAITING = "waiting for something outside of the JVM (storage, network, Python, a sleep)"


class Bound(NamedTuple):
    """Where most of the time went, in nanoseconds of the critical path."""

    where: str
    """The stage, or the driver."""
    stage: int | None
    operators: list[str]
    """Plan nodes that the stage worked for."""
    path_ns: int
    share: float
    """Of the time since the first job."""
    resource: str
    resource_share: float | None
    """Part of the stage's core time; None where the log did not measure it."""

    @property
    def text(self) -> str:
        """Spell it for people."""
        nodes = ", ".join(self.operators[:4])
        doing = f" ({nodes})" if nodes else ""
        resource_part = "" if self.resource_share is None else f", {self.resource_share:.0%} of its tasks' time"
        time_part = f"{seconds(self.path_ns)}, {self.share:.0%} of the time since the first job"
        return f"{self.where}{doing}: {time_part}; bound by {self.resource}{resource_part}"

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dict(self._asdict())


def bound_by(mapped: Mapped, diagnosis: Diagnosis, steps: pl.DataFrame) -> Bound:
    """Say what the time of an application is bound by.

    Parameters
    ----------
    mapped, diagnosis
        Of one log.
    steps
        Its critical path, with `what` each step was for.

    Returns
    -------
    Bound
        Of the stage with most time on the path, or of the driver if that has more.
    """
    first_job_ns = diagnosis.span_ns - diagnosis.active_ns
    end = pl.col("start_ns") + pl.col("duration_ns")
    since = (end - pl.max_horizontal("start_ns", first_job_ns)).clip(lower_bound=0)
    steps = steps.with_columns(duration_ns=since)
    rows = steps.group_by("what").agg(pl.col("duration_ns").sum()).sort("duration_ns", "what", descending=[True, False])
    purpose, path = next(rows.iter_rows(), ("driver", 0))
    share = path / diagnosis.active_ns
    operators = mapped.operators
    keys = {operators.names[number]: key for key, number in operators.stages.items()}
    key = keys.get(purpose)
    if key is None:
        bound_to = "its own work, which is not in the log" if purpose == "driver" else "nothing that runs"
        return Bound(f"the {purpose}" if purpose == "driver" else str(purpose), None, [], path, share, bound_to, None)
    of_stage = (pl.col("stage") == key[0]) & (pl.col("stage_attempt") == key[1])
    stage_row = diagnosis.stages.filter(of_stage).row(0, named=True)
    resource, resource_share = _resource(stage_row)
    stage_label = f"stage {key[0]}" + (f", attempt {key[1] + 1}" if key[1] else "")
    return Bound(
        stage_label, key[0], stage_nodes(mapped.schedule).get(key[0], []), path, share, resource, resource_share
    )


def _resource(stage_row: dict[str, Any]) -> tuple[str, float | None]:
    """Return what most of a stage's core time went into, and which part."""
    busy = max(int(stage_row["busy_ns"]), 1)
    if stage_row["cpu_ns"] is None:
        measured = {name: stage_row[name] for name in _RESOURCES if name != "cpu_ns"}
        work_ns = busy - sum(measured.values())
        measured_most = max(measured, key=lambda name: measured[name])
        if measured[measured_most] >= work_ns:
            return _RESOURCES[measured_most], measured[measured_most] / busy
        return "the tasks' own work; the log has no processor time", None
    times_ns = {words: int(stage_row[name]) for name, words in _RESOURCES.items()}
    measured_ns = sum(int(stage_row[name]) for name in ("cpu_ns", "gc_ns", "fetch_wait_ns", "write_ns"))
    times_ns[_WAITING] = max(0, int(stage_row["run_ns"]) - measured_ns)
    largest = max(times_ns, key=lambda words: times_ns[words])
    return largest, times_ns[largest] / busy
