"""A Spark standalone cluster on loopback, for as long as a `with` block lasts: a master and some worker processes.

Every worker has one core (or more where asked for) and a loopback address of its own (127.0.0.1, 127.0.0.2, ...), so
that event logs name as many hosts as there are workers. Linux answers on all of 127.0.0.0/8; elsewhere the addresses
must be set up first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARK = Path(pyspark.__file__).parent
_START_SECONDS = 300
_STOP_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a program needs to know about the cluster."""

    master: str
    """Address for `spark.master`."""
    workers: tuple[int, ...]
    """Process ids of the workers; their children are the executors."""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment that every process of the cluster and every program gets: loopback, and no real names."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return inherited | {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "SPARK_USER": "spark",
        "HADOOP_USER_NAME": "spark",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-Duser.name=spark -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TZ": "UTC",
    }


def worker_command(master: str, number: int, *, cores: int) -> list[str]:
    """Return how to start a worker, which has the loopback address of its number."""
    words = ("--host", _host(number), "--port", "0", "--webui-port", "0", "--cores", str(cores), "--memory", "1g")
    return [str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker", *words, master]


def worker_environment(folder: Path, number: int) -> dict[str, str]:
    """Return the environment of a worker."""
    return environment(folder) | {"SPARK_LOCAL_IP": _host(number), "SPARK_LOCAL_HOSTNAME": _host(number)}


def _host(number: int) -> str:
    return f"127.0.0.{number}"


@contextmanager
def standalone(folder: Path, *, workers: int = 2, cores: int = 1) -> Iterator[Cluster]:
    """Run a master and some workers; stop them at the end.

    Parameters
    ----------
    folder
        Where they keep their logs, work directories and shuffle files.
    workers, cores
        How many, and cores of each; its memory is enough for one executor.

    Yields
    ------
    Cluster
        Once every worker is registered.

    Raises
    ------
    RuntimeError
        If the cluster does not come up; says which log to read.
    """
    for name in ("local", "work", "logs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, command: list[str], number: int) -> Path:
        log, ours = folder / "logs" / f"{name}.log", worker_environment(folder, number)
        with log.open("wb") as output:
            started.append(subprocess.Popen(command, env=ours, cwd=folder, stdout=output, stderr=subprocess.STDOUT))
        return log

    try:
        words = ("--host", _host(1), "--port", "0", "--webui-port", "0")
        log = start("master", [str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master", *words], 1)
        master = _wait_for(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        logs = [
            start(f"worker-{number}", worker_command(master, number, cores=cores), number)
            for number in range(1, workers + 1)
        ]
        for log in logs:
            _wait_for(log, r"(Successfully registered with master)")
        yield Cluster(master=master, workers=tuple(process.pid for process in started[1:]))
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def children(process: int) -> list[int]:
    """Return the process ids of a process's children, eldest first."""
    listing = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False)
    return [int(line) for line in listing.stdout.split()]


def _wait_for(log: Path, pattern: str) -> str:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if match := re.search(pattern, log.read_text(encoding="utf-8", errors="replace")):
            return match.group(1)
        time.sleep(0.1)
    message = f"Spark did not come up within {_START_SECONDS} s; read {log}."
    raise RuntimeError(message)
