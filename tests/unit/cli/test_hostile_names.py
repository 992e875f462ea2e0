"""Names that do harm where they are not taken for text: on a terminal, in a page, in a spreadsheet, in a picture."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph import api
from pag_graph.cli import app
from pag_graph.cli.demo import SAMPLES
from pag_graph.cli.neo4j_queries import _print_table
from pag_graph.cli.output import print_csv, print_markdown, stderr, stdout
from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError, PagError
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]

HOSTILE = (
    "=cmd()|'/C calc'!A0 [/x] \x1b[2J\x9b31m\x00\u202e\"q\" <script>alert(1)</script>\r\nnext :smile: &#x202e; `a|b`"
)
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal or a reader obeys."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose every name is hostile: operators, workers, hosts, types of channels, the system."""
    folder = tmp_path_factory.mktemp("hostile")
    trace = folder / "trace"
    shutil.copytree(SAMPLES / "skewed", trace)
    for table, columns in (("operators", ("name",)), ("workers", ("name", "host")), ("channels", ("type",))):
        file = trace / f"{table}.parquet"
        rows = pq.read_table(file)
        for column in columns:
            values = pa.array([f"{HOSTILE}{row}" for row in range(rows.num_rows)])
            if column in rows.column_names:
                field = rows.schema.field(column)
                rows = rows.set_column(rows.column_names.index(column), field, values)
            else:
                rows = rows.append_column(column, values)
        pq.write_table(rows, file)
    meta = json.loads((trace / "meta.json").read_text())
    meta["source"] |= {"system": HOSTILE, "version": HOSTILE}
    meta["dropped"] = {HOSTILE: 4}
    (trace / "meta.json").write_text(json.dumps(meta))
    api.build(trace, folder / "pag", engine="local")
    return folder / "pag"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An event log whose names are hostile: of the application, executors, hosts, call sites, and the file."""
    log = EventLog(cores=[])
    log.events[1] |= {"App Name": HOSTILE, "App ID": HOSTILE}
    log.executor(HOSTILE, 10, 2).job(0, 100, [0], spark_job_description=HOSTILE)
    log.stage(0, 110, tasks=3)
    for index in range(3):
        log.task(0, index, HOSTILE, 120, 200 + 900 * index, run=60 + 890 * index)
    log.executor_gone(HOSTILE, 2050, HOSTILE).executor("1", 2060, 1)
    for event in log.events:
        if "Task Info" in event:
            event["Task Info"]["Host"] = HOSTILE
        if "Stage Info" in event:
            event["Stage Info"]["Stage Name"] = HOSTILE
    log.stage_done(0, 2100).job_done(0, 2110).end(2400)
    return log.write(tmp_path_factory.mktemp("log") / "app-\x1b[2J[x]=1")


def is_harmless(text: str) -> bool:
    found = OBEYED.search(text)
    assert found is None, text[max(0, found.start() - 60) : found.end() + 20]
    return True


def check_csv(text: str) -> None:
    is_harmless(text)
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            assert not cell.startswith(("=", "+", "@")), cell
            assert not cell.startswith("-") or float(cell) < 0, cell


def check_markup(text: str) -> None:
    is_harmless(text)
    assert "<script" not in text
    assert "alert(1)" in text


ANALYSES = ("why", "critical-path", "participation", "k-hops", "waits", "profile", "blame")


@pytest.mark.parametrize("name", ["info", "check", *ANALYSES])
def test_on_the_terminal_and_in_csv(run_pag: Command, store: Path, name: str) -> None:
    code, text, errors = run_pag(name, store)
    assert code in {0, 9}
    is_harmless(text + errors)
    assert "Traceback" not in errors
    check_csv(run_pag(name, store, "--format", "csv")[1])
    text = run_pag(name, store, "--format", "json")[1]
    assert json.loads(text)
    is_harmless(text)
    assert text.isascii()


def test_names_are_seen_on_the_terminal(run_pag: Command, store: Path) -> None:
    said = run_pag("info", store)[1] + run_pag("why", store)[1]
    for part in ("=cmd()|'/C calc'!A0 [/x] ?[2J?31m??\"q\" <script>alert(1)</script>??next :smile: &#x202e;",):
        assert part in said


@pytest.mark.parametrize("name", ["why", "profile"])
def test_in_markdown_and_on_pages(run_pag: Command, store: Path, name: str) -> None:
    _, text, _ = run_pag(name, store, "--format", "markdown")
    is_harmless(text)
    assert re.search(r"(?<!\\)(<script|\[/x\]|&#x202e|`a)", text) is None
    assert "script" in text
    _, text, _ = run_pag(name, store, "--format", "html")
    check_markup(text)


def test_motif_tables(run_pag: Command, store: Path) -> None:
    for form in ("table", "csv", "json"):
        code, text, errors = run_pag("motif", "(a)-[w]->(z)", store, "-w", "w.type = 'waiting'", "--format", form)
        assert code == 0, errors
        is_harmless(text + errors)
    assert "(a)-[w]->(z)" in run_pag("motif", "(a)-[w]->(z)", store, "-w", "w.type = 'waiting'", "-n", "2")[1]
    code, text, errors = run_pag("motif", f"(a)-[w]->({HOSTILE})", store)
    assert code == 2
    is_harmless(text + errors)
    assert "[/x] ?[2J" in errors


def test_pictures(run_pag: Command, store: Path, tmp_path: Path) -> None:
    assert run_pag("draw", store, tmp_path / "window.svg")[0] == 0
    assert run_pag("export", store, tmp_path / "run.svg")[0] == 0
    for name in ("window.svg", "run.svg"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        check_markup(text)
        ET.fromstring(text)


def test_exports(run_pag: Command, store: Path, tmp_path: Path) -> None:
    for name, more in (("run.json", ()), ("run.graphml", ()), ("tables", ("--to", "csv"))):
        code, text, errors = run_pag("export", store, tmp_path / name, *more)
        assert code == 0, errors
        is_harmless(text)
    timeline = (tmp_path / "run.json").read_text(encoding="utf-8")
    is_harmless(timeline)
    assert any(HOSTILE in str(event.get("name")) for event in json.loads(timeline)["traceEvents"])
    graph = (tmp_path / "run.graphml").read_text(encoding="utf-8")
    check_markup(graph)
    ET.fromstring(graph)
    files = sorted((tmp_path / "tables").glob("*.csv"))
    assert files
    for file in files:
        check_csv(file.read_text(encoding="utf-8"))
    (first, *_) = csv.DictReader(io.StringIO((tmp_path / "tables" / "operators.csv").read_text(encoding="utf-8")))
    assert first["name"].startswith("'=cmd()|'/C calc'!A0 [/x] \ufffd[2J")


def test_an_event_log(run_pag: Command, log: Path, tmp_path: Path) -> None:
    for options in ((), ("--keep-texts",)):
        code, text, errors = run_pag("spark", log, "--html", tmp_path / "page.html", *options)
        assert code == 0
        is_harmless(text + errors)
        assert "[/x] ?[2J" in text
        check_markup((tmp_path / "page.html").read_text(encoding="utf-8"))
        check_csv(run_pag("spark", log, "--format", "csv", *options)[1])
        text = run_pag("spark", log, "--format", "json", *options)[1]
        assert json.loads(text)["application"]["name"] == HOSTILE
        assert text.isascii()
    code, text, errors = run_pag("convert", log, tmp_path / "trace")
    assert code == 0
    is_harmless(text + errors)


def test_a_cell_that_looks_like_markup_of_our_own_is_none(run_pag: Command, tmp_path: Path) -> None:
    """A page tells its own cells from texts by what they are, not by how they begin."""
    log = EventLog(cores=[1]).job(0, 100, [0], spark_job_description="<span onclick=x>").stage(0, 110, tasks=1)
    file = log.task(0, 0, "<span onclick=y>", 120, 200, run=60).stage_done(0, 210).job_done(0, 220).end(300)
    file.write(tmp_path / "log")
    assert run_pag("spark", tmp_path / "log", "--html", tmp_path / "page.html", "--keep-texts")[0] == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<span onclick" not in page
    assert "&lt;span onclick=y&gt;" in page


def test_errors_that_quote_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = PagError(f"Operator {HOSTILE} is odd.\n\tIts second line", f"Look at {HOSTILE}.")

    def fail() -> None:
        raise error

    monkeypatch.setattr(app, "only_called", lambda *_: fail)
    with pytest.raises(SystemExit):
        app.main()
    said = capsys.readouterr().err
    is_harmless(said)
    assert "[/x] ?[2J" in said
    assert re.search(r"odd\.\n +Its second line", said)


def test_paths_that_quote_names(run_pag: Command, tmp_path: Path) -> None:
    code, _, error = run_pag("convert", tmp_path / "a[/x]\x1b[2Jb", tmp_path / "trace")
    assert code == 3
    is_harmless(error)
    assert "a[/x]?[2Jb" in error


ROWS: list[dict[str, Any]] = [{"name": HOSTILE, "ns": -5, "share": -0.5, "many": [HOSTILE], "none": None}]


def test_neo4j_query_tables(capsys: pytest.CaptureFixture[str]) -> None:
    _print_table(load_query("analyses/critical_path"), {"run": HOSTILE}, ROWS, list(ROWS[0]), 20)
    said = capsys.readouterr().out
    is_harmless(said)
    assert "[/x] ?[2J" in said


def test_numbers_stay_numbers_in_csv(capsys: pytest.CaptureFixture[str]) -> None:
    print_csv(ROWS, list(ROWS[0]))
    text = capsys.readouterr().out
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["ns"], row["share"], row["none"]) == ("-5", "-0.5", "")
    assert row["name"].startswith("'=cmd()")
    check_csv(text)


def test_what_is_said_meanwhile(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demo and all commands say what they do through these two."""
    stdout().print(api.open(store).why().text(), markup=False)
    stdout().rule(HOSTILE)
    stdout().print(HOSTILE)
    with stderr().status(HOSTILE):
        pass
    print_markdown(ROWS, ["name", "ns"], "rows")
    said = capsys.readouterr()
    is_harmless(said.out + said.err)
    assert ":smile:" in said.out


def test_the_command_that_comes_next_is_one_that_a_shell_takes(
    run_pag: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = run_pag("build", SAMPLES / "skewed", "./-Ana's $runs ü", "--engine", "local")
    [line] = [line for line in out.splitlines() if line.startswith("Next: ")]
    program, *words = shlex.split(line.removeprefix("Next: "))
    assert program == "pag"
    code, out, _ = run_pag(*words)
    assert code == 0
    assert out.startswith("Epoch 4 took")
    with pytest.raises(InvalidParameterError) as refused:
        api.open("-Ana's $runs ü").why(epoch=99)
    hint = str(refused.value.hint)
    assert shlex.split(hint[hint.index("`") + 1 : hint.rindex("`")]) == [
        "pag",
        "info",
        str(tmp_path / "-Ana's $runs ü"),
    ]
