"""What commands write: whole or not at all, under a name that says what it is; and how they end before their time."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.errors import InvalidParameterError, SinkError
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

    Pag = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("outputs") / "store"
    api.build(SAMPLES / "skewed", place, engine="local")
    return place


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = EventLog(cores=[1]).job(0, 1000, [0]).stage(0, 1000, tasks=1).task(0, 0, "0", 1010, 1900, run=880)
    return log.job_done(0, 1910).end(2000).write(tmp_path_factory.mktemp("outputs") / "app")


# Commands that write a file of their own, and the ending of its name.
WRITERS = [
    (["draw", "{store}", "{file}", "--epoch", "4"], ".svg"),
    (["critical-path", "{store}", "--epoch", "4", "--picture", "{file}"], ".svg"),
    (["export", "{store}", "{file}", "--epoch", "4"], ".svg"),
    (["export", "{store}", "{file}", "--epoch", "4"], ".json"),
    (["export", "{store}", "{file}", "--epoch", "4"], ".json.gz"),
    (["export", "{store}", "{file}", "--epoch", "4"], ".graphml"),
    (["spark", "{log}", "--html", "{file}"], ".html"),
    (["neo4j", "browser", "--saved", "{file}"], ".zip"),
]


@pytest.fixture(params=WRITERS, ids=[f"{words[0]} {ending}" for words, ending in WRITERS])
def write(request: pytest.FixtureRequest, store: Path, log: Path, run_pag: Pag) -> Callable[[Path], tuple[int, str]]:
    """Write to a place, whose ending is added; gives the exit code and what was said."""
    words, ending = request.param

    def run(place: Path) -> tuple[int, str]:
        file = place.with_name(place.name + ending)
        code, _, said = run_pag(*(word.format(store=store, log=log, file=file) for word in words))
        return code, said

    return run


def test_files_come_whole_or_not_at_all(write: Callable[[Path], tuple[int, str]], tmp_path: Path) -> None:
    assert write(tmp_path / "new" / "folder" / "file")[0] == 0
    written = next((tmp_path / "new" / "folder").iterdir())
    content = written.read_bytes()
    assert content
    (tmp_path / "file").touch()
    (tmp_path / f"folder{''.join(written.suffixes)}").mkdir()
    for place in (tmp_path / "file" / "x", tmp_path / "folder", Path("/proc/x")):
        code, said = write(place)
        assert code == 6
        assert "error SINK" in said
        assert "hint" in said
        assert "Traceback" not in said
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(content) // 2, before[1]))
    try:
        code, said = write(tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code in {4, 6}
    assert "File too large" in " ".join(said.split())
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"new", "file", "folder"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["draw", "{store}", "x.png"], 2, "ends in .png, and SVG would be written"),
        (["critical-path", "{store}", "--picture", "x.pdf"], 2, "ends in .pdf"),
        (["spark", "{log}", "--html", "x.svg"], 2, "ends in .svg, and HTML"),
        (["neo4j", "browser", "--saved", "x.csv"], 2, "ends in .csv, and ZIP"),
        (["export", "{store}", "x.svg", "--to", "perfetto"], 2, "x.svg is a name for svg, and perfetto was asked for"),
        (["export", "{store}", "x.svg.gz"], 2, "Leave out `.gz`"),
        (["export", "{store}", "x.txt"], 2, "There is no export to txt"),
    ],
)
def test_the_ending_says_what_is_written(
    store: Path, log: Path, tmp_path: Path, run_pag: Pag, arguments: list[str], code: int, said: str
) -> None:
    words = [tmp_path / word if word.startswith("x.") else word.format(store=store, log=log) for word in arguments]
    found, _, message = run_pag(*words)
    assert found == code
    assert said in " ".join(message.split())
    assert not list(tmp_path.iterdir())


def test_python_goes_by_the_ending_too(store: Path, tmp_path: Path) -> None:
    pag = api.open(store)
    pag.export(tmp_path / "x.svg", epoch=4)
    assert (tmp_path / "x.svg").read_text(encoding="utf-8").startswith("<svg")
    pag.export(tmp_path / "x.json", epoch=4)
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["traceEvents"]
    pag.export(tmp_path / "x", epoch=4)
    assert (tmp_path / "x" / "edges.csv").is_file()
    with pytest.raises(InvalidParameterError, match="is a name for perfetto"):
        pag.export(tmp_path / "y.json", "svg", epoch=4)
    with pytest.raises(InvalidParameterError, match=r"ends in \.png"):
        pag.draw(tmp_path / "y.png", epoch=4)
    with pytest.raises(SinkError, match="is a folder"):
        pag.draw(tmp_path, epoch=4)
    assert pag.draw(tmp_path / "new" / "y.svg", epoch=4).is_file()


def test_a_folder_of_csv_that_does_not_fit_leaves_the_old_one(store: Path, tmp_path: Path, run_pag: Pag) -> None:
    assert run_pag("export", store, tmp_path / "tables", "--epoch", 4)[0] == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "tables").iterdir()}
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limit[1]))
    try:
        code, _, said = run_pag("export", store, tmp_path / "tables", "--replace", "--epoch", 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert code == 6
    assert "tables cannot be written" in " ".join(said.split())
    assert {file.name: file.read_bytes() for file in (tmp_path / "tables").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]
    assert run_pag("export", store, tmp_path / "tables", "--replace", "--epoch", 5)[0] == 0
    assert {file.name for file in (tmp_path / "tables").iterdir()} == before.keys()


# --- The command as a process -----------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["table", "csv"])
def test_an_answer_that_does_not_fit_is_an_error(store: Path, form: str) -> None:
    with Path("/dev/full").open("wb") as full:
        code = "from pag_graph.cli.app import main; main()"
        ended = subprocess.run(
            [sys.executable, "-c", code, "critical-path", str(store), "--format", form],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 6
    said = ended.stderr.decode()
    assert "error SINK The answer cannot be written to standard output" in said
    assert "Traceback" not in said
    assert "Exception ignored" not in said


BUILDS = """
import signal, sys, time
from pag_graph.cli import app
from pag_graph.builder import commit as commits

