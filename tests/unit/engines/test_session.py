"""Where GraphFrames' jar comes from: the order of the places, what is said, and that nothing else needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.cli.doctor import checks
from pag_graph.engines import session
from pag_graph.engines.session import GRAPHFRAMES_COORDINATE, GRAPHFRAMES_JAR_VARIABLE, cached_jars
from pag_graph.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.cli.doctor import Check

NAME = "graphframes-spark4_2.13-0.12.3.jar"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make a home without any jar, and an environment that names none."""
    for name in (GRAPHFRAMES_JAR_VARIABLE, "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PAG_CACHE", str(home / "pag-cache"))
    return home


def place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"jar")
    return path


def test_what_spark_is_given_comes_first(monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> None:
    monkeypatch.setenv(GRAPHFRAMES_JAR_VARIABLE, str(place(nowhere / "own.jar")))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars /x/other.jar pyspark-shell")
    chosen = session._choose_jar(resolve=True)
    assert (chosen.jar, chosen.packages, chosen.how) == ("", "", "given to Spark by PYSPARK_SUBMIT_ARGS")


@pytest.mark.parametrize("line", ["spark.jars /x/other.jar", "spark.jars.packages=a:b:1"])
def test_sparks_own_defaults_count_as_given(monkeypatch: pytest.MonkeyPatch, nowhere: Path, line: str) -> None:
    (nowhere / "spark-defaults.conf").write_text(f"spark.jars.ivy /x\n{line}\n", encoding="utf-8")
    monkeypatch.setenv("SPARK_CONF_DIR", str(nowhere))
    assert session._choose_jar(resolve=True).how == f"given to Spark by {nowhere / 'spark-defaults.conf'}"


def test_other_defaults_do_not(monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> None:
    (nowhere / "spark-defaults.conf").write_text("spark.jars.ivy /x\n# spark.jars y\n\n", encoding="utf-8")
    monkeypatch.setenv("SPARK_CONF_DIR", str(nowhere))
    assert session._choose_jar(resolve=False).how.startswith("absent")


def test_the_doctor_looks_where_a_session_does(monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> None:
    def told() -> Check:
        return next(check for check in checks() if check.name == "GraphFrames' jar")

    assert not told().ok
    assert "no copy was fetched before" in told().found
    copy = place(nowhere / "pag-cache" / NAME)
    assert (told().ok, told().found) == (True, f"{copy}, a copy fetched before")
    monkeypatch.setenv(GRAPHFRAMES_JAR_VARIABLE, "/nowhere/own.jar")
    assert (told().ok, "/nowhere/own.jar, which is not a file" in told().found) == (False, True)


def test_the_variable_comes_before_copies(monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> None:
    copy = place(nowhere / "pag-cache" / NAME)
    own = place(nowhere / "own.jar")
    assert session._choose_jar(resolve=False).jar == str(copy)
    monkeypatch.setenv(GRAPHFRAMES_JAR_VARIABLE, str(own))
    chosen = session._choose_jar(resolve=False)
    assert chosen.jar == str(own)
    assert chosen.how == f"{own}, named by {GRAPHFRAMES_JAR_VARIABLE}"


def test_copies_of_ivy_and_maven_are_found(nowhere: Path) -> None:
    assert cached_jars() == []
    found = [
        place(nowhere / ".ivy2.5.2" / "jars" / f"io.graphframes_{NAME}"),
        place(nowhere / ".ivy2" / "cache" / "io.graphframes" / "graphframes-spark4_2.13" / "jars" / NAME),
        place(nowhere / ".m2" / "repository" / "io" / "graphframes" / "graphframes-spark4_2.13" / "0.12.3" / NAME),
    ]
    # Of another version, so not what is asked for.
    place(nowhere / ".ivy2" / "jars" / "io.graphframes_graphframes-spark4_2.13-0.10.0.jar")
    assert cached_jars() == found
    assert session._choose_jar(resolve=True).how == f"{found[0]}, a copy fetched before"


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the session's logger is told, whatever other tests did to the handlers of the process."""
    said: list[str] = []
    monkeypatch.setattr(session._log, "warning", lambda text, *values: said.append(text % values))
    return said


def test_spark_fetches_it_only_where_asked() -> None:
    assert session._choose_jar(resolve=True).packages == GRAPHFRAMES_COORDINATE
    chosen = session._choose_jar(resolve=False)
    assert (chosen.jar, chosen.packages) == ("", "")
    assert chosen.how == f"absent: {GRAPHFRAMES_JAR_VARIABLE} is not set, and no copy was fetched before"


def test_a_wrong_path_fails_only_who_needs_the_jar(
    monkeypatch: pytest.MonkeyPatch, nowhere: Path, warned: list[str]
) -> None:
    monkeypatch.setenv(GRAPHFRAMES_JAR_VARIABLE, str(nowhere / "no.jar"))
    chosen = session._choose_jar(resolve=False)
    assert chosen.how.startswith(f"absent: {GRAPHFRAMES_JAR_VARIABLE} names")
    assert "starts without GraphFrames" in warned[0]
    with pytest.raises(EngineError, match=r"no\.jar, which is not a file") as raised:
        session._choose_jar(resolve=True)
    assert "unset" in str(raised.value.hint)


def test_a_jar_that_cannot_be_fetched_does_not_keep_spark_from_starting(
    monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    tried: list[dict[str, Any]] = []

    class Started:
        class sparkContext:  # noqa: N801  (as it is called in PySpark)
            @staticmethod
            def setLogLevel(_: str) -> None:  # noqa: N802
                pass

    def start(builder: Any) -> Started:
        options = dict(builder._options)
        tried.append(options)
        if options.get("spark.jars.packages"):
            message = "Spark cannot be started: unresolved dependency"
            raise EngineError(message, "hint")
        return Started()

    monkeypatch.setattr(session, "_start", start)
    started = session.spark_session(master="local[1]", resolve_graphframes=True)
    assert isinstance(started, Started)
    assert [options["spark.jars.packages"] for options in tried] == [GRAPHFRAMES_COORDINATE, ""]
    assert "could not be fetched (Spark cannot be started: unresolved dependency)" in warned[0]
    assert tried[1]["spark.pag_graph.graphframes"].startswith("absent: io.graphframes")


@pytest.mark.parametrize(
    ("master", "loopback"),
    [("local[2]", True), ("spark://127.0.0.1:7077", True), ("spark://cluster:7077", False)],
)
def test_a_local_session_listens_on_loopback_only(
    monkeypatch: pytest.MonkeyPatch, master: str, *, loopback: bool
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    seen: dict[str, Any] = {}

    def start(builder: Any) -> Any:
        seen.update(builder._options)
        message = "enough"
        raise EngineError(message)

    monkeypatch.setattr(session, "_start", start)
    with pytest.raises(EngineError, match="enough"):
        session.spark_session(master=master)
    assert seen["spark.master"] == master
    assert (seen.get("spark.driver.bindAddress") == "127.0.0.1") is loopback
