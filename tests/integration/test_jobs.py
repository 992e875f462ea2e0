"""Jobs for schedulers: whatever is wrong is one line of JSON with the exit code of the command, and no traceback."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest

from pag_graph import api, samples
from pag_graph.builder.engine import silent
from pag_graph.engines import spark as spark_engine
from pag_graph.engines.session import spark_session
from pag_graph.engines.spark import SparkEngine
from pag_graph.errors import EngineError, TraceFormatError
from pag_graph.store.trace import Trace
from tests.support.growing import GrowingTrace, rounds

pytestmark = pytest.mark.spark

JOBS = Path(__file__).parents[2] / "spark_jobs"
EACH = sorted(JOBS.glob("*.py"))


@pytest.fixture(scope="module", autouse=True)
def _session() -> None:
    # The session is shared with other modules, and ends with the process.
    spark_session(master="local[2]", quick=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store, a run's, and one that is taken."""
    folder = tmp_path_factory.mktemp("jobs")
    api.build(samples.path("skewed"), folder / "run.pag", engine="local")
    (folder / "taken").mkdir()
    (folder / "taken" / "file").touch()
    return folder


@pytest.mark.parametrize(
    ("words", "code", "condition", "said"),
    [
        ("build.py nope.trace new.pag", 3, "TRACE_FORMAT", "There is no trace at"),
        ("build.py TRACE run.pag", 4, "STORE_EXISTS", "already holds run"),
        ("build.py TRACE", 2, "INVALID_PARAMETER", "required: store"),
        ("follow.py TRACE", 2, "INVALID_PARAMETER", "required: store"),
        ("follow.py TRACE new.pag --until now", 2, "INVALID_PARAMETER", "does not say when to stop"),
        ("follow.py TRACE run.pag --every fast", 2, "INVALID_PARAMETER", "fast"),
        ("analyse.py nope.pag out --analysis why", 4, "STORE_NOT_FOUND", "no program activity graph at"),
        ("analyse.py run.pag taken --analysis why", 6, "SINK", "exists and is not empty"),
        ("analyse.py run.pag out --analysis nope", 2, "INVALID_PARAMETER", "invalid choice: 'nope'"),
        ("analyse.py run.pag out --analysis why --set epoch", 2, "INVALID_PARAMETER", "NAME=VALUE"),
        ("analyse.py run.pag out --analysis why --set lines=x", 2, "INVALID_PARAMETER", "type int"),
        ("analyse.py run.pag out --analysis k-hops --set k=0", 2, "INVALID_PARAMETER", "at least 1"),
        (
            "analyse.py run.pag out --analysis what-if --set worker=[9] --set factor=0",
            2,
            "INVALID_PARAMETER",
            "worker 9",
        ),
        (
            "analyse.py run.pag out --analysis diff --against nope.pag",
            4,
            "STORE_NOT_FOUND",
            "no program activity graph",
        ),
        ("analyse.py run.pag out --analysis k-hops-st2", 8, "UNSUPPORTED_PLAN", "rule set st2"),
        ("motif.py nope.pag out late_sender", 4, "STORE_NOT_FOUND", "no program activity graph at"),
        ("motif.py run.pag taken late_sender", 6, "SINK", "exists and is not empty"),
        ("motif.py run.pag taken/file/out late_sender", 6, "SINK", "cannot be written"),
        ("follow.py TRACE new.pag --checkpoint taken/file", 5, "ENGINE", "taken/file"),
        ("motif.py run.pag out (a)-[e", 2, "MOTIF_SYNTAX", "brackets"),
        ("motif.py run.pag out (a)-[e]->(b) --set foo=1", 2, "INVALID_PARAMETER", "uses the parameter $foo"),
        ("motif.py run.pag out late_sender --set min_ns=x", 2, "INVALID_PARAMETER", "whole number"),
        ("motif.py run.pag out late_sender --epochs x", 2, "INVALID_PARAMETER", "names no epochs"),
        ("export_neo4j.py nope.pag", 4, "STORE_NOT_FOUND", "no program activity graph at"),
        ("export_neo4j.py run.pag --uri http://x", 2, "INVALID_PARAMETER", "http"),
    ],
)
def test_what_is_wrong_is_said(
    folder: Path,
    words: str,
    code: int,
    condition: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", words.replace("TRACE", str(samples.path("skewed"))).split())
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(JOBS / sys.argv[0]), run_name="__main__")
    answer = json.loads(capsys.readouterr().out)
    assert (ended.value.code, answer["error"]) == (code, condition)
    assert said in answer["message"]
    assert not (folder / "out").exists()


