"""Activities and messages that somebody wrote down: by hand, or with a few lines in any system (`docs/generic.md`).

Tables of CSV, JSON lines or Parquet. One says what the workers did (worker, start, end, activity, operator), one which
messages passed between them (from, to, sent, received); two more are optional: workers, and ends of epochs. They become
a trace for the rule set `stated`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pag_graph.errors import TraceFormatError
from pag_graph.model.enums import RuleSet
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.sources.activities.event_rows import Converter
from pag_graph.sources.activities.inputs import stated_inputs
from pag_graph.sources.activities.misspelt import doubtful_workers
from pag_graph.sources.activities.table_files import SUFFIXES, header_of, kind_of, read
from pag_graph.sources.foreign_files import fingerprint
from pag_graph.store.findings import no_findings
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.trace import write_trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl

FORMAT = "activities"
"""Name of the format."""
_FILE_ROWS = 1_000_000


def mismatch(source: Path) -> str | None:
    """Say why `source` holds no activities that somebody wrote down; None if it looks as if it did."""
    if source.is_dir():
        files = [file for file in source.iterdir() if kind_of(file) == "activities"]
        return None if files else f"a folder without a file activities.csv (or {', '.join(SUFFIXES[1:])})"
    if source.suffix not in SUFFIXES:
        return f"neither a folder nor a file with one of the suffixes {', '.join(SUFFIXES)}"
    try:
        header = set(header_of(source))
    except TraceFormatError as error:
        return error.message.rstrip(".")
    missing = [name for name in ("worker", "activity") if name not in header]
    return f"no column {missing[0]}" if missing else None


def convert(source: Path, target: Path, *, replace: bool = False) -> TraceMeta:
    """Convert activities and messages that somebody wrote down to a canonical trace.

    Parameters
    ----------
    source
        A file of activities; or a folder with files ``activities*``, and optionally ``messages*``, ``workers*`` and
        ``epochs*``, as CSV, JSON lines or Parquet. A file of JSON lines may hold rows of several tables.
    target
        Directory of the trace to write.
    replace
        Whether to replace a trace that is there.

    Returns
    -------
    TraceMeta
        Also in the trace. `trace_id` depends on the names and contents of the files.

    Raises
    ------
    TraceFormatError
        If a file is damaged or a value does not fit; names file and line, and says what to write instead.

    Notes
    -----
    O(n log n) in time, all tables in memory.
    """
    tables, files = read(source)
    all_findings: list[pa.Table] = [no_findings()]
    trace = Converter(tables, all_findings)
    all_findings += doubtful_workers(tables, trace.workers)
    events = trace.events()
    meta = TraceMeta(
        trace_id=fingerprint((file.name, file) for file in files),
        source=TraceSource(system="stated", version="", format=FORMAT),
        workers=len(trace.workers),
        dropped={reason: count for reason, count in trace.dropped.items() if count},
        rules=RuleSet.STATED,
    )
    write_trace(
        target,
        meta=meta,
        events=_parts(events),
        operators=trace.operator_table(),
        channels=trace.channel_table(),
        workers=trace.worker_table(),
        findings=pa.concat_tables(all_findings),
        inputs=stated_inputs(tables["epochs"], min(trace.workers.values())),
        replace=replace,
    )
    return meta


def _parts(events: pl.DataFrame) -> Iterator[tuple[str, pa.Table]]:
    for part, rows in enumerate(events.iter_slices(_FILE_ROWS)):
        yield f"events-{part:05}", rows.to_arrow().cast(TRACE_EVENTS)
