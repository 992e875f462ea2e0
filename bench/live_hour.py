"""An hour of a program, followed with three standing queries and into Neo4j: what grows, and what does not.

``python -m bench.live_hour --minutes 60`` lets a recorded program go on at 200,000 events per second, follows it, loads
it into Neo4j beside, notes each minute what both hold, and prints memory, lag, files and Delta's entries of the first
and of the last tenth of the time. Neo4j is that of ``--home`` or of the user's data folder, and must run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.__main__ import SCRATCH
from bench.analyses import triangles
from bench.followed import PAG, QUERIES, followed, query_words
from bench.harness import Session
from bench.live import lateness
from bench.paced import paced
from pag_graph.neo4j_server import server
from pag_graph.store.live import last_timing
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.followed import Followed

_TENTH = 10
_EACH_S = 60.0
_GRACE_S = 600.0
"""How long followers may take behind the program's end before they are asked to stop."""


def main() -> None:
    """Replay, follow, and print what was seen."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=60.0, help="how long [60]")
    options.add_argument("--rate", type=int, default=200_000, help="events per second [200000]")
    options.add_argument("--keep", default="5m", help="what the store keeps, as of pag follow [5m]")
    options.add_argument("--without-neo4j", action="store_true", help="only the store")
    options.add_argument("--home", type=Path, help="folder of the Neo4j server [the user's]")
    options.add_argument("--trace", type=Path, help="a recorded run [triangles, recorded]")
    options.add_argument("--scratch", type=Path, default=SCRATCH, help="where inputs are kept [.pag/bench]")
    arguments = options.parse_args()
    session = Session(arguments.scratch)
    recorded = arguments.trace or triangles(session)[0]
    copies = max(round(arguments.rate * arguments.minutes * 60 / Trace.open(recorded).rows), 1)
    folder = session.new_folder("hour")
    folder.mkdir(parents=True)
    print(f"{folder}; load {os.getloadavg()}", flush=True)
    words = [*query_words(QUERIES), "--keep", arguments.keep]
    with (
        followed(folder / "trace", folder / "store", words) as follower,
        _in_neo4j(folder, arguments.home, is_wanted=not arguments.without_neo4j) as loader,
        _noting(folder, follower, loader, arguments.home),
    ):
        report = paced(recorded, folder / "trace", rate=arguments.rate, copies=copies)
        print(f"program: {report}; load {os.getloadavg()}", flush=True)
        _bounded(follower.pid, *([loader.pid] if loader else []))
    print(f"exit code of the follower: {follower.code}; load {os.getloadavg()}")
    print("all the time", json.dumps(lateness(follower.timings)))
    for name, tenth in (("first tenth", _part(follower, 0)), ("last tenth", _part(follower, _TENTH - 1))):
        print(name, json.dumps(tenth))
    loaded = folder / "neo4j.json"
    if loaded.is_file():
        print("neo4j", loaded.read_text(encoding="utf-8").strip())


def _bounded(*pids: int) -> None:
    """Ask processes to stop that do not end in time."""

    def ask() -> None:
        time.sleep(_GRACE_S)
        for pid in pids:
            if _resident(pid):
                os.kill(pid, signal.SIGTERM)

    Thread(target=ask, daemon=True).start()


@contextmanager
def _in_neo4j(folder: Path, home: Path | None, *, is_wanted: bool) -> Iterator[subprocess.Popen[bytes] | None]:
    """Keep Neo4j current as long as the block runs, and until it has all; its report is left in the folder."""
    if not is_wanted:
        yield None
        return
    with (folder / "neo4j.json").open("wb") as report:
        loop = f"while [ ! -e '{folder}/store/epochs/_delta_log' ]; do sleep 0.2; done; exec \"$@\""
        words = [] if home is None else ["--home", str(home)]
        command = ["sh", "-c", loop, "sh", *PAG, "neo4j", "follow", str(folder / "store"), *words, "--format", "json"]
        with subprocess.Popen(command, stdout=report) as process:
            try:
                yield process
                process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()


@contextmanager
def _noting(
    folder: Path, follower: Followed, loader: subprocess.Popen[bytes] | None, home: Path | None
) -> Iterator[None]:
    """Note each minute what processes and folders hold, a line of JSON each, while the block runs."""
    is_over, started = Event(), time.time()
    database = None if loader is None else server.status(home).pid

    def note() -> None:
        with (folder / "minutes.jsonl").open("w", encoding="utf-8") as minutes:
            while not is_over.wait(_EACH_S):
                timing = last_timing(follower.store) or {}
                sample = follower.samples[-1] if follower.samples else None
                minute = {
                    "s": round(time.time() - started),
                    "epoch": timing.get("epoch"),
                    "lag_s": (timing["answered_ns"] - timing["published_ns"]) / 1e9 if timing else None,
                    "silent_s": time.time() - timing["answered_ns"] / 1e9 if timing else None,
                    "follower_MB": sample and round(sample.resident_bytes / 1e6),
                    "follower_cpu_s": sample and sample.cpu_s,
                    "files": sample and sample.files,
                    "delta_entries": sample and sample.log_entries,
                    "store_MB": round(_size(follower.store) / 1e6),
                    "trace_MB": round(_size(folder / "trace") / 1e6),
                    "loader_MB": loader and round(_resident(loader.pid) / 1e6),
                    "neo4j_MB": database and round(_resident(database) / 1e6),
                    "load": os.getloadavg()[0],
                }
                print(json.dumps(minute), file=minutes, flush=True)

    thread = Thread(target=note, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _resident(pid: int) -> int:
    """Return the memory of a process; 0 of one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            # Compaction and retention remove files meanwhile.
            with suppress(FileNotFoundError):
                total += (Path(place) / name).stat().st_size
    return total


def _part(follower: Followed, tenth: int) -> dict[str, Any]:
    """Return what held in one tenth of the time: lag over its epochs, the rest at its end."""
    timings = follower.timings
    times = timings["answered_ns"].to_numpy()
    order = np.sort(times)
    count = len(times) // _TENTH
    sample = follower.near(int(order[(tenth + 1) * count - 1]))
    return {
        "MB": round(sample.resident_bytes / 1e6),
        "files": sample.files,
        "delta_entries": sample.log_entries,
        **lateness(timings.slice(tenth * count, count)),
    }


if __name__ == "__main__":
    begun = time.monotonic()
    main()
    print(f"{time.monotonic() - begun:,.0f} s in all", file=sys.stderr)