@pytest.mark.parametrize("distinct", [False, True])
def test_the_motif_job_writes_its_matches(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, distinct: bool
) -> None:
    pattern, where = "(a)-[w]->(z); (s)-[m]->(z)", "w.type = 'waiting' and w.duration_ns > $ns"
    monkeypatch.chdir(tmp_path)
    options = ["--where", where, "--set", "ns=50000", "--epochs", "3-7", *(["--distinct"] * distinct)]
    monkeypatch.setattr(sys, "argv", ["motif.py", str(folder / "run.pag"), "matches", pattern, *options])
    runpy.run_path(str(JOBS / "motif.py"), run_name="__main__")
    answer = json.loads(capsys.readouterr().out)
    pag = api.open(folder / "run.pag")
    expected = pag.motif(pattern, where, epochs=range(3, 8), parameters={"ns": 50_000}, distinct=distinct).frame()  # type: ignore[union-attr]
    assert answer["matches"] == expected.height > 0
    written = pl.read_parquet(tmp_path / "matches" / "*.parquet")
    assert sorted(map(str, written.to_dicts())) == sorted(map(str, expected.to_dicts()))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("follow.py TRACE new.pag --until idle:0ms --every 0s", 10, {"ending": "idle", "commits": 1}),
        ("analyse.py STORE bad --analysis invariants --set epoch_max_ns=1 --set learn=false", 9, {"windows": 9}),
        ("analyse.py STORE good --analysis invariants --set learn=false", 0, {"rows": 0}),
    ],
    ids=["not complete", "alarm", "no alarm"],
)
def test_an_answer_has_the_exit_code_that_the_command_has(
    folder: Path,
    tmp_path: Path,
    words: str,
    code: int,
    said: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was 0 whatever the answer."""
    growing = GrowingTrace(rounds(3), tmp_path / "trace")
    growing.write_until(1)
    monkeypatch.chdir(tmp_path)
    places = {"TRACE": str(growing.path), "STORE": str(folder / "run.pag")}
    monkeypatch.setattr(sys, "argv", [places.get(word, word) for word in words.split()])
    ended = pytest.raises(SystemExit) if code else nullcontext()
    with ended as exited:
        runpy.run_path(str(JOBS / sys.argv[0]), run_name="__main__")
    assert json.loads(capsys.readouterr().out).items() >= said.items()
    assert exited is None or exited.value.code == code


@pytest.mark.parametrize("job", EACH, ids=lambda job: job.stem)
def test_a_job_is_a_few_lines_around_what_all_share(job: Path) -> None:
    text = job.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 30
    calls = [
        node.func.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and hasattr(node.func, "id")
    ]
    assert "run_job" in calls
    assert not [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Try)]


def _open(path: str) -> int:
    return Trace.open(path).rows


def _write(path: str) -> int:
    return Path(path).write_text("rows", encoding="utf-8")


def test_a_relative_trace_is_built_whatever_folder_executors_are_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "relative.trace").symlink_to(samples.path("skewed"))
    monkeypatch.chdir(folder)
    seen: list[Path] = []

    class Watched(SparkEngine):
        def map(self, task, items, **more):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN202
            seen.extend(path for path in _paths(task, items) if path.parts)
            return super().map(task, items, **more)

    api.build("relative.trace", "relative.pag", engine=Watched(spark_session()))
    assert seen
    assert all(path.is_absolute() for path in seen)
    seen.clear()
    api.analyse("relative.pag", "relative-out", "metrics", engine=Watched(spark_session()))
    assert len(seen) > 1
    assert all(path.is_absolute() for path in seen)


def _paths(task: object, items: object) -> list[Path]:
    """Return the paths that a task and its items are told, however deep."""
    found: list[Path] = []
    waiting: list[object] = [getattr(task, "args", ()), getattr(task, "keywords", {}), items]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Path):
            found.append(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, Trace):
            found.append(value.path)
    return found


@pytest.mark.parametrize("task", [_open, _write])
def test_what_an_executor_does_not_see_is_said(task: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "share" / "run.trace"
    # Executors and driver are one machine here, so it is the driver that is told otherwise.
    monkeypatch.setattr(spark_engine, "_is_here", lambda path: path == str(tmp_path / "share"))
    with pytest.raises(EngineError, match=r"The executor on \S+ does not see \S+run\.trace") as raised:
        SparkEngine().map(task, [str(missing)], label="look", progress=silent)  # type: ignore[arg-type]
    assert raised.value.context["path"] == str(missing)
    assert "share" in (raised.value.hint or "")


def test_what_nobody_sees_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="There is no trace at"):
        SparkEngine().map(_open, [str(tmp_path / "run.trace")], label="look", progress=silent)
    copy = tmp_path / "copy.trace"
    copy.mkdir()
    for file in samples.path("skewed").iterdir():
        (copy / file.name).symlink_to(file)
    trace = Trace.open(copy)
    (copy / "events").unlink()
    with pytest.raises(TraceFormatError, match="is not there") as raised:
        trace.events()
    assert "truncated" not in str(raised.value)
