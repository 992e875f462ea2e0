"""Spans on disk that memory is not to hold: runs in the order of traces, from which parts of whole traces are read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

BUCKETS: Final = 1 << 12
"""Traces are divided into so many groups, by their codes; a part is some groups that follow each other."""


class _Run(NamedTuple):
    """What was written at once: rows by bucket, and where buckets begin."""

    spans: Path
    span_begins: NDArray[np.int64]
    references: Path
    reference_begins: NDArray[np.int64]


class Spill:
    """Spans and their references in a temporary folder, which goes when this is closed."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pag-spans-")
        self._runs: list[_Run] = []
        self._sizes = np.zeros(BUCKETS, np.int64)

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def __enter__(self) -> Self:
        """Return the spill itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the files."""
        self.close()

    def add(self, spans: pl.DataFrame, references: pl.DataFrame, first: int) -> None:
        """Write spans that follow each other, with all their references.

        Parameters
        ----------
        spans
            One row per span, with the code of its `trace`.
        references
            One row per reference of these spans, by `row`.
        first
            Row of the first span.

        Raises
        ------
        StoreError
            If the file system refuses.
        """
        bucket = spans["trace"].to_numpy() % BUCKETS
        of_reference = bucket[references["row"].to_numpy() - first]
        folder, number = Path(self._folder.name), len(self._runs)
        run = _Run(
            folder / f"spans-{number:06}.arrow", _begins(bucket),
            folder / f"references-{number:06}.arrow", _begins(of_reference),
        )  # fmt: skip
        self._write(run.spans, spans.with_row_index("row", offset=first)[np.argsort(bucket, kind="stable")])
        self._write(run.references, references[np.argsort(of_reference, kind="stable")])
        self._runs.append(run)
        self._sizes += np.bincount(bucket, minlength=BUCKETS)

    def parts(self, most: int) -> list[tuple[int, int]]:
        """Return ranges of buckets that hold at most so many spans each, or are a single bucket."""
        ranges: list[tuple[int, int]] = []
        low = size = 0
        for bucket, count in enumerate(self._sizes.tolist()):
            if size and count and size + count > most:
                ranges.append((low, bucket))
                low, size = bucket, 0
            size += count
        return [*ranges, (low, BUCKETS)]

    def read(self, low: int, high: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return spans and references of a range of buckets, in the order in which they were added.

        Raises
        ------
        StoreError
            If the file system refuses.
        """
        try:
            spans = [_slice(run.spans, run.span_begins, low, high) for run in self._runs]
            references = [_slice(run.references, run.reference_begins, low, high) for run in self._runs]
        except OSError as error:
            raise self._refused(error) from error
        return _sorted(spans), _sorted(references)

    def of_traces(self, traces: Sequence[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return spans and references of some traces, by code, in the order in which they were added."""
        wanted = pl.Series(sorted(set(traces)), dtype=pl.Int32)
        buckets = np.unique(wanted.to_numpy() % BUCKETS).tolist()
        spans, references = [], []
        for bucket in buckets:
            own, stated = self.read(bucket, bucket + 1)
            own = own.filter(pl.col("trace").is_in(wanted.implode()))
            spans.append(own)
            references.append(stated.join(own.select("row"), on="row", how="semi", maintain_order="left"))
        return pl.concat(spans).sort("row"), pl.concat(references).sort("row", maintain_order=True)

    def _write(self, place: Path, frame: pl.DataFrame) -> None:
        table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
        try:
            with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> StoreError:
        message = f"{self._folder.name} cannot hold the spans that memory is not to hold: {error}."
        return StoreError(message, "Set TMPDIR to a folder with room: about 150 bytes per span.")


def _begins(bucket: I64) -> I64:
    """Return where each bucket begins among rows that are in their order, and at last how many rows there are."""
    return np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=BUCKETS))])


def _slice(file: Path, begins: I64, low: int, high: int) -> pa.Table:
    # A map of the file: what is not of the slice is not read.
    with pa.memory_map(str(file)) as source:
        begin, end = int(begins[low]), int(begins[high])
        return pa.ipc.open_file(source).read_all().slice(begin, end - begin)


def _sorted(slices: list[pa.Table]) -> pl.DataFrame:
    """Return one frame that holds the bytes of the slices and no others."""
    whole = pl.DataFrame(pl.from_arrow(pa.concat_tables(slices).combine_chunks()))
    return whole.sort("row", maintain_order=True)
