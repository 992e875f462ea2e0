"""Traces of PyTorch's profiler become a canonical trace: threads and streams of all ranks as workers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.model.enums import RuleSet, Severity
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_WORKERS
from pag_graph.sources.collector import without_collector
from pag_graph.sources.foreign_files import fingerprint
from pag_graph.sources.kineto.collectives import ClockEstimate, Joined, Joins, estimate_clocks, join_collectives
from pag_graph.sources.kineto.event_text import looks_like_events
from pag_graph.sources.kineto.operators import Operators
from pag_graph.sources.kineto.rank import Rank, make_rank
from pag_graph.sources.kineto.rank_log import SLICE, SYNC, RankLog, read_rank
from pag_graph.sources.kineto.spans import CHANNELS, Spans, event_tables
from pag_graph.sources.kineto.steps import Steps, complete_steps, find_steps, step_starts
from pag_graph.sources.kineto.streams import StreamFindings, write_streams
from pag_graph.sources.kineto.threads import ThreadFindings, write_flows, write_threads
from pag_graph.store.findings import findings, no_findings
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.safe_files import check_folder
from pag_graph.store.trace import write_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["FORMAT", "Mapped", "convert", "map_files", "mismatch", "write_mapped"]

FORMAT = "kineto"
"""Name of the format."""

SUFFIXES = (".json", ".json.gz")
_MICROSECOND = 1_000
_MOST_MISSING = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """Ranks on one clock, and what is written of them: small tables, spans and messages."""

    ranks: list[Rank]
    spans: Spans
    operators: Operators
    steps: Steps
    joins: Joins
    offsets: list[int]
    """Per worker."""
    meta: TraceMeta
    workers: pa.Table
    findings: pa.Table

    def events(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the events with names of files."""
        return event_tables(self.spans, self.offsets, self.steps.rows(), first_epoch=self.steps.first)


def _trace_files(source: Path) -> tuple[list[Path], dict[Path, str]]:
    """Return the traces that a path names, itself or those of a folder by name; and why other JSON of it is none."""
    if not source.is_dir():
        return [source], {}
    check_folder(source)
    files = sorted(file for file in source.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())
    reasons = {file: reason for file in files if (reason := looks_like_events(file)) is not None}
    return [file for file in files if file not in reasons], reasons


def mismatch(source: Path) -> str | None:
    """Say why `source` holds no Chrome trace; None if it looks as if it did."""
    if source.is_dir():
        return None if _trace_files(source)[0] else "a folder without a Chrome trace (.json, .json.gz)"
    return looks_like_events(source)


def convert(source: Path, target: Path, *, replace: bool = False) -> TraceMeta:
    """Convert traces of PyTorch's profiler, one per rank, to a canonical trace.

    Parameters
    ----------
    source
        A file, or a folder with one per rank.
    target
        Directory of the trace to write.
    replace
        Whether to replace a trace that is there.

    Returns
    -------
    TraceMeta
        Also in the trace. `dropped` counts events that are no rows.

    Raises
    ------
    TraceFormatError
        If a file holds no events, or two are of one rank.
    """
    mapped = map_files([source])
    write_mapped(mapped, target, replace=replace)
    return mapped.meta


