"""A standalone Spark cluster on loopback: a master and its workers, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.engines.session import QUICK_JVM
from pag_graph.sources.record import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Cluster", "cluster"]

_PATIENCE_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that runs."""

    address: str
    """Of its master, as Spark is told it."""
    work: Path
    """One folder per worker; in it one per application, with what the executors said."""
    environment: dict[str, str]
    """For those who submit to it."""


@contextmanager
def cluster(
    folder: Path, python: Path, *, workers: int = 1, cores: int = 2, memory: str = "1g", java: str = QUICK_JVM
) -> Iterator[Cluster]:
    """Start a cluster, and stop it at the end.

    Parameters
    ----------
    folder
        For logs and work.
    python
        Interpreter that executors run tasks with; it has this package.
    workers, cores, memory
        How many workers, and what each gives to executors.
    java
        Options of master and workers; executors get theirs from who submits.

    Yields
    ------
    Cluster
        Every worker is registered.

    Raises
    ------
    RuntimeError
        If a process does not come up; with what it said.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    environment |= {
        "SPARK_HOME": str(home),
        # Spark's own web pages listen where this says.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": java,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }
    (port,) = free_ports(1)
    address = f"spark://127.0.0.1:{port}"
    start, kind = str(home / "bin" / "spark-class"), "org.apache.spark.deploy"
    listen_options = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        master = [start, f"{kind}.master.Master", *listen_options, "--port", str(port)]
        running.enter_context(_running(master, folder / "master.log", environment, "New state: ALIVE"))
        for number in range(workers):
            share = ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder / "work" / str(number))]
            command = [start, f"{kind}.worker.Worker", *listen_options, *share, address]
            log = folder / f"worker-{number}.log"
            running.enter_context(_running(command, log, environment, "Successfully registered with master"))
        yield Cluster(address=address, work=folder / "work", environment=environment)


@contextmanager
def _running(command: list[str], log: Path, environment: dict[str, str], ready: str) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while ready not in (output_text := log.read_text(encoding="utf-8", errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                message = f"{command[1]} did not come up: {output_text[-2000:]}"
                raise RuntimeError(message)
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
