"""Run an analysis over all windows of a store on Spark, and write its rows as Parquet.

spark-submit spark_jobs/analyse.py STORE OUTPUT --analysis NAME [--set FIELD=VALUE ...] [--against STORE] [--across]

Prints one JSON object. OUTPUT becomes a directory with one file per task, each row with its window's `epoch`; an
analysis of the whole run writes one file. A value is JSON, or else taken as text. A task looks at one window or more;
with --across every window is spread over all executors, for windows that are too large for one task.
"""

import argparse
import json

from pag_graph.api import all_analyses, analyse
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError


def setting(text: str) -> tuple[str, object]:
    """Split FIELD=VALUE."""
    name, _, value = text.partition("=")
    try:
        return name.replace("-", "_"), json.loads(value)
    except json.JSONDecodeError:
        return name.replace("-", "_"), value


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("store")
parser.add_argument("output")
parser.add_argument("--analysis", required=True, choices=[analysis.name for analysis in all_analyses()])
parser.add_argument("--set", action="append", default=[], type=setting, metavar="FIELD=VALUE", dest="settings")
parser.add_argument("--against", help="another store, for comparisons")
parser.add_argument("--across", action="store_true", help="spread every window over all executors")
given = parser.parse_args()
try:
    answer = analyse(
        given.store,
        given.output,
        given.analysis,
        parameters=dict(given.settings),
        against=given.against,
        across=given.across,
    )
except (InvalidParameterError, UnsupportedPlanError) as error:
    parser.error(str(error))
print(json.dumps(answer))  # noqa: T201  (its answer)
