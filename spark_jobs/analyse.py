"""Run an analysis over all windows of a store on Spark, and write its rows as Parquet.

spark-submit spark_jobs/analyse.py STORE OUTPUT --analysis NAME [--set FIELD=VALUE ...] [--against STORE] [--across]

Prints one JSON object. OUTPUT becomes a directory with one file per task, each row with its window's `epoch`; an
analysis of the whole run writes one file. A value is JSON, or else taken as text. A task looks at one window or more;
with --across every window is spread over all executors, for windows that are too large for one task.
"""

from argparse import Namespace

from pag_graph.api import all_analyses, analyse
from pag_graph.cli.jobs import JobParser, run_job
from pag_graph.cli.settings import setting

parser = JobParser(__doc__, "store", "output")
parser.add_argument("--analysis", required=True, choices=[analysis.name for analysis in all_analyses()])
parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", dest="settings")
parser.add_argument("--against", help="another store, for comparisons")
parser.add_argument("--across", action="store_true", help="spread every window over all executors")


def work(given: Namespace) -> dict[str, object]:  # noqa: D103
    values = dict(map(setting, given.settings))
    more = {"parameters": values, "against": given.against, "across": given.across}
    return analyse(given.store, given.output, given.analysis, **more)


run_job(parser, work)
