"""Logs of current Timely, one set of files per worker, as a first adapter wrote them.

A directory with, for each worker N from 0::

    events-N.parquet      epoch, t, kind, id, src, dst, seq, n
    operators-N.csv       worker, id, addr, name
    channels-N.csv        worker, id, scope_addr, src_op, src_port, dst_op, dst_port, type
    meta-N.json           worker, peers, pid, clock_zero_unix_ns, timely

Kinds of events, and what their columns mean:

==  ===================  ========================================================================
0   start                id = operator
1   stop                 id = operator
2   data send            id = channel, src and dst = workers, seq, n = records
3   data receive         the same
4   progress send        id = channel, src = worker, dst = operator of the scope, seq, n = updates
5   progress receive     the same
6   park                 n = time limit in ns, -1 for none
7   unpark
8   epoch end            n = epoch
9   operator shut down   id = operator; no event of contract 1
10  progress pushed      id = operator
11  progress channel     id = channel; no event of contract 1
==  ===================  ========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from pag_graph.errors import TraceFormatError
from pag_graph.model.enums import EventKind
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.sources.foreign_files import Schema, fingerprint, iter_frames, read_facts, read_rows, refuse_rows
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.trace import write_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FORMAT = "timely-prototype"
"""Name of the format."""

_KINDS = {
    0: EventKind.START,
    1: EventKind.STOP,
    2: EventKind.SEND,
    3: EventKind.RECEIVE,
    4: EventKind.PROGRESS_SEND,
    5: EventKind.PROGRESS_RECEIVE,
    6: EventKind.PARK,
    7: EventKind.UNPARK,
    8: EventKind.EPOCH_END,
    10: EventKind.PUSH_PROGRESS,
}
_DROPPED = {9: "shutdown", 11: "communication_channel"}
_COLUMNS: Schema = dict.fromkeys(("epoch", "t", "kind", "id", "src", "dst", "seq", "n"), pl.Int64)
_PART_ROWS = 4 * 1024 * 1024


def mismatch(source: Path) -> str | None:
    """Say why `source` is not of this format; None if it looks as if it were."""
    if not source.is_dir():
        return "it is not a directory"
    if not any(source.glob("meta-*.json")):
        return "the directory holds no meta-N.json"
    return None


def convert(source: Path, target: Path, *, replace: bool = False) -> TraceMeta:
    """Convert a directory of logs to a canonical trace.

    Parameters
    ----------
    source
        Directory with the files of all workers.
    target
        Directory of the trace to write.
    replace
        Whether to replace a trace that is there.

    Returns
    -------
    TraceMeta
        Also in the trace. `trace_id` depends on meta data, operators and channels, not on the
        events, so that it stays the same while the log grows.

    Raises
    ------
    TraceFormatError
        If a file is absent or damaged, or files contradict each other.

    Notes
    -----
    `seq` is the number of the row in the worker's own file, from 0, rows counted that are dropped.
    Reads 4 Mi rows at a time; as many make a file of the trace.
    """
    facts = _read_meta(source)
    workers = range(len(facts))
    files = {worker: source / f"events-{worker}.parquet" for worker in workers}
    dropped = dict.fromkeys(_DROPPED.values(), 0)
    for file in files.values():
        for kind, count in _count_kinds(file).items():
            dropped[_DROPPED[kind]] += count
    operators = _read_operators(source, workers)
    headers = [source / f"{name}" for worker in workers for name in _header_files(worker)]
    meta = TraceMeta(
        trace_id=fingerprint((file.name, file) for file in headers),
        source=TraceSource(system="timely", version=facts[0]["timely"], format=FORMAT),
        workers=len(facts),
        dropped={reason: count for reason, count in dropped.items() if count},
        idle_logged=True,
    )
    write_trace(
        target,
        meta=meta,
        events=(part for worker, file in files.items() for part in _event_files(file, worker)),
        operators=pa.Table.from_pylist(list(operators.values()), TRACE_OPERATORS),
        channels=pa.Table.from_pylist(_read_channels(source, workers, operators), TRACE_CHANNELS),
        workers=pa.Table.from_pylist(_worker_rows(facts), TRACE_WORKERS),
        replace=replace,
    )
    return meta


def _header_files(worker: int) -> tuple[str, str, str]:
    return f"meta-{worker}.json", f"operators-{worker}.csv", f"channels-{worker}.csv"


def _read_meta(source: Path) -> list[dict[str, Any]]:
    entries = {"worker": int, "peers": int, "pid": int, "clock_zero_unix_ns": int, "timely": str}
    facts_by_file = {file: read_facts(file, entries) for file in sorted(source.glob("meta-*.json"))}
    if not facts_by_file:
        message = f"{source} holds no meta-N.json."
        raise TraceFormatError(message, None, {"file": str(source)})
    first, peers = next((file, facts["peers"]) for file, facts in facts_by_file.items())
    for file, facts in facts_by_file.items():
        if file.name != f"meta-{facts['worker']}.json":
            message = f"{file} states that it is of worker {facts['worker']}."
            raise TraceFormatError(message, None, {"file": str(file), "worker": facts["worker"]})
        if facts["peers"] != peers:
            message = f"{file} states {facts['peers']} workers, but {first} states {peers}."
            raise TraceFormatError(message, "Are these files of two runs?", {"file": str(file)})
        if not 0 <= facts["worker"] < peers:
            message = f"{file} is of worker {facts['worker']}, but there are {peers}, from 0."
            raise TraceFormatError(message, None, {"file": str(file), "worker": facts["worker"]})
    for worker in range(peers):
        for name in (*_header_files(worker), f"events-{worker}.parquet"):
            if not (source / name).is_file():
                message = f"{source} has no {name}, though the run had {peers} workers."
                hint = "Collect the files of all workers, from all machines, in one directory."
                raise TraceFormatError(message, hint, {"file": str(source / name), "worker": worker})
    return sorted(facts_by_file.values(), key=lambda facts: int(facts["worker"]))


def _worker_rows(facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # The clock of a process is one; each of its workers only starts to count at another instant.
    processes = {pid: number for number, pid in enumerate(dict.fromkeys(fact["pid"] for fact in facts))}
    return [
        {
            "worker": fact["worker"],
            "process": processes[fact["pid"]],
            "clock_domain": str(processes[fact["pid"]]),
            "offset_ns": fact["clock_zero_unix_ns"],
        }
        for fact in facts
    ]


def _read_operators(source: Path, workers: range) -> dict[int, dict[str, Any]]:
    files = {source / f"operators-{worker}.csv": worker for worker in workers}
    columns = {"id": int, "addr": str, "name": str}
    rows = {worker: read_rows(file, columns) for file, worker in files.items()}
    agreed = _agreed(rows, "operator", source)
    return {key: {"operator": key, "address": row["addr"], "name": row["name"]} for key, row in sorted(agreed.items())}


def _read_channels(source: Path, workers: range, operators: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
    columns = {
        "id": int,
        "scope_addr": str,
        "src_op": int,
        "src_port": int,
        "dst_op": int,
        "dst_port": int,
        "type": str,
    }
    agreed = _agreed(
        {worker: read_rows(source / f"channels-{worker}.csv", columns) for worker in workers}, "channel", source
    )
    by_address = {row["address"]: key for key, row in operators.items()}

    def operator(scope: str, index: int) -> int | None:
        # Index 0 is the boundary of the scope itself: what enters or leaves it.
        return by_address.get(scope if index == 0 else f"{scope}.{index}")

    return [
        {
            "channel": key,
            "scope": row["scope_addr"],
            "source_operator": operator(row["scope_addr"], row["src_op"]),
            "source_port": row["src_port"],
            "target_operator": operator(row["scope_addr"], row["dst_op"]),
            "target_port": row["dst_port"],
            "type": row["type"] or None,
        }
        for key, row in sorted(agreed.items())
    ]


def _agreed(rows: Mapping[int, list[dict[str, Any]]], id_kind: str, source: Path) -> dict[int, dict[str, Any]]:
    """Unite what workers say about ids."""
    statement_by_id: dict[int, tuple[int, dict[str, Any]]] = {}
    for worker, statements in rows.items():
        for row in statements:
            first, known = statement_by_id.setdefault(row["id"], (worker, row))
            if known != row:
                _refuse_disagreement(source, id_kind, first, known, worker, row)
    return {key: row for key, (_, row) in statement_by_id.items()}


def _refuse_disagreement(
    source: Path, id_kind: str, first: int, known: dict[str, Any], worker: int, row: dict[str, Any]
) -> None:
    first_statement, second_statement = (
        {key: value for key, value in line.items() if key != "id"} for line in (known, row)
    )
    message = (
        f"{source / f'{id_kind}s-{worker}.csv'}: worker {worker} states {second_statement} for {id_kind} {row['id']},"
        f" but worker {first} states {first_statement}."
    )
    hint = "All workers must build the same dataflows in the same order."
    raise TraceFormatError(message, hint, {"file": str(source), id_kind: row["id"], "workers": [first, worker]})


def _count_kinds(file: Path) -> dict[int, int]:
    """Count the rows that are no events."""
    unknown = ~pl.col("kind").is_in([*_KINDS, *_DROPPED]).fill_null(value=False)
    counts = dict.fromkeys(_DROPPED, 0)
    first_row = 0
    for kinds in iter_frames(file, {"kind": pl.Int64}):
        refuse_rows(kinds, unknown, file=file, problem="unknown kind {kind}", first_row=first_row)
        for kind, count in kinds.filter(pl.col("kind").is_in(list(_DROPPED))).group_by("kind").len().iter_rows():
            counts[kind] += count
        first_row += kinds.height
    return counts


def _event_files(file: Path, worker: int) -> Iterator[tuple[str, pa.Table]]:
    first_row = 0
    for part, frame in enumerate(iter_frames(file, _COLUMNS, _PART_ROWS)):
        yield f"worker-{worker:07}-{part:05}", _events(frame, file=file, worker=worker, first_row=first_row)
        first_row += frame.height


def _events(frame: pl.DataFrame, *, file: Path, worker: int, first_row: int) -> pa.Table:
    kind = pl.col("kind")

    def only(kinds: tuple[int, ...], value: str) -> pl.Expr:
        return pl.when(kind.is_in(kinds)).then(pl.col(value))

    logging_worker = pl.when(kind == 3).then(pl.col("dst")).otherwise(pl.col("src"))  # noqa: PLR2004
    refuse_rows(
        frame,
        kind.is_in((2, 3, 4)) & (logging_worker != worker).fill_null(value=True),
        file=file,
        problem=f"a message from {{src}} to {{dst}} in the log of worker {worker}",
        first_row=first_row,
    )
    refuse_rows(
        frame,
        (kind == 8) & (pl.col("n") != pl.col("epoch")).fill_null(value=True),  # noqa: PLR2004
        file=file,
        problem=f"worker {worker} ends epoch {{n}} while it is in epoch {{epoch}}",
        first_row=first_row,
    )
    peer = pl.coalesce(only((2,), "dst"), only((3, 5), "src"))
    refuse_rows(
        frame,
        ~peer.is_between(0, MAX_WORKER).fill_null(value=True),
        file=file,
        problem="a message from {src} to {dst}, which is no worker",
        first_row=first_row,
    )
    names = {code: str(name) for code, name in _KINDS.items()}
    return (
        frame.with_columns(seq_in_log=pl.int_range(first_row, first_row + pl.len(), dtype=pl.Int64))
        .filter(kind.is_in(list(_KINDS)))
        .select(
            worker=pl.lit(worker, pl.Int32),
            seq=pl.col("seq_in_log"),
            epoch=pl.col("epoch"),
            t_ns=pl.col("t"),
            kind=kind.replace_strict(names, return_dtype=pl.String),
            operator=only((0, 1, 10), "id"),
            channel=only((2, 3, 4, 5), "id"),
            scope=only((4, 5), "dst"),
            peer=peer.cast(pl.Int32),
            message_seq=only((2, 3, 4, 5), "seq"),
            records=only((2, 3, 4, 5), "n"),
            timeout_ns=pl.when((kind == 6) & (pl.col("n") >= 0)).then(pl.col("n")),  # noqa: PLR2004
        )
        .to_arrow()
    )
