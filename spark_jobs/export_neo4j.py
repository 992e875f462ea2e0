"""Load the epochs that were committed to a store since the last export into Neo4j; tasks of Spark write them.

spark-submit spark_jobs/export_neo4j.py STORE [--uri URI] [--detail waits|critical|full] [--final] [--local]

NEO4J_URI, NEO4J_USERNAME, NEO4J_PASSWORD (or NEO4J_PASSWORD_FILE) and NEO4J_CA say where. Prints one JSON object; exit
codes are those of pag. A job that is killed, repeated or run twice at once leaves the database as one run does.
"""

from argparse import Namespace
from pathlib import Path

from pag_graph.api import make_engine
from pag_graph.cli.jobs import JobParser, run_job
from pag_graph.pag.snapshot import Run
from pag_graph.sinks.neo4j.connection import connection_from_environment
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.export import export_store
from pag_graph.sinks.neo4j.loader import LoadOptions

parser = JobParser(__doc__, "store")
parser.add_argument("--uri")
parser.add_argument("--detail", type=Detail, choices=list(Detail), default=Detail.WAITS)
parser.add_argument("--final", action="store_true", help="leave out epochs that an append may still change")
parser.add_argument("--local", action="store_true", help="write from this process, without Spark")


def work(given: Namespace) -> dict[str, object]:  # noqa: D103
    run, server = Run(Path(given.store).absolute()), connection_from_environment(given.uri)
    engine, options = None if given.local else make_engine("spark"), LoadOptions(detail=given.detail)
    return export_store(run, server, options=options, final_only=given.final, engine=engine).summary()


run_job(parser, work)
