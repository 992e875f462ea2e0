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

BUCKETS: Final = 1 << 12
"""Traces are divided into so many buckets, by their codes; a part is some buckets that follow each other."""


def in_portions(sizes: NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Divide things that follow each other into portions that are not too large.

    Parameters
    ----------
    sizes
        One element per thing, in order.
    most
        How large a portion may be; one thing alone may be larger.

    Returns
    -------
    list of (low, high)
        Places from one until before another, which cover all without a gap; one portion of nothing where there is
        nothing.

    Examples
    --------
    >>> in_portions(np.array([3, 0, 2, 9, 1]), 5)
    [(0, 3), (3, 4), (4, 5)]
    """
    ranges: list[tuple[int, int]] = []
    low = portion_size = 0
    for place, size in enumerate(sizes.tolist()):
        if portion_size and size and portion_size + size > most:
            ranges.append((low, place))
            low, portion_size = place, 0
        portion_size += size
    return [*ranges, (low, len(sizes))]


class _Run(NamedTuple):
    """What was written at once: rows by bucket, and where buckets begin."""

    spans: Path
    span_begins: NDArray[np.int64]
    references: Path
    reference_begins: NDArray[np.int64]


class Spill:
    """Spans and their references in a temporary folder, which goes when this is closed.

    Parameters
    ----------
    buckets
        Into how many the spans are divided.
    folder
        Where the folder is made; where temporary ones are, if absent.

    Raises
    ------
    StoreError
        If the file system refuses.
    """

    def __init__(self, buckets: int = BUCKETS, folder: str | None = None) -> None:
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="pag-spans-", dir=folder)
        except OSError as error:
            raise _refused(folder or "The folder for temporary files", error) from error
        self._runs: list[_Run] = []
        self._sizes = np.zeros(buckets, np.int64)
        self._others: list[Spill] = []

    def close(self) -> None:
        """Remove the files, and those of other divisions."""
        for spill in self._others:
            spill.close()
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
        by_trace = (pl.col("trace") % BUCKETS).alias("bucket")
        numbered = spans.with_row_index("row", offset=first).with_columns(by_trace, pl.col("row").cast(pl.Int32))
        of_spans = numbered["bucket"].gather(references["row"] - first)
        self._add(numbered, references.with_columns(bucket=of_spans))

    def regrouped(self, groups: Sequence[Sequence[int]], most: int) -> Spill:
        """Return some traces in another division, whose buckets are groups of them; it goes when this one is closed.

        Parameters
        ----------
        groups
            Codes of traces; one may be in several groups.
        most
            How many spans memory is to hold.

        Raises
        ------
        StoreError
            If the file system refuses.
        """
        number = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        trace = np.concatenate([np.asarray(group, np.int64) for group in groups])
        group_of_trace = pl.DataFrame(
            {"trace": trace, "bucket": number}, schema={"trace": pl.Int32, "bucket": pl.Int32}
        )
        division = Spill(len(groups), self._folder.name)
        self._others.append(division)
        for low, high in self.parts(most):
            spans, references = self.read(low, high)
            spans = spans.join(group_of_trace, on="trace", maintain_order="left")
            of_spans = references.join(spans.select("row", "bucket"), on="row", maintain_order="left")
            division._add(spans, of_spans)
        return division

    def _add(self, spans: pl.DataFrame, references: pl.DataFrame) -> None:
        """Write spans and references, each with its `bucket`."""
        folder, number = Path(self._folder.name), len(self._runs)
        buckets = [frame["bucket"].to_numpy() for frame in (spans, references)]
        sizes = [np.bincount(bucket, minlength=len(self._sizes)) for bucket in buckets]
        files = folder / f"spans-{number:06}.arrow", folder / f"references-{number:06}.arrow"
        for file, frame, bucket in zip(files, (spans, references), buckets, strict=True):
            self._write(file, frame.drop("bucket")[np.argsort(bucket, kind="stable")])
        begins = [np.concatenate([[0], np.cumsum(size)]) for size in sizes]
        self._runs.append(_Run(files[0], begins[0], files[1], begins[1]))
        self._sizes += sizes[0]

    def parts(self, most: int) -> list[tuple[int, int]]:
        """Return ranges of buckets, from one until before another, that hold at most so many spans each.

        A bucket that holds more by itself is a range of its own.
        """
        return in_portions(self._sizes, most)

    def read(self, low: int, high: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return spans and references of a range of buckets.

        Parameters
        ----------
        low, high
            From one bucket until before the other.

        Returns
        -------
        spans, references
            One row per span with its `row`, and one per reference by that `row`; both in the order in which they were
            added.

        Raises
        ------
        StoreError
            If the file system refuses.
        """  # noqa: DOC501  (what makes an error is taken for one)
        try:
            spans = [_slice(run.spans, run.span_begins, low, high) for run in self._runs]
            references = [_slice(run.references, run.reference_begins, low, high) for run in self._runs]
        except OSError as error:
            raise _refused(self._folder.name, error) from error
        return _sorted(spans), _sorted(references)

    def of_traces(self, traces: Sequence[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return spans and references of some traces, by code, in the order in which they were added.

        Only the buckets of these traces are read.
        """
        trace_codes = pl.Series(sorted(set(traces)), dtype=pl.Int32)
        buckets = np.unique(trace_codes.to_numpy() % BUCKETS).tolist()
        spans, references = [], []
        for bucket in buckets:
            of_bucket, stated = self.read(bucket, bucket + 1)
            of_bucket = of_bucket.filter(pl.col("trace").is_in(trace_codes.implode()))
            spans.append(of_bucket)
            references.append(stated.join(of_bucket.select("row"), on="row", how="semi", maintain_order="left"))
        return pl.concat(spans).sort("row"), pl.concat(references).sort("row", maintain_order=True)

    def _write(self, place: Path, frame: pl.DataFrame) -> None:
        table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
        try:
            with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        except OSError as error:
            raise _refused(self._folder.name, error) from error


def _refused(place: str, error: OSError) -> StoreError:
    message = f"{place} cannot hold the spans that do not fit in memory: {error}."
    return StoreError(message, "Set TMPDIR to a folder with room: about 150 bytes per span.")


def _slice(file: Path, begins: NDArray[np.int64], low: int, high: int) -> pa.Table:
    # A map of the file: what is not of the slice is not read.
    with pa.memory_map(str(file)) as source:
        begin, end = int(begins[low]), int(begins[high])
        return pa.ipc.open_file(source).read_all().slice(begin, end - begin)


def _sorted(slices: list[pa.Table]) -> pl.DataFrame:
    """Return one frame that holds the bytes of the slices and no others."""
    combined = pl.DataFrame(pl.from_arrow(pa.concat_tables(slices).combine_chunks()))
    return combined.sort("row", maintain_order=True)
