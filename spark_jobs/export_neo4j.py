"""Load the epochs that were committed to a store since the last export into Neo4j; tasks of Spark write them.

spark-submit spark_jobs/export_neo4j.py STORE [--uri URI] [--detail waits|critical|full] [--final] [--local]
NEO4J_URI, NEO4J_USERNAME, NEO4J_PASSWORD (or NEO4J_PASSWORD_FILE) and NEO4J_CA say where. Prints one JSON object. A job
that is killed, repeated or run twice at once leaves the database as one run does.
"""

from argparse import Namespace

from pag_graph.api import Pag, make_engine
from pag_graph.cli.jobs import JobParser, run_job
from pag_graph.sinks.neo4j.connection import connection_from_environment
from pag_graph.sinks.neo4j.export import export_store
from pag_graph.sinks.neo4j.loader import Detail, LoadOptions

parser = JobParser(__doc__, "store")
parser.add_argument("--uri", help="the server; else NEO4J_URI")
parser.add_argument("--detail", type=Detail, choices=list(Detail), default=Detail.WAITS)
parser.add_argument("--final", action="store_true", help="leave out epochs that an append may still change")
parser.add_argument("--local", action="store_true", help="write from this process, without Spark")


def work(given: Namespace) -> dict[str, object]:  # noqa: D103
    run, server = Pag(given.store).run, connection_from_environment(given.uri)
    more = {"options": LoadOptions(detail=given.detail), "engine": None if given.local else make_engine("spark")}
    return export_store(run, server, final_only=given.final, **more).summary()


run_job(parser, work)
