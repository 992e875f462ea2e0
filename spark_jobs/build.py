"""Build the program activity graph of a trace on Spark.

spark-submit spark_jobs/build.py TRACE STORE [--rules RULES] [--force-rules] [--append|--replace] [--slice-events N]

The rules are those that the trace asks for; others that it contradicts need --force-rules. Prints one JSON object; a
job that is run again adds what is new with --append, and changes nothing else.
"""

from argparse import Namespace

from pag_graph.api import RuleSet, build
from pag_graph.cli.jobs import JobParser, run_job

parser = JobParser(__doc__, "trace", "store")
parser.add_argument("--rules", choices=list(map(str, RuleSet)))
parser.add_argument("--force-rules", action="store_true")
parser.add_argument("--slice-events", type=int)
modes = parser.add_mutually_exclusive_group()
modes.add_argument("--append", action="store_const", const="append", dest="mode", default="error")
modes.add_argument("--replace", action="store_const", const="replace", dest="mode")


def work(given: Namespace) -> dict[str, object]:  # noqa: D103
    report = build(**vars(given))
    summary = {"run_id": report.store.run["run_id"], "committed": report.committed, "rows": report.rows}
    return {**summary, "versions": dict(report.store.versions)}


run_job(parser, work)