def write_mapped(mapped: Mapped, target: Path, *, replace: bool = False) -> None:
    """Write mapped ranks as a canonical trace.

    Parameters
    ----------
    mapped
        The ranks.
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
    channels = [{"channel": number, "scope": "", "type": name} for number, name in enumerate(CHANNELS)]
    write_trace(
        target,
        meta=mapped.meta,
        events=mapped.events(),
        operators=mapped.operators.table(),
        channels=pa.Table.from_pylist(channels, TRACE_CHANNELS),
        workers=mapped.workers,
        findings=mapped.findings,
        replace=replace,
    )


@without_collector()
def map_files(
    places: Sequence[Path], *, steps: str | None = None, progress: Callable[[str, int, int], None] | None = None
) -> Mapped:
    """Read the traces of all ranks and map them.

    Parameters
    ----------
    places
        Files, one per rank, or folders of them.
    steps
        A regular expression: annotations of the main thread that are steps, where the profiler was told of none.
    progress
        Called with (label, done, all).

    Returns
    -------
    Mapped
        O(n log n) in the events, all of them in memory.

    Raises
    ------
    TraceFormatError
        If a file holds no events, or two are of one rank.
    InvalidParameterError
        If `steps` is no regular expression.
    """
    named = [_trace_files(place) for place in places]
    files = [file for traces, _ in named for file in traces]
    if not files:
        message = f"There is no trace at {', '.join(map(str, places)) or 'no place'}."
        raise TraceFormatError(message, "Give files that torch.profiler wrote (.json, .json.gz).")
    pattern = _pattern(steps)
    logs = []
    for number, file in enumerate(files):
        if progress is not None:
            progress("reading", number, len(files))
        logs.append(read_rank(file))
    guessed = _number_ranks(logs)
    logs.sort(key=lambda log: log.rank)
    by_rank = {log.rank: log for log in logs}
    joins = join_collectives(by_rank, {log.rank: step_starts(log, pattern) for log in logs})
    clocks = _aligned(by_rank, joins)
    ranks: list[Rank] = []
    for log in logs:
        ranks.append(make_rank(log, log.rank, sum(rank.workers for rank in ranks)))
    joined = _collectives_to_write(ranks, joins)
    origin = min(int(rank.log.t.min()) for rank in ranks)
    finish = max(int(rank.log.end.max()) for rank in ranks)
    spans, operators, tables = Spans(), Operators(), [*guessed, *(_log_findings(rank.log) for rank in ranks)]
    tables += [
        findings("file_left_out", Severity.WARNING, f"not read: {reason}", file=file.name)
        for _, left_out in named
        for file, reason in left_out.items()
    ]
    for rank in ranks:
        rank.origin = origin
        if pattern is not None:
            rank.steps = find_steps(rank, pattern)
        collectives_of_rank = joined.get(rank.number, {})
        of_threads = write_threads(
            rank, spans, operators, collectives_of_rank, tolerance_ns=_tolerance(rank.log), step_pattern=pattern
        )
        rank.log.dropped += write_flows(rank, spans) + Counter({"activities that take no time": of_threads.instants})
        of_streams = write_streams(rank, spans, operators, collectives_of_rank, finish=finish)
        tables.append(_rank_findings(rank, of_threads, of_streams))
    return Mapped(
        ranks=ranks,
        spans=spans,
        operators=operators,
        steps=complete_steps(ranks, finish),
        offsets=[clocks[rank.number].offset for rank in ranks for _ in range(rank.workers)],
        joins=joins,
        meta=_meta(files, ranks),
        workers=_worker_table(ranks, clocks),
        findings=pa.concat_tables(
            [no_findings(), *tables, *_step_findings(ranks), *_join_findings(by_rank, joins, clocks)]
        ),
    )


def _pattern(steps: str | None) -> re.Pattern[str] | None:
    try:
        return None if steps is None else re.compile(steps)
    except re.error as error:
        message = f"{steps!r} is not a regular expression: {error}."
        raise InvalidParameterError(message, "Such as 'train_step'.") from error


def _tolerance(log: RankLog) -> int:
    """Return how far rounding may have moved ends: a microsecond, if the clock shows no finer times."""
    whole_microseconds = not (log.t % _MICROSECOND).any() and not ((log.end - log.t) % _MICROSECOND).any()
    return _MICROSECOND if whole_microseconds else 0


def _number_ranks(logs: Sequence[RankLog]) -> list[pa.Table]:
    """Give every trace a rank, and refuse two of one.

    Raises
    ------
    TraceFormatError
        If two traces are of one rank.
    """
    tables = []
    by_rank: dict[int, RankLog] = {}
    for log in sorted(logs, key=lambda log: not log.rank_stated):
        if log.rank < 0:
            log.rank = next(number for number in range(len(logs) + 1) if number not in by_rank)
        if log.rank in by_rank:
            message = f"{log.file} and {by_rank[log.rank].file} are both of rank {log.rank}."
            raise TraceFormatError(message, "Give one trace per rank.", {"file": str(log.file), "rank": log.rank})
        if not log.rank_stated and len(logs) > 1:
            action = "the trace states no rank; taken from the file's name or order"
            tables.append(
                findings("rank_guessed", Severity.WARNING, action, file=log.file.name, observed=log.rank, unit="rank")
            )
        by_rank[log.rank] = log
    return tables


def _log_findings(log: RankLog) -> pa.Table:
    tables = [
        findings(name, Severity.WARNING, action, file=log.file.name, observed=count, unit="events")
        for name, action, count in log.found
    ]
    return pa.concat_tables([no_findings(), *tables])


def _rank_findings(rank: Rank, threads: ThreadFindings, streams: StreamFindings) -> pa.Table:
    log = rank.log
    has_syncs = len(log.rows_of(SYNC)) > 0
    of_graphs = ""
    if count := streams.unexplained_graphs:
        of_graphs = f" ({count:,} before or in CUDA graphs, of which profilers may leave kernels out)"
    counts = [
        ("launch_missing", "no call has the activity's correlation; the gap before it is unknown", streams.unlaunched),
        ("kernel_before_launch", "begins before its call; taken as launched when it begins", streams.before_launch),
        ("correlation_reused", "several calls have it; the nearest one before counts", rank.reused),
        ("sync_before_kernel", "returned before what it waits for had ended; no wait", threads.before_kernel),
        (
            "gap_unexplained",
            "a stream rests, and neither launch nor wait explains it; unknown" + of_graphs,
            streams.unexplained,
        ),
        ("activities_overlap", "of one stream or thread; one of both is cut", streams.overlapping + threads.cut),
    ]
    tables = [
        findings(name, Severity.WARNING, action, file=log.file.name, observed=count, unit="activities")
        for name, action, count in counts
        if count
    ]
    if rank.streams and not has_syncs:
        action = "waits are inferred; record with experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)"
        tables.append(findings("sync_events_missing", Severity.INFO, action, file=log.file.name))
    return pa.concat_tables([no_findings(), *tables])


def _step_findings(ranks: Sequence[Rank]) -> Iterator[pa.Table]:
    """Say which ranks lack steps of others: the first step of one may be a later one of another."""
    steps_of_all = {step for rank in ranks for step, _, _ in rank.steps}
    for rank in ranks:
        lacking = steps_of_all - {step for step, _, _ in rank.steps}
        if lacking:
            action = "other ranks mark these steps too; without ProfilerStep each rank's are counted from its first"
            file, count = rank.log.file.name, len(lacking)
            yield findings("steps_missing", Severity.WARNING, action, file=file, observed=count, unit="steps")


def _aligned(logs: Mapping[int, RankLog], joins: Joins) -> dict[int, ClockEstimate]:
    """Move the clocks of all ranks to that of the lowest one, and say by how much.

    Raises
    ------
    TraceFormatError
        If nothing says how they differ.
    """
    domains = {rank: _clock_of(log) for rank, log in logs.items()}
    estimates = estimate_clocks(joins, domains)
    for rank, domain in domains.items():
        if domain not in estimates:
            if not _overlap(logs[rank], logs[min(logs)]):
                message = f"{logs[rank].file} and {logs[min(logs)].file} have neither a collective nor time in common."
                raise TraceFormatError(message, "Give traces of the same steps.", {"file": str(logs[rank].file)})
            estimates[domain] = ClockEstimate(0, -1)
    estimate_of_rank = {rank: estimates[domain] for rank, domain in domains.items()}
    for rank, log in logs.items():
        log.t += estimate_of_rank[rank].offset
        log.end += estimate_of_rank[rank].offset
    for collective in joins.collectives:
        collective.parts = [
            part._replace(
                begin=part.begin + estimate_of_rank[part.rank].offset, end=part.end + estimate_of_rank[part.rank].offset
            )
            for part in collective.parts
        ]
    return estimate_of_rank


def _clock_of(log: RankLog) -> str:
    return f"host {log.host}" if log.host else f"rank {log.rank}"


def _overlap(log: RankLog, other_log: RankLog) -> bool:
    return bool(log.t.min() <= other_log.end.max() and other_log.t.min() <= log.end.max())


def _collectives_to_write(ranks: Sequence[Rank], joins: Joins) -> dict[int, dict[int, Joined]]:
    """Return what is to be written of each rank's collectives, by row."""
    numbered = {rank.number: rank for rank in ranks}
    by_rank: dict[int, dict[int, Joined]] = {rank.number: {} for rank in ranks}
    for collective in joins.collectives:
        workers = {}
        for part in collective.parts:
            workers[part.rank, part.row] = numbered[part.rank].worker_of(part.row)
        for part in collective.parts:
            by_rank[part.rank][part.row] = Joined(collective, part, workers)
    return by_rank


