"""A Spark session that is configured for this package, and GraphFrames' jar where it can be had."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.errors import EngineError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

GRAPHFRAMES_COORDINATE = "io.graphframes:graphframes-spark4_2.13:0.12.3"
"""Maven coordinate of GraphFrames' jar for Spark 4."""

GRAPHFRAMES_JAR_VARIABLE = "PAG_GRAPHFRAMES_JAR"
"""Environment variable that names a local copy of the jar."""

_GRAPHFRAMES_CLASS = "org.graphframes.GraphFrame"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFramesJar:
    """Whether GraphFrames' jar is on a session's class path, and how it got there."""

    present: bool
    how: str
    """In plain words."""


def spark_session(
    *,
    app: str = "pag_graph",
    master: str | None = None,
    quick: bool = False,
    resolve_graphframes: bool = False,
) -> SparkSession:
    """Return the active Spark session, or start one that is configured for this package.

    Parameters
    ----------
    app
        Name shown in Spark's user interface.
    master
        Spark master; ``local[*]`` where neither this nor spark-submit gives one. A local session listens on loopback
        only.
    quick
        Trade peak speed of the JVM for a faster start: right for small data and for tests.
    resolve_graphframes
        Ask Spark to fetch GraphFrames' jar where ``PAG_GRAPHFRAMES_JAR`` does not name one. A network that cannot
        reach its repository makes the start fail.

    Returns
    -------
    SparkSession
        Shared; the caller that started it may stop it.

    Raises
    ------
    MissingExtraError
        If PySpark is not installed.
    EngineError
        If Java or Spark cannot start; says what to do.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    if importlib.util.find_spec("pyspark") is None:
        raise MissingExtraError.from_extra(what="A Spark session", extra="spark")
    # Workers must run the very Python that has this package, whatever `python3` on the path is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName(app)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        master = master or os.environ.get("SPARK_MASTER") or "local[*]"
        builder = builder.master(master)
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
        if master.startswith("local"):
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        # Java 17's own warnings about Spark's use of internals tell a user nothing.
        options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" if quick else "-XX:+UseParallelGC"
        builder = builder.config("spark.driver.extraJavaOptions", options)
        jar = os.environ.get(GRAPHFRAMES_JAR_VARIABLE)
        if jar:
            if not Path(jar).is_file():
                message = f"{GRAPHFRAMES_JAR_VARIABLE} names {jar}, which is no file."
                raise EngineError(message, "Correct the path, or unset the variable.", {"file": jar})
            builder = builder.config("spark.jars", jar)
        elif resolve_graphframes:
            builder = builder.config("spark.jars.packages", GRAPHFRAMES_COORDINATE)
    log = Path(tempfile.gettempdir()) / f"pag-graph-spark-{os.getpid()}.log"
    try:
        with _stderr_to(log):
            session = builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError, OSError) as error:
        said = (
            [line for line in log.read_text(errors="replace").splitlines() if "rror" in line] if log.is_file() else []
        )
        message = f"Spark cannot be started: {said[-1].strip() if said else error}"
        hint = "Run `pag doctor`: Spark needs Java 17 or later, found by JAVA_HOME or on the path."
        if resolve_graphframes:
            hint += (
                f" If {GRAPHFRAMES_COORDINATE} could not be fetched, name a local copy in {GRAPHFRAMES_JAR_VARIABLE}."
            )
        raise EngineError(message, f"{hint} All that it printed: {log}") from error
    log.unlink(missing_ok=True)
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Send what the JVM prints while it starts to a file: noise when all is well, the cause when it fails."""
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # no standard error to keep quiet
        yield
        return
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(target)


def graphframes_jar(spark: SparkSession) -> GraphFramesJar:
    """Tell whether GraphFrames' jar is on the class path of a session.

    Parameters
    ----------
    spark
        The session.

    Returns
    -------
    GraphFramesJar
        Whether, and how.
    """
    jvm = spark.sparkContext._jvm  # noqa: SLF001  (PySpark has no public way to ask for a class)
    assert jvm is not None  # noqa: S101
    from py4j.protocol import Py4JJavaError

    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(_GRAPHFRAMES_CLASS, False, loader)  # noqa: FBT003
    except Py4JJavaError:
        return GraphFramesJar(present=False, how="not on Spark's class path")
    jar = os.environ.get(GRAPHFRAMES_JAR_VARIABLE)
    return GraphFramesJar(present=True, how=f"from {jar}" if jar else "given to Spark")
