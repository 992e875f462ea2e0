"""The files of a trace as a stream of Spark: a row for each file that is new or has grown, no events."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.store.meta import read_meta
from pag_graph.store.trace_files import EVENTS, META, NUMBERED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

NAME = "pag_trace"
"""What the format is called."""
_COMPLETE = "complete"
_NONE = [-1, 0]


class _File(NamedTuple):
    series: str
    number: int
    name: str
    size: int


class FileList:
    """What there is of a trace: files of events, and whether all are there.

    An offset says of each series of files the number of the last one and its size, and whether the trace is complete.

    Parameters
    ----------
    root
        Directory of the trace; need not be there yet.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def now(self) -> dict[str, Any]:
        """Return the offset behind all that there is.

        Returns
        -------
        dict
            Per series: the number of the last file and its size in bytes; and whether the trace is complete. O(files of
            the trace).

        Raises
        ------
        TraceFormatError
            If ``meta.json`` cannot be read.
        """
        # In this order: what is complete is all there.
        complete = (self._root / META).exists() and read_meta(self._root / META).complete
        end: dict[str, Any] = {file.series: [file.number, file.size] for file in self._files()}
        return {**end, _COMPLETE: True} if complete else end

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[str, int]]:
        """Say what came or grew from one offset to another.

        Parameters
        ----------
        start, end
            Offsets, as from `now`; an empty one is before all.

        Yields
        ------
        tuple
            Path inside the trace, and size in bytes.
        """
        for file in self._files():
            known, last = start.get(file.series, _NONE), end.get(file.series, _NONE)
            if known < [file.number, file.size] and file.number <= last[0]:
                yield f"{EVENTS}/{file.name}", file.size

    def _files(self) -> list[_File]:
        """Return all numbered files, in the order of their series and numbers."""
        folder = self._root / EVENTS
        if not (self._root / META).exists() or not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            named = [(NUMBERED.fullmatch(entry.name), entry) for entry in entries if not entry.name.startswith(".")]
            files = [_File(known[1], int(known[2]), each.name, each.stat().st_size) for known, each in named if known]
        return sorted(files)


def register(spark: SparkSession) -> None:
    """Let a session know the format ``pag_trace``; its option ``path`` is the directory of a trace.

    One row per file of events that has come or grown: ``file``, its path inside the trace, and ``bytes``, its size.

    Parameters
    ----------
    spark
        The session.
    """
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    # Here, so that they reach Spark's own processes by value; names and spelling are Spark's.
    class Reader(DataSourceStreamReader):
        def __init__(self, root: Path) -> None:
            self.files = FileList(root)

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802
            return {}

        def latestOffset(self, start: object = None, limit: object = None) -> dict[str, Any]:  # noqa: N802
            # Releases of Spark differ in what they give.
            del start, limit
            return self.files.now()

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
            return [InputPartition((start, end))]

        def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
            return self.files.between(*partition.value)

    class TraceFiles(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return "file string, bytes bigint"

        def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802
            del schema
            return Reader(Path(self.options["path"]))

    spark.dataSource.register(TraceFiles)