def _join_findings(
    logs: Mapping[int, RankLog], joins: Joins, clocks: Mapping[int, ClockEstimate]
) -> Iterator[pa.Table]:
    counts = (
        ("collective_without_group", "the trace names no group of ranks; time in it is transfer", joins.without_group),
        ("collective_unjoined", "another rank's trace has no counterpart; time in it is transfer", joins.unjoined),
    )
    for name, action, of_ranks in counts:
        for rank, count in sorted(of_ranks.items()):
            file = logs[rank].file.name
            yield findings(name, Severity.WARNING, action, file=file, observed=count, unit="collectives")
    for rank, count in sorted(joins.missing.items())[:_MOST_MISSING]:
        action = f"there is no trace of rank {rank}; time in its collectives is transfer"
        yield findings("rank_missing", Severity.WARNING, action, observed=count, unit="collectives")
    for rank, clock in clocks.items():
        if clock.uncertainty:
            action = "its clock was moved by `observed`; skew below `limit` is undecided"
            if clock.uncertainty < 0:
                action = "no collective says how far off its clock is; taken as it is"
            yield findings(
                "clock_estimated" if clock.uncertainty > 0 else "clock_not_bounded",
                Severity.INFO if clock.uncertainty > 0 else Severity.WARNING,
                action,
                file=logs[rank].file.name,
                observed=clock.offset,
                limit=clock.uncertainty if clock.uncertainty > 0 else None,
                unit="ns",
            )


