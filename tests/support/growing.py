"""A trace that is written step by step, as a recorder does."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pag_graph.store.meta import read_meta, write_meta
from pag_graph.store.trace_files import EVENTS, META
from pag_graph.testing.traces import draw, event_table

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from pag_graph.testing.traces import SmallTrace


class GrowingTrace:
    """A directory into which a small trace is written, portion by portion.

    Parameters
    ----------
    trace
        What is written in the end.
    path
        Directory to make: the description of the trace, and no event.
    joined
        Of so many portions a file consists: until then each replaces the file by one with a row group more.
    """

    def __init__(self, trace: SmallTrace, path: Path, *, joined: int = 1) -> None:
        trace.write(path)
        self._joined = joined
        self._grow(path, [event_table(log) for log in trace.events])

    @classmethod
    def of(cls, recorded: Path, path: Path) -> GrowingTrace:
        """Return one that becomes what was recorded, with a file per worker."""
        shutil.copytree(recorded, path)
        growing = cls.__new__(cls)
        growing._joined = 1
        growing._grow(path, [pq.read_table(file) for file in sorted((path / EVENTS).iterdir())])
        return growing

    def _grow(self, path: Path, logs: list[pa.Table]) -> None:
        self.path, self._logs = path, logs
        for file in (path / EVENTS).iterdir():
            file.unlink()
        (path / "checksums.json").unlink(missing_ok=True)
        self.rows = [0] * len(logs)
        self._portions = [0] * len(logs)
        self._say(complete=False)

    def _say(self, *, complete: bool) -> None:
        meta = replace(read_meta(self.path / META), complete=complete)
        write_meta(meta, self.path / "meta.tmp")
        (self.path / "meta.tmp").replace(self.path / META)

    def write(self, worker: int, end_row: int) -> None:
        """Write the log of a worker up to a row, exclusive, as one portion that appears whole."""
        rows = self._logs[worker].slice(self.rows[worker], max(end_row - self.rows[worker], 0))
        if not rows.num_rows:
            return
        number, portion = divmod(self._portions[worker], self._joined)
        file = self.path / EVENTS / f"worker-{worker:07}-{number:07}.parquet"
        hidden = file.with_suffix(".parquet.tmp")
        groups = [rows]
        if portion:
            with pq.ParquetFile(file) as published:
                groups = [*map(published.read_row_group, range(portion)), rows]
        with pq.ParquetWriter(hidden, rows.schema) as writer:
            for group in groups:
                writer.write_table(group)
        hidden.replace(file)
        self.rows[worker] += rows.num_rows
        self._portions[worker] += 1

    def finish(self) -> None:
        """Write the rest, and say that the run has ended."""
        for worker, log in enumerate(self._logs):
            self.write(worker, log.num_rows)
        self._say(complete=True)

    def write_until(self, epoch: int) -> None:
        """Write what every worker logged up to the end of an epoch."""
        for worker, log in enumerate(self._logs):
            self.write(worker, log.filter(pc.field("epoch") <= epoch).num_rows)


def rounds(count: int) -> SmallTrace:
    """Two workers that wait for each other in each round, as long as the run goes on."""
    logs: list[list[str]] = [[], []]
    for number in range(count):
        t = 20 * number
        logs[0].append(
            f"{t} park | {t + 6} unpark | {t + 7} recv 3<1 #{number} | {t + 8} send 4>1 #{number} | {t + 9} end"
        )
        logs[1].append(
            f"{t} start 1 | {t + 5} send 3>0 #{number} | {t + 5} stop 1"
            f" | {t + 6} park | {t + 9} unpark | {t + 9} recv 4<0 #{number} | {t + 10} end"
        )
    return draw(*(" | ".join(log) for log in logs))


def late_reads(count: int, *, sent: int, read: int | None, length: int = 20) -> SmallTrace:
    """Two workers that wait in each round; one sends in a round what the other one reads in another."""
    logs: list[list[str]] = [[], []]
    for number in range(count):
        t = length * number
        receives = f" | {t + 7} recv 3<1" if number == read else ""
        sends = f" | {t + 7} send 3>0" if number == sent else ""
        logs[0].append(f"{t} park | {t + 6} unpark{receives} | {t + 9} end")
        logs[1].append(f"{t} park | {t + 6} unpark{sends} | {t + 9} end")
    return draw(*(" | ".join(log) for log in logs))
