"""Load the epochs that were committed to a store since the last export into Neo4j; tasks of Spark write them.

spark-submit spark_jobs/export_neo4j.py STORE [--uri URI] [--detail waits|critical|full] [--final] [--local]

NEO4J_URI, NEO4J_USERNAME, NEO4J_PASSWORD (or NEO4J_PASSWORD_FILE) and NEO4J_CA say where. Prints one JSON object. Exit
code 0: done, also if nothing was new; 2: wrong usage; 4: no such store; 6: Neo4j failed; 1: anything else. A job that
is killed, repeated or run twice at once leaves the database as one run does.
"""

import argparse
import json
import sys
from pathlib import Path

from pag_graph.api import make_engine
from pag_graph.errors import InvalidParameterError, Neo4jError, PagGraphError, StoreError
from pag_graph.pag.snapshot import Run
from pag_graph.sinks.neo4j.connection import connection_from_environment
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.export import export_store
from pag_graph.sinks.neo4j.loader import LoadOptions

CODES = ((InvalidParameterError, 2), (StoreError, 4), (Neo4jError, 6))

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("store")
parser.add_argument("--uri")
parser.add_argument("--detail", type=Detail, choices=list(Detail), default=Detail.WAITS)
parser.add_argument("--final", action="store_true", help="leave out epochs that an append may still change")
parser.add_argument("--local", action="store_true", help="write from this process, without Spark")
given = parser.parse_args()
try:
    report = export_store(
        Run(Path(given.store).absolute()),
        connection_from_environment(given.uri),
        options=LoadOptions(detail=given.detail),
        final_only=given.final,
        engine=None if given.local else make_engine("spark"),
    )
except PagGraphError as error:
    print(json.dumps({"error": error.condition, "message": error.message, "hint": error.hint}))  # noqa: T201
    sys.exit(next((code for kind, code in CODES if isinstance(error, kind)), 1))
print(json.dumps(report.summary()))  # noqa: T201  (its answer)
