"""What a trace says besides its events: ``meta.json``, the tables of operators, channels and workers, and findings."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.errors import TraceFormatError
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import PAG_FINDINGS, TRACE_CHANNELS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.model.units import FARTHEST_NS
from pag_graph.store.findings import no_findings
from pag_graph.store.meta import TraceMeta, read_meta
from pag_graph.store.trace_columns import cast, check_columns, check_nulls, completed
from pag_graph.store.trace_files import CONVERT_AGAIN, DAMAGE, FINDINGS, META, changed_files, unreadable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from pag_graph.store.gaps import Gaps

_SMALL_BYTES = 1 << 20
"""Files up to this size are remembered once they were read."""
SCHEMAS = {"operators": TRACE_OPERATORS, "channels": TRACE_CHANNELS, "workers": TRACE_WORKERS}
"""The tables of a trace, by their names."""


def read_description(root: Path) -> tuple[TraceMeta, dict[str, pa.Table]]:
    """Read what a trace says besides its events.

    Parameters
    ----------
    root
        Directory of the trace.

    Returns
    -------
    meta
        Content of ``meta.json``, which is read first: a recorder writes it last.
    tables
        Per name, operators, channels and workers: rows of its table.

    Raises
    ------
    TraceFormatError
        If a file is missing or damaged, or contradicts another one.
    """
    meta = read_meta(root / META)
    tables = {name: _read_table(root, f"{name}.parquet", schema) for name, schema in SCHEMAS.items()}
    check_tables(meta=meta, **tables)
    return meta, tables


def source_findings(root: Path, gaps: Gaps | None) -> pa.Table:
    """Return what was odd about a trace before it was built.

    Parameters
    ----------
    root
        Directory of the trace.
    gaps
        Gaps in the numbers of its events; None where its source leaves any.

    Returns
    -------
    Table
        Rows of `PAG_FINDINGS`: what its reader said, then files that changed, then gaps. Reads every file of the trace
        once, to compare checksums.

    Raises
    ------
    TraceFormatError
        If the findings, or the checksums, cannot be read.
    """
    findings_read = no_findings()
    if (root / FINDINGS).is_file():
        findings_read = _read_table(root, FINDINGS, PAG_FINDINGS)
        check_nulls(findings_read, PAG_FINDINGS, where=str(root / FINDINGS))
    return pa.concat_tables([findings_read, *changed_files(root), *(gaps.findings() if gaps else [])])


def _read_table(root: Path, name: str, schema: pa.Schema) -> pa.Table:
    file = root / name
    if not file.is_file():
        message = f"The trace at {root} has no {name}."
        raise TraceFormatError(message, CONVERT_AGAIN, {"file": str(file)})
    try:
        content = file.read_bytes()
        return (_declared if len(content) <= _SMALL_BYTES else _declared.__wrapped__)(content, schema, str(file))
    except DAMAGE as error:
        raise unreadable(file, error) from error


@lru_cache(maxsize=16)
def _declared(content: bytes, schema: pa.Schema, where: str) -> pa.Table:
    """Read a table from the content of its file, and check it; a log that grows keeps it, and every append asks."""
    with pq.ParquetFile(pa.BufferReader(content)) as parquet:
        table = parquet.read(use_threads=False)
    table.validate(full=True)
    check_columns(table.schema, schema, where=where)
    return cast(completed(table, schema.names, schema).select(schema.names), schema, where=where)


def check_known(workers: Iterable[int], known: Collection[int], *, where: str) -> None:
    """Refuse events of workers that are not in the table of workers.

    Parameters
    ----------
    workers
        Those of the events.
    known
        Those of the table.
    where
        The file, for the message.

    Raises
    ------
    TraceFormatError
        Names file and worker.
    """
    if unknown := sorted(set(workers) - set(known)):
        message = f"{where} has events of worker {unknown[0]}, which is not in the table of workers."
        raise TraceFormatError(message, CONVERT_AGAIN, {"file": where, "worker": unknown[0]})


def check_tables(*, meta: TraceMeta, operators: pa.Table, channels: pa.Table, workers: pa.Table) -> None:
    """Refuse tables that name something twice, or a worker or clock out of range, or that contradict ``meta.json``.

    Parameters
    ----------
    meta
        Content of ``meta.json``.
    operators, channels, workers
        Rows of `TRACE_OPERATORS`, `TRACE_CHANNELS` and `TRACE_WORKERS`.

    Raises
    ------
    TraceFormatError
        Names the table, and what is wrong with it.
    """
    for name, table, key in (
        ("operators", operators, "operator"),
        ("channels", channels, "channel"),
        ("workers", workers, "worker"),
    ):
        values = table[key].to_numpy()
        keys, counts = np.unique(values, return_counts=True)
        if repeated := keys[counts > 1].tolist():
            message = f"The table of {name} has {key} {repeated[0]} more than once."
            raise TraceFormatError(message, CONVERT_AGAIN, {"table": name, key: repeated[0]})
        if name == "workers" and (bad := keys[(keys < 0) | (keys > MAX_WORKER)].tolist()):
            message = f"The table of workers has worker {bad[0]}; numbers go from 0 to {MAX_WORKER}."
            raise TraceFormatError(message, CONVERT_AGAIN, {"table": name, key: bad[0]})
    for name, least in (("offset_ns", 1 - FARTHEST_NS), ("uncertainty_ns", 0)):
        for worker, value in zip(workers["worker"].to_pylist(), workers[name].to_pylist(), strict=True):
            if value is not None and not least <= value < FARTHEST_NS:
                message = f"The table of workers has the {name} {value} for worker {worker}, which is out of range."
                raise TraceFormatError(message, CONVERT_AGAIN, {"table": "workers", "worker": worker})
    if meta.workers != workers.num_rows:
        message = f"{META} states {meta.workers} workers, but the table of workers has {workers.num_rows}."
        raise TraceFormatError(message, CONVERT_AGAIN, {"table": "workers"})
