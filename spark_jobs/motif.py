"""Find a motif in a store with Spark and write its matches as Parquet.

spark-submit spark_jobs/motif.py STORE OUTPUT NAME|PATTERN [--where FILTER] [--epochs 3-7] [--set NAME=VALUE ...]

Prints one JSON object. OUTPUT becomes a directory of Parquet files with one row per match and a struct per named
element, the columns of GraphFrames. GraphFrames' jar is not needed.
"""

import argparse
import json

import pag_graph
from pag_graph.cli.motif import parse_epochs
from pag_graph.engines.session import spark_session

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("store")
parser.add_argument("output")
parser.add_argument("pattern")
parser.add_argument("--where")
parser.add_argument("--epochs", type=parse_epochs)
parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
given = parser.parse_args()
values = {name: int(value) for name, _, value in (text.partition("=") for text in given.settings)}
pag = pag_graph.open(given.store)
spark = spark_session(app="pag_graph motif")
query = pag.motif(given.pattern, given.where, epochs=given.epochs, parameters=values, spark=spark)
query.frame().write.parquet(given.output)
found = spark.read.parquet(given.output).count()
print(json.dumps({"run_id": pag.run.info.run["run_id"], "motif": str(query.question.motif), "matches": found}))  # noqa: T201  (its answer)
