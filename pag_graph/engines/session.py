"""A Spark session that is configured for this package, and GraphFrames' jar where it can be had.

Only `pag_graph.api.Pag.graphframe` needs the jar; a session starts without it all the same. Where it comes from, in
this order:

1. a session that is there already, with whatever is on its class path;
2. what Spark is given anyway: ``--jars``, ``--packages``, ``spark.jars`` and ``spark.jars.packages``, by spark-submit,
   ``PYSPARK_SUBMIT_ARGS`` or ``spark-defaults.conf``;
3. the file that ``PAG_GRAPHFRAMES_JAR`` names;
4. a copy in ``$PAG_CACHE``, or where Ivy and Maven keep what they fetched before;
5. Spark's own resolver (``spark.jars.packages``), where asked for with ``resolve_graphframes``.

`graphframes_jar` says which of them it was.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.errors import EngineError, MissingExtraError
from pag_graph.runtime.folders import cache_folder
from pag_graph.runtime.threads import CORES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_WITHOUT = "or do without Spark: `pag build TRACE STORE --engine local`, in Python engine='local'."
GRAPHFRAMES_COORDINATE = "io.graphframes:graphframes-spark4_2.13:0.12.3"
"""Maven coordinate of GraphFrames' jar for Spark 4."""

GRAPHFRAMES_JAR_VARIABLE = "PAG_GRAPHFRAMES_JAR"
"""Environment variable that names a local copy of the jar."""

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a Java machine that is to start quickly, for small data."""

_GRAPHFRAMES_CLASS = "org.graphframes.GraphFrame"
_HOW = "spark.pag_graph.graphframes"
"""Key of Spark's configuration under which a session remembers where it was to take the jar from."""
_LOCAL_RELATION = "1MB"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFramesJar:
    """Whether GraphFrames' jar is on a session's class path, and how it got there."""

    present: bool
    """Whether Spark finds the class."""
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
        Ask Spark to fetch GraphFrames' jar where no copy is at hand. If it cannot be fetched, the session starts
        without it.

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
    """
    if importlib.util.find_spec("pyspark") is None:
        missing = MissingExtraError.from_extra(what="A Spark session", extra="spark")
        raise MissingExtraError(missing.message, f"{missing.hint}; {_WITHOUT}", missing.context)
    # Workers must run the very Python that has this package, whatever `python3` on the path is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
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
        builder = builder.config("spark.sql.shuffle.partitions", str(2 * CORES))
        # Spark ships a local relation row by row, as part of the plan; 48 MB of rows take minutes.
        builder = builder.config("spark.sql.execution.arrow.localRelationThreshold", _LOCAL_RELATION)
        if master.startswith("local") or any(f"//{host}" in master for host in _LOOPBACK):
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        # Java 17's own warnings about Spark's use of internals tell a user nothing.
        options = QUICK_JVM if quick else "-XX:+UseParallelGC"
        builder = builder.config("spark.driver.extraJavaOptions", options)
    jar_choice = _Choice(how="given to Spark") if submitted else _choose_jar(resolve=resolve_graphframes)
    if jar_choice.packages:
        try:
            session = _start(builder.config("spark.jars.packages", jar_choice.packages).config(_HOW, jar_choice.how))
        except EngineError as error:
            jar_choice = _Choice(how=f"absent: {GRAPHFRAMES_COORDINATE} could not be fetched ({error.message})")
            _log.warning("GraphFrames' jar is %s; starting Spark without it", jar_choice.how)
            # The builder keeps what it was told: the session must not try again.
            session = _start(builder.config("spark.jars.packages", "").config(_HOW, jar_choice.how))
    else:
        if jar_choice.jar:
            builder = builder.config("spark.jars", jar_choice.jar)
        session = _start(builder.config(_HOW, jar_choice.how))
    session.sparkContext.setLogLevel("ERROR")
    _log.info("GraphFrames' jar: %s", jar_choice.how)
    return session


def _start(builder: SparkSession.Builder) -> SparkSession:
    """Start the session that a builder describes.

    Raises
    ------
    EngineError
        If it does not start; with the line that says why, which Spark only prints.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkRuntimeError

    log = Path(tempfile.gettempdir()) / f"pag-graph-spark-{os.getpid()}.log"
    log.unlink(missing_ok=True)
    try:
        with _stderr_to(log):
            session = builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError, OSError) as error:
        lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
        error_lines = [line for line in lines if "rror" in line or "xception" in line]
        message = f"Spark cannot be started: {error_lines[-1].strip() if error_lines else error}"
        hint = "Run `pag doctor`: Spark needs Java 17 or later, found by JAVA_HOME or on the path;"
        raise EngineError(message, f"{hint} {_WITHOUT} All that it printed: {log}") from error
    log.unlink(missing_ok=True)
    return session


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Where a new session takes the jar from."""

    how: str
    jar: str = ""
    packages: str = ""


def graphframes_jar_at_hand() -> tuple[bool, str]:
    """Tell, without starting Spark, whether a new session would have GraphFrames' jar.

    Returns
    -------
    tuple of bool and str
        Whether it would, as far as can be told; and where it would take it from, in plain words.
    """
    choice = _choose_jar(resolve=False)
    return not choice.how.startswith("absent"), choice.how.removeprefix("absent: ")


def _choose_jar(*, resolve: bool) -> _Choice:
    """Decide where a session that is about to start takes GraphFrames' jar from.

    Raises
    ------
    EngineError
        If the jar is asked for, and the file that is named for it does not exist.
    """
    if option := _given_to_spark():
        return _Choice(how=f"given to Spark by {option}")
    given_jar = os.environ.get(GRAPHFRAMES_JAR_VARIABLE)
    if given_jar and Path(given_jar).is_file():
        return _Choice(how=f"{given_jar}, named by {GRAPHFRAMES_JAR_VARIABLE}", jar=given_jar)
    if given_jar:
        message = f"{GRAPHFRAMES_JAR_VARIABLE} names {given_jar}, which is not a file."
        if resolve:
            raise EngineError(message, "Correct the path, or unset the variable.", {"file": given_jar})
        _log.warning("%s Spark starts without GraphFrames", message)
        return _Choice(how=f"absent: {message}")
    for copy in cached_jars():
        return _Choice(how=f"{copy}, a copy fetched before", jar=str(copy))
    if resolve:
        return _Choice(how=f"fetched by Spark: {GRAPHFRAMES_COORDINATE}", packages=GRAPHFRAMES_COORDINATE)
    return _Choice(how=f"absent: {GRAPHFRAMES_JAR_VARIABLE} is not set, and no copy was fetched before")


def _given_to_spark() -> str:
    """Return what gives Spark jars or packages already, whatever they are; ours would take their place."""
    if any(word in os.environ.get("PYSPARK_SUBMIT_ARGS", "") for word in ("--jars", "--packages", "spark.jars")):
        return "PYSPARK_SUBMIT_ARGS"
    folder = os.environ.get("SPARK_CONF_DIR") or (
        f"{os.environ['SPARK_HOME']}/conf" if os.environ.get("SPARK_HOME") else ""
    )
    defaults = Path(folder) / "spark-defaults.conf"
    if folder and defaults.is_file():
        lines = defaults.read_text(encoding="utf-8", errors="replace").splitlines()
        if any(line.split("=")[0].split()[:1] in (["spark.jars"], ["spark.jars.packages"]) for line in lines):
            return str(defaults)
    return ""


def cached_jars() -> list[Path]:
    """Return the copies of GraphFrames' jar, of the version that this package asks for, that were fetched before.

    Returns
    -------
    list of Path
        From ``$PAG_CACHE`` (else ``pag-graph`` in the user's cache folder), Ivy's folders and Maven's.
    """
    group, artifact, version = GRAPHFRAMES_COORDINATE.split(":")
    home, own_cache = Path.home(), cache_folder()
    name = f"{artifact}-{version}.jar"
    places = [own_cache / name, own_cache / "graphframes" / name]
    for ivy in sorted(home.glob(".ivy2*"), reverse=True):
        places += [ivy / "jars" / f"{group}_{name}", ivy / "cache" / group / artifact / "jars" / name]
    places.append(home / ".m2" / "repository" / Path(*group.split(".")) / artifact / version / name)
    return [place for place in places if place.is_file()]


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
        origin = spark.sparkContext.getConf().get(_HOW, "") or ""
        return GraphFramesJar(present=False, how=origin if origin.startswith("absent") else "not on Spark's class path")
    return GraphFramesJar(present=True, how=spark.sparkContext.getConf().get(_HOW, "on the class path of the session"))
