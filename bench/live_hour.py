"""An hour of a program, followed with three standing queries and into Neo4j: what grows, and what does not.

``python -m bench.live_hour --minutes 60`` replays a recorded program at 200,000 events per second, follows it, loads it
into Neo4j beside, and prints memory, lag, files and Delta's entries of the first and of the last tenth of the time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.__main__ import SCRATCH
from bench.analyses import triangles
from bench.followed import PAG, QUERIES, followed, query_words
from bench.harness import Session
from bench.live import lateness, speed_for
from bench.multiply import multiplied
from pag_graph.sources.replay import replay
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.followed import Followed

_TENTH = 10


def main() -> None:
    """Replay, follow, and print what was seen."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=60.0, help="how long [60]")
    options.add_argument("--rate", type=int, default=200_000, help="events per second [200000]")
    options.add_argument("--without-neo4j", action="store_true", help="only the store")
    options.add_argument("--scratch", type=Path, default=SCRATCH, help="where inputs are kept [.pag/bench]")
    given = options.parse_args()
    session = Session(given.scratch)
    recorded, _ = triangles(session)
    copies = max(round(given.rate * given.minutes * 60 / Trace.open(recorded).rows), 1)
    trace = multiplied(session, recorded, copies)
    folder = session.new_folder("hour")
    folder.mkdir(parents=True)
    with (
        followed(folder / "trace", folder / "store", query_words(QUERIES)) as known,
        _in_neo4j(folder, wanted=not given.without_neo4j),
    ):
        report = replay(trace, folder / "trace", speed=speed_for(trace, given.rate))
    print(f"offered {report.offered_per_s:,.0f} events/s, achieved {report.achieved_per_s:,.0f}; valid: {report.valid}")
    for name, values in (("first tenth", _part(known, 0)), ("last tenth", _part(known, _TENTH - 1))):
        print(name, json.dumps(values))
    loaded = folder / "neo4j.json"
    if loaded.is_file():
        print("neo4j", loaded.read_text(encoding="utf-8").strip())


@contextmanager
def _in_neo4j(folder: Path, *, wanted: bool) -> Iterator[None]:
    """Keep Neo4j current as long as the block runs, and until it has all; its report is left in the folder."""
    if not wanted:
        yield
        return
    with (folder / "neo4j.json").open("wb") as out:
        loop = f"while [ ! -e '{folder}/store/epochs/_delta_log' ]; do sleep 0.2; done; exec \"$@\""
        command = ["sh", "-c", loop, "sh", *PAG, "neo4j", "follow", str(folder / "store"), "--format", "json"]
        with subprocess.Popen(command, stdout=out) as process:
            try:
                yield
                process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()


def _part(known: Followed, part: int) -> dict[str, Any]:
    """Return what held in one tenth of the time: lag over its epochs, the rest at its end."""
    timings = known.timings
    times = timings["answered_ns"].to_numpy()
    count = len(times) // _TENTH
    last = known.near(int(times[(part + 1) * count - 1]))
    return {
        "MB": round(last.resident_bytes / 1e6),
        "files": last.files,
        "delta_entries": last.log_entries,
        **lateness(timings.slice(part * count, count)),
    }


if __name__ == "__main__":
    begun = time.monotonic()
    main()
    print(f"{time.monotonic() - begun:,.0f} s in all", file=sys.stderr)
