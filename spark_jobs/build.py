"""Build the program activity graph of a trace on Spark.

spark-submit spark_jobs/build.py TRACE STORE [--rules RULES] [--force-rules] [--append|--replace] [--slice-events N]

The rules are those that the trace asks for, unless others are given; rules that it contradicts need --force-rules.

Prints one JSON object; a job that is run again adds what is new with --append, and changes nothing else.
"""

import argparse
import json

from pag_graph.api import RuleSet, build

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("trace")
parser.add_argument("store")
parser.add_argument("--rules", choices=[str(rules) for rules in RuleSet])
parser.add_argument("--force-rules", action="store_true")
parser.add_argument("--slice-events", type=int)
modes = parser.add_mutually_exclusive_group()
modes.add_argument("--append", action="store_const", const="append", dest="mode", default="error")
modes.add_argument("--replace", action="store_const", const="replace", dest="mode")
arguments = parser.parse_args()
report = build(
    arguments.trace,
    arguments.store,
    rules=arguments.rules,
    force_rules=arguments.force_rules,
    mode=arguments.mode,
    slice_events=arguments.slice_events,
)
summary = {"run_id": report.store.run["run_id"], "committed": report.committed, "rows": report.rows}
print(json.dumps({**summary, "versions": dict(report.store.versions)}))  # noqa: T201  (its answer)