def slow(*_, **__):
    print("writing", flush=True)
    time.sleep(60)

def cancel(*_):
    # As Spark does while it has a session.
    print("jobs are cancelled", file=sys.stderr)
    raise KeyboardInterrupt

commits.commit = slow
signal.signal(signal.SIGINT, cancel)
sys.argv = ["pag", *sys.argv[1:]]
app.main()
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_build_that_is_ended_cleans_up(tmp_path: Path, number: signal.Signals, code: int) -> None:
    words = ["build", str(SAMPLES / "skewed"), str(tmp_path / "store"), "--engine", "local"]
    with subprocess.Popen(
        [sys.executable, "-c", BUILDS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        assert (tmp_path / "store").is_dir()
        process.send_signal(number)
        said = process.communicate()[1].decode()
    assert process.returncode == code
    assert "jobs are cancelled" in said
    assert "Traceback" not in said
    assert not os.listdir(tmp_path)  # noqa: PTH208


# --- pag vacuum -------------------------------------------------------------------------------------------------------


def test_vacuum_says_what_it_removes(tmp_path: Path, run_pag: Pag) -> None:
    place = tmp_path / "store"
    for _ in range(2):
        api.build(SAMPLES / "ground_truth", place, engine="local", mode="replace")
    (place / "_staging-1").mkdir()
    (place / "_staging-2").mkdir()
    (place / "_staging-2" / "lock").write_text('{"boot": "x", "host": "x"}', encoding="utf-8")
    code, out, _ = run_pag("vacuum", place, "--older-than", "1h")
    assert code == 0
    assert "Removed 0.0 MB: 0 files of versions that were replaced, 0 that killed or failed commands left." in out
    assert "Kept version 0: replaced at" in out
    assert "--older-than AGE removes it" in out
    code, out, _ = run_pag("vacuum", place, "--dry-run", "--format", "json")
    found = json.loads(out)
    assert found["dry_run"]
    assert found["bytes"] > 0
    assert {row["was"] for row in found["removed"]} == {"replaced"}
    assert len(found["unknown"]) == 1
    code, out, _ = run_pag("vacuum", place, "--older-than", "0s", "--format", "csv")
    assert out.startswith("path,bytes,was\n")
    assert str(place / "_staging-2") in out
    code, out, _ = run_pag("vacuum", place)
    assert "0 files" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--older-than", "soon"], 2, "is not an age"),
        (["--older-than", "-1d"], 2, "is not an age"),
        ([], 4, "nothing is left of one"),
    ],
)
def test_vacuum_of_what_is_none(tmp_path: Path, run_pag: Pag, arguments: list[str], code: int, said: str) -> None:
    found, _, message = run_pag("vacuum", tmp_path / "nowhere", *arguments)
    assert found == code
    assert said in " ".join(message.split())
