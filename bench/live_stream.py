"""A Structured Streaming query with a state that grows is followed while it runs: which batch is named, and when.

    python -m bench.live_stream --out /tmp/stream          # two minutes; prints a table of batches and a line in JSON

A program of its own counts keys that it has not seen before: each file gives it some thousand, and one late file very
many. `pag follow` reads the event log that Spark writes meanwhile (rolling, compressed, as Spark's defaults are). Times
are by the clock of this machine, which both share.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from threading import Thread

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_SLOW = re.compile(r"batch (\d+) of query \w+ has taken ([\d.]+ \w+) so far")
_PATIENCE_S = 420


def write_inputs(folder: Path, *, files: int, rows: int, slow: int, many: int) -> None:
    """Write files of keys that no other file has; one of them has very many.

    Parameters
    ----------
    folder
        A folder that is not there yet.
    files, rows
        How many files, and how many keys each has.
    slow, many
        Which file has more, and how many keys it has.
    """
    folder.mkdir(parents=True)
    first_key = 0
    for number in range(files):
        count = many if number == slow else rows
        table = pa.table({"key": pa.array(np.arange(first_key, first_key + count))})
        pq.write_table(table, folder / f"part-{number:04}.parquet")
        os.utime(folder / f"part-{number:04}.parquet", (1_000_000_000 + number, 1_000_000_000 + number))
        first_key += count


def stream(folder: Path) -> None:
    """Run the query: a file a batch, until all files were read.

    Spark's log is left in ``logs`` below `folder`, what each batch took in ``progress.json``.
    """
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("a state that grows")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", (folder / "logs").as_uri())
        .getOrCreate()
    )
    source = session.readStream.schema("key bigint").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    counted = source.groupBy("key").count()
    query = counted.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(folder / "check"))
    running = query.start()
    running.processAllAvailable()
    batches = [json.loads(str(progress.json)) for progress in running.recentProgress]
    running.stop()
    session.stop()
    (folder / "progress.json").write_text(json.dumps(batches))


def measure(
    folder: Path, *, files: int = 14, rows: int = 20_000, slow: int = 11, many: int = 2_000_000
) -> dict[str, object]:
    """Record and follow; return what was named, when, and when the batch began and ended.

    Parameters
    ----------
    folder
        For all files; made.
    files, rows, slow, many
        As for `write_inputs`.

    Raises
    ------
    RuntimeError
        If the program writes no log.
    """
    write_inputs(folder / "in", files=files, rows=rows, slow=slow, many=many)
    (folder / "logs").mkdir()
    program = subprocess.Popen([sys.executable, "-m", "bench.live_stream", "--run", str(folder)])
    end = time.monotonic() + _PATIENCE_S
    while not (logs := list((folder / "logs").iterdir())):
        if program.poll() is not None or time.monotonic() > end:
            message = "the program wrote no log"
            raise RuntimeError(message)
        time.sleep(0.05)
    code = "from pag_graph.cli.app import main; main()"
    command = [sys.executable, "-c", code, "follow", str(logs[0]), str(folder / "run.pag"), "--epochs", "batch"]
    follower = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=_wide())
    slow_batches: list[tuple[int, float, str]] = []

    def read() -> None:
        for line in follower.stderr or ():
            said_at = time.time()
            if (match := _SLOW.search(line)) is not None:
                slow_batches.append((int(match[1]), said_at, line.strip()))

    reading = Thread(target=read)
    reading.start()
    try:
        program.wait(_PATIENCE_S)
        follower.wait(_PATIENCE_S)
    finally:
        for process in (program, follower):
            if process.poll() is None:
                process.kill()
        reading.join()
    batches = json.loads((folder / "progress.json").read_text())
    return _report(folder, batches, slow_batches, follower.returncode)


def _wide() -> dict[str, str]:
    return os.environ | {"COLUMNS": "250"}


def _report(
    folder: Path, batches: list[dict[str, object]], slow_batches: list[tuple[int, float, str]], code: int
) -> dict[str, object]:
    from pag_graph.store.delta import open_store
    from pag_graph.store.live import read_timings

    spans = {}
    for batch in batches:
        began = datetime.fromisoformat(str(batch["timestamp"])).timestamp()
        took = batch["durationMs"]["triggerExecution"] / 1000  # type: ignore[index]
        state = sum(operator["numRowsTotal"] for operator in batch["stateOperators"])  # type: ignore[attr-defined]
        spans[batch["batchId"]] = (began, began + took, state)
        print(f"batch {batch['batchId']:3}  {took:7.2f} s  {state:10,} rows of the state")
    lags = [
        (timing["answered_ns"] - timing["ended_ns"]) / 1e9 for timing in read_timings(folder / "run.pag").to_pylist()
    ]
    slowest = max(spans, key=lambda batch: spans[batch][1] - spans[batch][0] if batch else 0)
    lead_times = [
        {
            "batch": batch,
            "after_s": round(said_at - spans[batch][0], 2),
            "before_its_end_s": round(spans[batch][1] - said_at, 2),
        }
        for batch, said_at, _ in slow_batches
    ]
    return {
        "exit_code": code,
        "batches": len(spans),
        "closed_epochs": open_store(folder / "run.pag").closed_epochs,
        "slowest": slowest,
        "named": lead_times,
        "lines": [line for _, _, line in slow_batches],
        "answered_after_s": {"p50": float(np.median(lags)), "max": max(lags)} if lags else None,
    }


def main() -> None:
    """Read the options, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="a new folder for logs and stores")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        stream(arguments.run)
        return
    print(json.dumps(measure(arguments.out.absolute()), indent=2))


if __name__ == "__main__":
    main()
