"""Follow a trace on Spark while it is recorded: each micro-batch appends what is new.

spark-submit spark_jobs/follow.py TRACE STORE [--rules RULES] [--until complete|forever|idle:30s] [--every 1s]
  [--replace] [--checkpoint DIR] [--query NAME]... [--alerts FILE]

Ends when the source is complete, unless --until says otherwise; SIGTERM ends it after the batch that runs. Prints one
JSON object. A job that is run again goes on where the store ends, with or without its checkpoint.
"""

from argparse import Namespace

from pag_graph.api import RuleSet, follow_on_spark
from pag_graph.cli.follow import stopping
from pag_graph.cli.jobs import JobParser, run_job

parser = JobParser(__doc__, "trace", "store")
parser.add_argument("--rules", choices=list(map(str, RuleSet)))
parser.add_argument("--replace", action="store_true")
for name, usual in (("--until", "complete"), ("--every", "1s"), ("--checkpoint", None), ("--alerts", ())):
    parser.add_argument(name, default=usual)
parser.add_argument("--query", action="append", default=[], dest="queries")


def work(given: Namespace) -> dict[str, object]:  # noqa: D103
    with stopping() as stop:
        return follow_on_spark(**vars(given), stop=stop).summary()


run_job(parser, work)
