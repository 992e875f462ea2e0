"""Record the programs of `plan_programs.py` on two cores of one process, and keep their event logs.

    python bench/spark_causes/record_plans.py --out logs                       # all: logs/NAME-ROLE.zstd
    python bench/spark_causes/record_plans.py --out logs --only python-udf
    python bench/spark_causes/record_plans.py --out tests/data/spark/plans     # what the tests read, and
    python bench/spark_causes/record_plans.py --out tests/data/spark/streams --only h-no-broadcast --roles planted twin

Every run is an application of its own within one JVM, warmed up by a run that is not kept. Logs are scrubbed as those
of `make_logs.py`. The programs with a pandas UDF need pandas.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from make_logs import packed, scrub
from plan_programs import PATTERNS, PROGRAMS, ROLES, Program, Role
from query_programs import HELD_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["record", "recording"]

_SETTINGS = {
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-Duser.name=spark -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}


def session(name: str, logs: Path, settings: Mapping[str, str]) -> SparkSession:
    """Start an application on two cores that writes its log to a folder."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName(name)
    places = {"spark.eventLog.dir": logs.as_uri(), "spark.sql.warehouse.dir": (logs.parent / "warehouse").as_uri()}
    for key, value in {**_SETTINGS, **places, **settings}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def record(program: Program, role: Role, folder: Path, settings: Mapping[str, str] | None = None) -> bytes:
    """Run a program in a role and return its log.

    Parameters
    ----------
    program, role
        What to run.
    folder
        Where data and logs are while it runs.
    settings
        What to change of its settings.

    Returns
    -------
    bytes
        The log as text, scrubbed.
    """
    logs, data_folder = folder / "events", folder / "data" / (program.data or program.name)
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    if not data_folder.exists():
        data_folder.mkdir(parents=True)
        if program.prepare is not None:
            program.prepare(data_folder)
    all_settings = {**program.settings, **(program.fixed_settings if role == "twin" else {}), **(settings or {})}
    spark = session(f"{program.name}-{role}", logs, all_settings)
    try:
        program.run(spark, role, data_folder)
    finally:
        spark.stop()
    (log,) = logs.iterdir()
    scrub(log, folder)
    return log.read_bytes()


@contextmanager
def recording(first: Program) -> Iterator[Path]:
    """Yield a folder to record in; the first run of all is one that does not count.

    Parameters
    ----------
    first
        What runs before anything counts.
    """
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_USER": "spark", "HADOOP_USER_NAME": "spark"}
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="spark-plans-") as temporary:
        folder = Path(temporary)
        record(first, "twin", folder)
        yield folder


def main() -> None:
    """Read the options and record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    programs = [*PROGRAMS, *PATTERNS, *HELD_OUT]
    names = [program.name for program in programs]
    usual = [program.name for program in (*PROGRAMS, *PATTERNS)]
    parser.add_argument("--out", type=Path, required=True, help="folder for the logs")
    parser.add_argument("--only", nargs="+", choices=names, default=usual, metavar="NAME", help=", ".join(names))
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=list(ROLES))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [program for program in programs if program.name in options.only]
    with recording(chosen[0]) as folder:
        for program, role in product(chosen, options.roles):
            log = record(program, role, folder)
            target = options.out / f"{program.name}-{role}.zstd"
            target.write_bytes(packed(log))
            print(f"{target.name}: {len(log) / 1e6:.2f} MB, {target.stat().st_size:,} bytes kept", flush=True)


if __name__ == "__main__":
    sys.exit(main())
