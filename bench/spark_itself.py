"""The jobs of this package, told by their own event logs: makes ``docs/spark-itself.md``.

``python -m bench.spark_itself`` builds the recorded trace of `build` (2.1 M events) on a local Spark that logs events,
runs analyses as jobs on it, asks ``pag spark`` about every log, and replaces the generated part of the page.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench import harness
from bench.analyses import triangles

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = harness.ROOT / "docs" / "spark-itself.md"
_WIDTH = "110"


def jobs(trace: Path, folder: Path) -> dict[str, list[str]]:
    """Return what is run, by a name for people: a script of ``spark_jobs`` with its arguments."""
    store = str(folder / "run.pag")
    analyses = {
        f"{name}, all rounds": ["analyse.py", store, str(folder / name), "--analysis", name]
        for name in ("critical-path", "k-hops", "slack")
    }
    return {"Building the graph": ["build.py", str(trace), store, "--replace"], **analyses}


def submit(script: Sequence[str], logs: Path) -> Path:
    """Run a job with event logging, and return its log.

    Parameters
    ----------
    script
        A script of ``spark_jobs``, and its arguments.
    logs
        Folder that the log is written to.

    Raises
    ------
    RuntimeError
        If the job fails.
    """
    import pyspark

    before = set(logs.iterdir())
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logs.as_uri(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [str(home / "bin" / "spark-submit"), "--master", "local[*]", *options]
    # As users run Python: what it compiled once it does not compile again in every process.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    completed = subprocess.run(
        [*command, str(harness.ROOT / "spark_jobs" / script[0]), *script[1:]],
        check=False,
        capture_output=True,
        text=True,
        env={**environment, **python},
    )
    if completed.returncode:
        message = f"{script[0]} failed: {completed.stderr[-2000:]}"
        raise RuntimeError(message)
    (log,) = set(logs.iterdir()) - before
    return log


def report(log: Path) -> str:
    """Return what ``pag spark`` says of a log, without the log's name."""
    completed = subprocess.run(
        [sys.executable, "-c", "from pag_graph.cli.app import main; main()", "spark", str(log)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": _WIDTH},
    )
    lines = [line.rstrip().replace(f" ({log.name}, ", " (") for line in completed.stdout.strip().splitlines()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_itself", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--scratch", type=Path, default=harness.ROOT / ".pag" / "bench", help="where to write")
    options = parser.parse_args(arguments)
    session = harness.Session(options.scratch)
    trace, _ = triangles(session)
    folder = session.new_folder("itself")
    logs = folder / "logs"
    logs.mkdir(parents=True)
    machine = harness.machine()
    cores, load = machine["cores"], machine["load_average"]
    paragraphs = [f"{cores} cores, {platform.system()}, load average {load} before; commit {harness.commit()}."]
    for name, script in jobs(trace, folder).items():
        session.say(name)
        paragraphs.append(f"### {name}\n\n```text\n{report(submit(script, logs))}\n```")
    text = harness.with_section(PAGE.read_text(encoding="utf-8"), "reports", "\n\n".join(paragraphs))
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
