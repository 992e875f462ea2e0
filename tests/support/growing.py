"""A trace that is written step by step, as a recorder does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from pag_graph.store.meta import read_meta, write_meta
from pag_graph.store.trace_files import EVENTS, META
from pag_graph.testing.traces import draw, event_table

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.testing.traces import SmallTrace


class GrowingTrace:
    """A directory into which a small trace is written, portion by portion.

    Parameters
    ----------
    trace
        What is written in the end.
    path
        Directory to make: the description of the trace, and no event.
    """

    def __init__(self, trace: SmallTrace, path: Path) -> None:
        self._trace, self.path = trace, path
        trace.write(path)
        for file in (path / EVENTS).iterdir():
            file.unlink()
        (path / "checksums.json").unlink()
        self.rows = [0] * trace.workers
        self._files = [0] * trace.workers
        self._say(complete=False)

    def _say(self, *, complete: bool) -> None:
        meta = replace(read_meta(self.path / META), complete=complete)
        write_meta(meta, self.path / "meta.tmp")
        (self.path / "meta.tmp").replace(self.path / META)

    def write(self, worker: int, until: int) -> None:
        """Write the log of a worker up to a row, exclusive, as one file that appears whole."""
        rows = self._trace.events[worker][self.rows[worker] : until]
        if not rows:
            return
        name = f"worker-{worker:07}-{self._files[worker]:07}.parquet"
        hidden = self.path / EVENTS / f"{name}.tmp"
        pq.write_table(event_table(rows), hidden)
        hidden.replace(self.path / EVENTS / name)
        self.rows[worker] += len(rows)
        self._files[worker] += 1

    def finish(self) -> None:
        """Write the rest, and say that the run has ended."""
        for worker, log in enumerate(self._trace.events):
            self.write(worker, len(log))
        self._say(complete=True)

    def write_until(self, epoch: int) -> None:
        """Write what every worker logged up to the end of an epoch."""
        for worker, log in enumerate(self._trace.until_epoch(epoch).events):
            self.write(worker, len(log))


def rounds(count: int) -> SmallTrace:
    """Two workers that wait for each other in each round, as long as the run goes on."""
    logs: list[list[str]] = [[], []]
    for e in range(count):
        t = 20 * e
        logs[0].append(f"{t} park | {t + 6} unpark | {t + 7} recv 3<1 #{e} | {t + 8} send 4>1 #{e} | {t + 9} end")
        logs[1].append(
            f"{t} start 1 | {t + 5} send 3>0 #{e} | {t + 5} stop 1"
            f" | {t + 6} park | {t + 9} unpark | {t + 9} recv 4<0 #{e} | {t + 10} end"
        )
    return draw(*(" | ".join(log) for log in logs))
