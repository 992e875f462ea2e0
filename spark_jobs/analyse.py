"""Run an analysis over all windows of a store on Spark, one task per window, and write its rows as Parquet.

spark-submit spark_jobs/analyse.py STORE OUTPUT --analysis critical-path|k-hops|waits|traffic [--k N]

Prints one JSON object. OUTPUT becomes a directory with one file per window, each row with the window's `epoch`.
"""

import argparse
import json

from pag_graph.api import ANALYSES, analyse

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("store")
parser.add_argument("output")
parser.add_argument("--analysis", required=True, choices=sorted(ANALYSES))
parser.add_argument("--k", type=int, default=10, help="number of hops, for k-hops")
arguments = parser.parse_args()
print(json.dumps(analyse(arguments.store, arguments.output, arguments.analysis, k=arguments.k)))  # noqa: T201