def _meta(files: Sequence[Path], ranks: Sequence[Rank]) -> TraceMeta:
    dropped: dict[str, int] = {}
    for rank in ranks:
        for reason, count in rank.log.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return TraceMeta(
        trace_id=fingerprint((file.name, file) for file in sorted(files, key=lambda file: file.name)),
        source=TraceSource(system="pytorch", version="", format=FORMAT),
        workers=sum(rank.workers for rank in ranks),
        dropped=dict(sorted(dropped.items())),
        rules=RuleSet.STATED,
    )


def _worker_table(ranks: Sequence[Rank], clocks: Mapping[int, ClockEstimate]) -> pa.Table:
    rows: list[dict[str, Any]] = []
    processes: dict[tuple[int, Any], int] = {}
    for rank in ranks:
        log = rank.log
        place = {
            "host": log.host,
            "clock_domain": _clock_of(log),
            "offset_ns": clocks[rank.number].offset,
            "uncertainty_ns": clocks[rank.number].uncertainty if clocks[rank.number].uncertainty >= 0 else None,
        }
        # A profiler of PyTorch looks at one process; traces of other programs may hold several.
        is_other = len(log.rows_of(SLICE)) > 0
        several = is_other and len({log.threads[thread][0] for thread in rank.thread_workers}) > 1
        for thread, worker in rank.thread_workers.items():
            pid, tid = log.threads[thread]
            name = "main thread" if thread == rank.main else log.thread_names.get(thread) or f"thread {tid}"
            label = f"rank {rank.number} process {pid} {name}" if several else f"rank {rank.number} {name}"
            process = processes.setdefault((rank.number, ("host", pid if is_other else "")), len(processes))
            rows.append({"worker": worker, "process": process, "name": label[:200], **place})
        for (device, number), stream in rank.streams.items():
            process = processes.setdefault((rank.number, device), len(processes))
            label = f"rank {rank.number} GPU {device} stream {number}"
            rows.append({"worker": stream.worker, "process": process, "name": label, **place})
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["worker"]), TRACE_WORKERS)
