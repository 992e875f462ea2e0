"""Converts an event log to the canonical trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from pag_graph.builder.engine import silent
from pag_graph.errors import TraceFormatError
from pag_graph.sources.foreign_files import fingerprint
from pag_graph.sources.spark.codecs import Stopped, decode
from pag_graph.sources.spark.follow import check_unit, trace_meta
from pag_graph.sources.spark.logfiles import find_logs, looks_like_log
from pag_graph.sources.spark.mapping import FORMAT, Mapped, finding_table, map_schedule
from pag_graph.sources.spark.memory_errors import enough_memory
from pag_graph.sources.spark.portion_reader import PortionReader
from pag_graph.sources.spark.portions import Portions
from pag_graph.sources.spark.reader import read_log
from pag_graph.sources.spark.schedule import infer_schedule
from pag_graph.sources.spark.texts import private
from pag_graph.store.held import scratch_folder
from pag_graph.store.trace import write_table, write_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pag_graph.sources.spark.log_tables import SparkLog
    from pag_graph.sources.spark.logfiles import LogFiles
    from pag_graph.sources.spark.portion_reader import Portion
    from pag_graph.store.meta import TraceMeta

__all__ = ["FORMAT", "convert", "map_log", "mismatch", "write_mapped"]


def mismatch(source: Path) -> str | None:
    """Say why `source` is no event log; None if it looks like one."""
    if looks_like_log(source):
        return None
    return "it is neither an event log of Spark nor a directory of a rolling one"


def convert(
    source: Path,
    target: Path,
    *,
    replace: bool = False,
    keep_texts: bool = False,
    epochs: str | None = None,
    progress: Callable[[str, int, int], None] = silent,
) -> TraceMeta:
    """Convert one event log to a canonical trace.

    Parameters
    ----------
    source
        File, or directory of a rolling log.
    target
        Directory of the trace to write.
    replace
        Whether to replace a trace that is there.
    keep_texts
        Whether to keep descriptions and other texts, as `read_log` says; nobody else may read the trace then.
    epochs
        What an epoch is, ``batch``, ``query`` or ``job``: then the log is mapped portion by portion, as when it is
        followed. Where absent it is mapped as a whole.
    progress
        Called with (label, done, all).

    Returns
    -------
    TraceMeta
        Also in the trace. `dropped` counts events that say nothing about time.

    Raises
    ------
    TraceFormatError
        If there is no log, or more than one.
    """
    logs = find_logs(source)
    if len(logs) > 1:
        message = f"{source} holds {len(logs)} event logs."
        raise TraceFormatError(
            message, "Convert one at a time, or ask for all with `pag spark`.", {"file": str(source)}
        )
    if epochs is not None:
        with private(keep_texts), enough_memory(logs[0]):
            return convert_portions(logs[0], target, check_unit(epochs), replace=replace, keep_texts=keep_texts)
    with private(keep_texts), enough_memory(logs[0]):
        mapped = map_log(read_log(logs[0], keep_texts=keep_texts, progress=progress))
        write_mapped(mapped, target, replace=replace)
    return mapped.meta


def map_log(log: SparkLog) -> Mapped:
    """Decide what a log leaves open, and map it.

    Parameters
    ----------
    log
        A log that was read. Unless somebody else holds it, its table of tasks goes while this works.

    Returns
    -------
    Mapped
        What `write_mapped` writes. The trace's id depends on the application, its start and its first task alone.
    """
    first_task = log.tasks.head(1).drop("output_lost", "cpu_ns").write_csv().encode()
    trace_id = fingerprint([("app", log.app_id.encode()), ("start", str(log.start_ms).encode()), ("first", first_task)])
    schedule = infer_schedule(log)
    # Unless somebody else holds it, the log's table of tasks goes before the mapping needs room.
    del log
    return map_schedule(schedule, trace_id)


def write_mapped(mapped: Mapped, target: Path, *, replace: bool = False) -> None:
    """Write a mapped log as a canonical trace.

    Parameters
    ----------
    mapped
        The log. Its events are made while they are written, some at a time.
    target
        Directory to write to.
    replace
        Whether a trace that is there may go.

    Raises
    ------
    StoreExistsError
        If there is something at `target`, and `replace` is false or it is no trace.
    StoreError
        If the file system refuses.
    """
    write_trace(
        target,
        meta=mapped.meta,
        events=mapped.events(),
        operators=mapped.operator_table,
        channels=mapped.channels,
        workers=mapped.workers,
        findings=mapped.findings,
        replace=replace,
    )


def convert_portions(
    log: LogFiles, target: Path, unit: str, *, replace: bool = False, keep_texts: bool = False
) -> TraceMeta:
    """Convert a log portion by portion: the trace that whoever follows it gets.

    Parameters
    ----------
    log
        Its files.
    target, replace, keep_texts
        As for `convert`.
    unit
        What an epoch is.

    Returns
    -------
    TraceMeta
        Also in the trace.
    """
    reader, portions = PortionReader(log.name.removesuffix(".inprogress"), unit, keep_texts=keep_texts), Portions()
    with scratch_folder("pag-spark-") as scratch:
        files: list[Path] = []
        for portion in _portions(log, reader):
            for table in portions.add(portion):
                files.append(scratch / f"portion-{len(files):09}.parquet")
                write_table(files[-1], table)
        meta = trace_meta(reader, portions, complete=reader.ended)
        write_trace(
            target,
            meta=meta,
            events=((file.stem, pq.read_table(file)) for file in files),
            **portions.tables,
            findings=finding_table(portions.findings(), reader.name),
            replace=replace,
        )
    return meta


def _portions(log: LogFiles, reader: PortionReader) -> Iterator[Portion]:
    for file in log.files:
        stops: list[Stopped] = []
        for line in reader.lines.of(decode(file, stopped=stops.append)):
            if (portion := reader.line(line)) is not None:
                yield portion
        for stop in stops:
            reader.stop(file.name, stop)
    if log.missing:
        reader.lack(log.missing)
    if (portion := reader.last(in_progress=log.in_progress)) is None:
        message = f"{log.name} is not an event log of Spark: none of its lines is an event."
        raise TraceFormatError(message, "Give the file or directory below spark.eventLog.dir.", {"file": log.name})
    yield portion
