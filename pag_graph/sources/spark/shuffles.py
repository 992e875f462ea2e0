"""Shuffle data as messages from map tasks to reduce tasks, with bytes, and never more than a bounded number.

Spark logs per reduce task how many bytes came from its own executor and from others, and per map task how many it
wrote. A message goes from the last map task of each executor that wrote (its block server has all of them then) to
the reduce task: exactly the local bytes from the own executor; the remote bytes divided among the others in the
proportion of what they wrote. Where a pair of stages would need more than `PAIRS` messages, every reduce task gets one
message, from the map task that ended last, with all its bytes.

Definitions stand in `docs/spark.md`, "Messages".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.sources.spark.log_tables import LogFinding
from pag_graph.sources.spark.schedule import attempt_key, stage_attempt
from pag_graph.sources.spark.task_rows import widened

if TYPE_CHECKING:
    from pag_graph.sources.spark.schedule import Schedule

__all__ = ["FIRST_SHUFFLE", "PAIRS", "Shuffles", "shuffle_messages", "stage_parents"]

FIRST_SHUFFLE = 10
"""First channel of shuffles; those below belong to the driver."""

PAIRS = 20_000
"""Most messages between two stages that are told apart by executor."""

# What of a task matters to messages.
_READ = (
    *("stage", "stage_attempt", "job", "core", "executor", "succeeded", "launch", "done", "free"),
    *("remote_bytes", "local_bytes", "shuffle_read_records", "shuffle_write_bytes"),
)

_SCHEMA = {
    "channel": pl.Int64,
    "source": pl.Int64,
    "target": pl.Int64,
    "source_core": pl.Int64,
    "target_core": pl.Int64,
    "bytes": pl.Int64,
    "records": pl.Int64,
    "message_seq": pl.Int64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffles:
    """Messages between tasks."""

    messages: pl.DataFrame
    """One row per message: channel, row of the tasks that sent and read it, their cores, bytes, number."""
    channels: list[tuple[tuple[int, int], tuple[int, int]]]
    """Per channel from `FIRST_SHUFFLE` on: stage and attempt that wrote, and that read."""
    findings: list[LogFinding]


def shuffle_messages(schedule: Schedule) -> Shuffles:
    """Return the data messages of all shuffles.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    Shuffles
        The bytes of the messages to a reduce task sum to what it read, but for bytes of which the log shows no sender:
        those are a finding.
    """
    parents = stage_parents(schedule)
    facts = schedule.tasks.select(
        reads=((pl.col("remote_bytes") > 0) | (pl.col("local_bytes") > 0)) & pl.col("job").is_not_null(),
        writes=pl.col("succeeded") & (pl.col("shuffle_write_bytes") > 0),
    )
    readers = _Groups(schedule.tasks, attempt_key(pl.col("stage"), pl.col("stage_attempt")), facts["reads"])
    writers = _Groups(schedule.tasks, pl.col("stage"), facts["writes"])
    del facts
    frames: list[pl.DataFrame] = []
    channels: list[tuple[tuple[int, int], tuple[int, int]]] = []
    unknown = joined = read_bytes = 0
    for key in readers.keys:
        stage, attempt = stage_attempt(key)
        stage_tasks = readers[key]
        job = schedule.jobs[schedule.stage_jobs[stage, attempt]].job
        sources = [writer for writer in parents.get((job, stage), []) if writer in writers.keys]
        if not sources:
            unknown += stage_tasks.height
            continue
        read_bytes += int(stage_tasks.select(pl.col("remote_bytes").sum() + pl.col("local_bytes").sum()).item())
        by_stage = {writer: writers[writer] for writer in sources}
        totals = [int(by_stage[writer]["shuffle_write_bytes"].sum()) for writer in sources]
        shares = _share(stage_tasks, totals)
        for parent, read_share in zip(sources, shares, strict=True):
            writer_tasks = by_stage[parent]
            writer_attempt = int(writer_tasks["stage_attempt"].max())  # type: ignore[arg-type]
            channel = FIRST_SHUFFLE + len(channels)
            stage_messages, merged = _pairs(read_share, writer_tasks, channel)
            joined += merged
            if stage_messages.height:
                channels.append(((parent, writer_attempt), (stage, attempt)))
                frames.append(stage_messages)
    unsent = read_bytes - sum(int(stage_messages["bytes"].sum()) for stage_messages in frames)
    findings = _findings(unknown=unknown, joined=joined, unsent=unsent)
    if not frames:
        return Shuffles(messages=pl.DataFrame(schema=_SCHEMA), channels=channels, findings=findings)
    messages = pl.concat(frames).sort("channel", "source_core", "target", maintain_order=True)
    messages = messages.with_columns(message_seq=pl.int_range(pl.len(), dtype=pl.Int64)).select(
        pl.col(name).cast(kind) for name, kind in _SCHEMA.items()
    )
    return Shuffles(messages=messages, channels=channels, findings=findings)


def _findings(*, unknown: int, joined: int, unsent: int) -> list[LogFinding]:
    """Say what the log does not show of its shuffles."""
    return [
        LogFinding(finding=name, severity="info", observed=observed, unit=unit, detail=detail)
        for name, observed, unit, detail in (
            (
                "shuffle_source_unknown",
                unknown,
                "tasks",
                "tasks read shuffle data, but the log does not say which stage wrote it; no data messages to them",
            ),
            (
                "shuffle_messages_joined",
                joined,
                "tasks",
                f"more than {PAIRS} messages between two stages: one per reading task, from the last task that wrote",
            ),
            (
                "shuffle_bytes_unsent",
                unsent,
                "bytes",
                "bytes that tasks read, but no task in the log had written by then; no data messages for them",
            ),
        )
        if observed
    ]


class _Groups:
    """Tasks group by group: all of them at once would be in memory twice."""

    def __init__(self, tasks: pl.DataFrame, key: pl.Expr, in_group: pl.Series) -> None:
        rows = np.flatnonzero(in_group.to_numpy()).astype(np.int32)
        attempts = tasks.select(
            pl.col("stage").filter(in_group).cast(pl.Int64), pl.col("stage_attempt").filter(in_group)
        )
        keys = attempts.select(key).to_series().to_numpy()
        order = np.argsort(keys, kind="stable")
        rows, keys = rows[order], keys[order]
        begins = np.flatnonzero(np.diff(keys, prepend=-1))
        group_keys = keys[begins]
        self._tasks = tasks.select(_READ)
        self._rows = dict(zip(group_keys.tolist(), np.split(rows, begins[1:]), strict=False))
        self.keys = dict.fromkeys(group_keys[np.argsort(rows[begins])].tolist())
        """In the order of their first tasks."""

    def __getitem__(self, key: int) -> pl.DataFrame:
        """Return the tasks of a group in their order, with their rows in the table as `number`."""
        rows = self._rows[key]
        group_tasks: pl.DataFrame = self._tasks[rows]
        return widened(group_tasks).with_columns(number=pl.Series(rows).cast(pl.Int64))


def _share(stage_tasks: pl.DataFrame, totals: list[int]) -> list[pl.DataFrame]:
    """Divide what each task read among the stages that wrote, in the proportion of what they wrote."""
    undivided = {
        name: stage_tasks[name].to_numpy().astype(np.int64)
        for name in ("remote_bytes", "local_bytes", "shuffle_read_records")
    }
    shares = []
    for place, total in enumerate(totals):
        below = sum(totals[place:])
        columns = {}
        for name, amounts in undivided.items():
            share = amounts if place == len(totals) - 1 else (amounts * (total / below)).astype(np.int64)
            columns[name] = share
        undivided = {name: amounts - columns[name] for name, amounts in undivided.items()}
        shares.append(stage_tasks.with_columns(pl.Series(name, amounts) for name, amounts in columns.items()))
    return shares


def _pairs(readers: pl.DataFrame, writers: pl.DataFrame, channel: int) -> tuple[pl.DataFrame, int]:
    """Return the messages from one stage to the tasks of another one, and how many tasks got a joined one."""
    by_end = writers.sort("done", "number")
    senders = by_end.group_by("executor", maintain_order=True).agg(
        pl.col("number").last().alias("source"),
        pl.col("core").last().alias("source_core"),
        pl.col("free").last(),
        pl.col("shuffle_write_bytes").sum().alias("written"),
    )
    target = readers.select(
        "launch",
        "remote_bytes",
        "local_bytes",
        "shuffle_read_records",
        target="number",
        target_core="core",
        target_executor="executor",
    )
    if target.height * senders.height > PAIRS:
        messages = _from_the_last(target, by_end.tail(1))
        joined = messages.height
    else:
        messages = _from_each_executor(target, senders)
        joined = 0
    message_columns = ("source", "target", "source_core", "target_core", "bytes", "records")
    return messages.select(pl.lit(channel).alias("channel"), *message_columns), joined


def _from_the_last(target: pl.DataFrame, sender: pl.DataFrame) -> pl.DataFrame:
    """Give every reading task one message, from the task that wrote last."""
    return target.filter(pl.col("launch") >= sender["free"][0]).with_columns(
        source=pl.lit(int(sender["number"][0])),
        source_core=pl.lit(int(sender["core"][0])),
        bytes=pl.col("remote_bytes") + pl.col("local_bytes"),
        records=pl.col("shuffle_read_records"),
    )


def _from_each_executor(target: pl.DataFrame, senders: pl.DataFrame) -> pl.DataFrame:
    """Divide what each task read among the executors that wrote; bytes and records add up to what it read."""
    pairs = target.join(senders, how="cross", maintain_order="left_right").filter(pl.col("free") <= pl.col("launch"))
    same_executor = pl.col("executor") == pl.col("target_executor")
    pairs = pairs.filter(pl.when(same_executor).then(pl.col("local_bytes") > 0).otherwise(pl.col("remote_bytes") > 0))
    weight = pl.when(same_executor).then(0).otherwise(pl.col("written"))
    pairs = pairs.with_columns(weight=weight).with_columns(
        reached=pl.col("weight").cum_sum().over("target"), whole=pl.col("weight").sum().over("target")
    )
    # Whole numbers that add up: the difference of what was reached so far, rounded down each time.
    upto = (pl.col("remote_bytes") * (pl.col("reached") / pl.col("whole"))).floor().cast(pl.Int64)
    before = (
        (pl.col("remote_bytes") * ((pl.col("reached") - pl.col("weight")) / pl.col("whole"))).floor().cast(pl.Int64)
    )
    messages = pairs.with_columns(
        bytes=pl.when(same_executor).then("local_bytes").otherwise(upto - before)
    ).with_columns(share=pl.col("bytes") / pl.col("bytes").sum().over("target"))
    so_far = (pl.col("shuffle_read_records") * pl.col("share").cum_sum().over("target")).round().cast(pl.Int64)
    messages = messages.with_columns(so_far=so_far).with_columns(
        records=pl.col("so_far") - pl.col("so_far").shift(1, fill_value=0).over("target")
    )
    return messages.filter(pl.col("bytes") > 0)


def stage_parents(schedule: Schedule) -> dict[tuple[int, int], list[int]]:
    """Return for every stage of a job the stages that wrote what it reads: by job and stage, as the log numbers them.

    A later job lists stages that an earlier one has run, under new numbers; they hold the same RDD.
    """
    log = schedule.log
    stages_run = {stage for stage, _ in schedule.stage_jobs}
    rdds: dict[int, int] = {}
    for stage_row in log.stages.iter_rows(named=True):
        if stage_row["rdd"] is not None:
            rdds.setdefault(stage_row["rdd"], stage_row["stage"])
    facts = {(stage_row["job"], stage_row["stage"]): stage_row for stage_row in log.job_stages.iter_rows(named=True)}
    stage_rows = {stage_row["stage"]: stage_row for stage_row in log.stages.iter_rows(named=True)}
    writers: dict[tuple[int, int], list[int]] = {}
    for (job, stage), stage_row in facts.items():
        writers[job, stage] = [
            writer
            for parent in stage_row["parents"] or (stage_rows.get(stage) or {}).get("parents") or []
            if (writer := _twin(facts.get((job, parent)), parent, stages_run, rdds)) is not None
        ]
    return writers


def _twin(stage_row: dict[str, object] | None, parent: int, stages_run: set[int], rdds: dict[int, int]) -> int | None:
    if parent in stages_run:
        return parent
    rdd = stage_row.get("rdd") if stage_row else None
    return rdds.get(rdd) if isinstance(rdd, int) else None
