"""Follow a trace on Spark while it is recorded: each micro-batch appends what is new.

spark-submit spark_jobs/follow.py TRACE STORE [--rules RULES] [--until complete|forever|idle:30s] [--every 1s]
  [--replace] [--checkpoint DIR] [--slice-events N] [--query NAME]... [--alerts FILE]

Ends when the source is complete, unless --until says otherwise; SIGTERM ends it after the batch that runs. Prints one
JSON object. A job that is run again goes on where the store ends, with or without its checkpoint.
"""

import signal
from argparse import Namespace
from pathlib import Path
from threading import Event

from pag_graph.api import RuleSet, follow_on_spark
from pag_graph.cli.jobs import JobParser, run_job

parser = JobParser(__doc__, "trace", "store")
parser.add_argument("--rules", choices=list(map(str, RuleSet)))
parser.add_argument("--until", default="complete")
parser.add_argument("--every", default="1s")
parser.add_argument("--replace", action="store_true")
parser.add_argument("--checkpoint", type=Path)
parser.add_argument("--slice-events", type=int)
parser.add_argument("--query", action="append", default=[], dest="queries")
parser.add_argument("--alerts", default=())


def work(given: Namespace) -> dict[str, object]:  # noqa: D103
    asked = Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    report = follow_on_spark(**vars(given), stop=asked)
    store = report.store
    return {
        "ending": report.ending,
        "run_id": None if store is None else store.run["run_id"],
        "versions": {} if store is None else dict(store.versions),
        "batches": report.batches,
        "commits": report.commits,
    }


run_job(parser, work)
