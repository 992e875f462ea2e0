"""A follower in a process of its own, and what it needs while it follows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.errors import StoreNotFoundError
from pag_graph.store.live import read_timings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

QUERIES = ("critical-path", "metrics", "invariants")
PAG = (sys.executable, "-c", "from pag_graph.cli.app import main; main()")
"""`pag`, as this process would run it."""


def query_words(queries: Sequence[str]) -> list[str]:
    """Return the options of `pag follow` that ask for standing queries."""
    return [word for query in queries for word in ("--query", query)]


_EVERY_S = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
_TO_BEGIN_S = 1_800.0


class Sample(NamedTuple):
    """What a process had used at an instant."""

    unix_ns: int
    cpu_s: float
    """Processor time, all threads summed."""
    resident_bytes: int
    files: int
    """Files of the store's tables."""
    log_entries: int
    """Commits of Delta that its tables keep."""


@dataclass
class Followed:
    """A store that is followed, and what its follower needed."""

    store: Path
    pid: int = 0
    samples: list[Sample] = field(default_factory=list)
    code: int | None = None
    """Exit code, when it has ended."""

    @property
    def timings(self) -> pa.Table:
        """Rows of `TIMINGS`."""
        return read_timings(self.store)

    def cpu_s(self, since_ns: int, until_ns: int) -> float:
        """Return the processor time between two instants, Unix time, as far as the samples tell."""
        times, used = np.array([(s.unix_ns, s.cpu_s) for s in self.samples]).T
        begin, end = np.interp([since_ns, until_ns], times, used)
        return float(end - begin)

    def near(self, unix_ns: int) -> Sample:
        """Return the sample nearest to an instant."""
        return min(self.samples, key=lambda sample: abs(sample.unix_ns - unix_ns))


@contextmanager
def followed(source: Path, store: Path, words: Sequence[str] = ()) -> Iterator[Followed]:
    """Follow a trace as long as the block runs, and until it is complete.

    Parameters
    ----------
    source, store, words
        Of `pag follow`.

    Yields
    ------
    Followed
        Its samples grow meanwhile.
    """
    known, ended = Followed(store), Event()
    command = [*PAG, "follow", str(source), str(store), *words, "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        known.pid = process.pid
        watcher = Thread(target=_watch, args=(process.pid, known, ended))
        watcher.start()
        try:
            _wait_for(store / "_live" / "lock", process)
            yield known
            known.code = process.wait()
        finally:
            ended.set()
            watcher.join()
            if process.poll() is None:
                process.terminate()


def _wait_for(lock: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _TO_BEGIN_S
    while not lock.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            message = f"pag follow does not begin (exit code {process.poll()})."
            raise StoreNotFoundError(message)
        time.sleep(0.05)


def _watch(pid: int, known: Followed, ended: Event) -> None:
    while not ended.is_set():
        sample = _sample(pid, known.store)
        if sample is None:
            return
        known.samples.append(sample)
        ended.wait(_EVERY_S)


def _sample(pid: int, store: Path) -> Sample | None:
    try:
        # Behind the name, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] == "Z":
        return None
    files = entries = 0
    if store.exists():
        tables = [table for table in store.iterdir() if (table / "_delta_log").is_dir()]
        files = sum(file.suffix == ".parquet" for table in tables for file in table.iterdir())
        entries = sum(file.suffix == ".json" for table in tables for file in (table / "_delta_log").iterdir())
    # Ticks in the program and in the system.
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    return Sample(time.time_ns(), cpu_s, int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), files, entries)
