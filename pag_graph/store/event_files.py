"""One file of events: what its footer tells, and reading rows of some workers and epochs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.store.columns import (
    VOCABULARIES,
    check_columns,
    check_nulls,
    check_ranges,
    check_vocabulary,
    completed,
    encoded_schema,
)
from pag_graph.store.files import EVENTS, unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.store.gaps import Gaps


class RowGroup(NamedTuple):
    """Rows of one worker that a file keeps together."""

    worker: int
    rows: int
    t_min: int
    t_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFile:
    """One file of events, as far as Parquet's statistics tell."""

    name: str
    """Path inside the trace, such as ``events/worker-00000.parquet``."""
    rows: int
    """Number of events."""
    workers: tuple[int, ...]
    """Workers that have events in the file, ascending."""
    first_epoch: int
    """Lowest epoch in the file."""
    last_epoch: int
    """Highest epoch in the file."""
    groups: tuple[RowGroup | None, ...] = ()
    """Its row groups; none where the footer does not tell that all rows are of one worker, and their times."""


def open_events(root: Path, name: str, *, encoded: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a file of events, `name` inside the trace; columns in `encoded` come dictionary-encoded."""
    try:
        # A file and no name: which file system it is on need not be found out.
        file = pa.OSFile(str(root / name))
        return pq.ParquetFile(file, read_dictionary=list(encoded), pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(root / name, error) from error


def inspect(root: Path, file: Path, gaps: Gaps | None) -> EventFile:
    """Check a file's columns, and say what it holds; gaps are told of it as well."""
    name = f"{EVENTS}/{file.name}"
    with open_events(root, name) as parquet:
        check_columns(parquet.schema_arrow, TRACE_EVENTS, where=str(file))
        groups = range(parquet.metadata.num_row_groups)
        workers = [bounds_of(parquet.metadata, group, "worker") for group in groups]
        epochs = [bounds_of(parquet.metadata, group, "epoch") for group in groups]
        if not parquet.metadata.num_rows:
            return EventFile(name=name, rows=0, workers=(), first_epoch=0, last_epoch=0)
        if all(bound and bound[0] == bound[1] for bound in workers) and all(epochs):
            seen = {bound[0] for bound in workers if bound}
            span = [value for bound in epochs if bound for value in bound]
        else:
            table = read_groups(parquet, list(groups), ["worker", "epoch"], where=str(file))
            check_nulls(table, TRACE_EVENTS, where=str(file))
            seen = set(table["worker"].unique().to_pylist())
            span = list(pc.min_max(table["epoch"]).as_py().values())
        found = EventFile(
            name=name,
            rows=parquet.metadata.num_rows,
            workers=tuple(sorted(seen)),
            first_epoch=min(span),
            last_epoch=max(span),
            groups=tuple(_row_group(parquet, group) for group in groups),
        )
        if gaps is not None:
            gaps.look(parquet.metadata, found)
        return found


def _row_group(parquet: pq.ParquetFile, group: int) -> RowGroup | None:
    names = parquet.metadata.schema.names
    metadata = parquet.metadata.row_group(group)
    worker, t = (metadata.column(names.index(name)).statistics for name in ("worker", "t_ns"))
    if not (metadata.num_rows and all(known is not None and known.has_min_max for known in (worker, t))):
        return None
    # Nobody reads the workers again, so what lacks one must show here.
    required = parquet.schema.column(names.index("worker")).max_definition_level == 0
    if worker.min != worker.max or not (required or (worker.has_null_count and not worker.null_count)):
        return None
    return RowGroup(int(worker.min), metadata.num_rows, int(t.min), int(t.max))


def bounds_of(metadata: pq.FileMetaData, group: int, name: str) -> tuple[int, int] | None:
    """Return a row group's least and greatest value of a column; null without statistics."""
    index = metadata.schema.names.index(name)
    statistics = metadata.row_group(group).column(index).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min, statistics.max


def read_groups(
    parquet: pq.ParquetFile, groups: list[int], names: list[str], *, where: str, threads: bool = True
) -> pa.Table:
    """Read columns of some row groups of an open file; damage becomes an error that names the file."""
    try:
        table = parquet.read_row_groups(groups, columns=names, use_threads=threads)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(Path(where), error) from error
    return completed(table, names, TRACE_EVENTS)


def read_events(
    root: Path, file: EventFile, names: list[str], workers: NDArray[np.int64] | None, epochs: range | None
) -> pa.Table | None:
    """Read a file's rows of the wanted workers and epochs; `worker` always comes along."""
    if workers is not None and not np.isin(file.workers, workers).any():
        return None
    if epochs is not None and not (file.first_epoch < epochs.stop and epochs.start <= file.last_epoch):
        return None
    where = str(root / file.name)
    filtered = ["epoch"] if epochs is not None else []
    read = list(dict.fromkeys([*names, "worker", *filtered]))
    with open_events(root, file.name, encoded=tuple(VOCABULARIES)) as parquet:
        groups = [
            group
            for group in range(parquet.metadata.num_row_groups)
            if _may_hold(bounds_of(parquet.metadata, group, "worker"), workers)
            and _overlaps(bounds_of(parquet.metadata, group, "epoch"), epochs)
        ]
        table = read_groups(parquet, groups, read, where=where)
    check_nulls(table, TRACE_EVENTS, where=where)
    check_vocabulary(table, where=where)
    check_ranges(table, where=where)
    table = table.cast(encoded_schema(table.column_names))
    keep = np.ones(table.num_rows, np.bool_)
    if workers is not None:
        keep &= np.isin(table["worker"].to_numpy(), workers)
    if epochs is not None:
        epoch = table["epoch"].to_numpy()
        keep &= (epoch >= epochs.start) & (epoch < epochs.stop)
    return table if keep.all() else table.filter(pa.array(keep))


def _may_hold(bounds: tuple[int, int] | None, workers: NDArray[np.int64] | None) -> bool:
    if bounds is None or workers is None:
        return True
    return bool(((workers >= bounds[0]) & (workers <= bounds[1])).any())


def _overlaps(bounds: tuple[int, int] | None, epochs: range | None) -> bool:
    return bounds is None or epochs is None or (bounds[0] < epochs.stop and epochs.start <= bounds[1])
