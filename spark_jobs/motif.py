"""Find a motif in a store with Spark and write its matches as Parquet.

spark-submit spark_jobs/motif.py STORE OUTPUT NAME|PATTERN [--where FILTER] [--epochs 3-7] [--set NAME=VALUE ...]

Prints one JSON object. OUTPUT becomes a directory of Parquet files with one row per match and a struct per named
element, the columns of GraphFrames. With --distinct no two named edges are one edge. No need for GraphFrames' jar.
"""

from argparse import Namespace

from pag_graph.api import write_motif
from pag_graph.cli.jobs import JobParser, run_job
from pag_graph.cli.motif import parse_epochs
from pag_graph.cli.settings import scalar_setting

parser = JobParser(__doc__, "store", "output", "pattern")
parser.add_argument("--where")
parser.add_argument("--epochs")
parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
parser.add_argument("--distinct", action="store_true")


def work(given: Namespace) -> dict[str, object]:  # noqa: D103
    more = {"parameters": dict(map(scalar_setting, given.settings)), "distinct": given.distinct}
    return write_motif(given.store, given.output, given.pattern, given.where, epochs=parse_epochs(given.epochs), **more)


run_job(parser, work)
