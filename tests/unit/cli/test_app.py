"""The command line, in process: answers, formats, messages, exit codes."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pag_graph.cli.demo import SAMPLES
from pag_graph.model.enums import RuleSet
from pag_graph.model.tables import STORE_TABLES
from pag_graph.store.meta import read_meta, write_meta
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pag_graph.api import build

    path = tmp_path_factory.mktemp("cli") / "skewed.pag"
    build(SAMPLES / "skewed", path, engine="local")
    return path


def test_every_command_has_help_with_an_example(run_pag: Command) -> None:
    code, text, _ = run_pag("--help")
    assert code == 0
    for name in ("demo", "convert", "build", "info", "why", "critical-path", "k-hops", "doctor"):
        assert name in text
        code, text_of_command, _ = run_pag(name, "--help")
        assert code == 0
        assert "Example: pag" in " ".join(text_of_command.split())


def test_the_version_is_said(run_pag: Command) -> None:
    import pag_graph

    assert run_pag("--version")[:2] == (0, f"pag_graph {pag_graph.__version__}\n")


def test_an_error_that_goes_to_a_file_has_whole_lines(tmp_path: Path) -> None:
    missing = tmp_path / "x".join(["a folder with a name that is longer than any terminal is wide"] * 2)
    command = [sys.executable, "-c", "from pag_graph.cli.app import main; main()", "info", str(missing)]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    error, hint = failed.stderr.splitlines()
    assert str(missing) in error
    assert hint.startswith("hint: ")


def test_without_spark_a_build_says_how_to_do_without(
    run_pag: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "pyspark" else find(name, *a))
    code, _, error = run_pag("build", SAMPLES / "skewed", tmp_path / "s")
    assert code == 7
    assert "pip install 'pag-graph[spark]'" in error
    assert "--engine local" in " ".join(error.split())


def test_an_installed_package_promises_no_recording(
    run_pag: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorder() -> dict[str, object]:
        code, text, _ = run_pag("doctor", "--format", "json")
        assert code == 0
        (found,) = [part for part in json.loads(text) if part["needed_for"].startswith("pag record")]
        return found

    monkeypatch.setenv("PAG_ADAPTER", str(tmp_path))
    assert not recorder()["ok"]
    assert "checkout" in str(recorder()["advice"])
    monkeypatch.delenv("PAG_ADAPTER")
    assert recorder()["name"] == "cargo"


def test_critical_path_as_json_connects_and_adds_up(run_pag: Command, store: Path) -> None:
    code, text, _ = run_pag("critical-path", store, "--epoch", 5, "--format", "json")
    answer = json.loads(text)
    assert code == 0
    assert {"span_ns", "length_ns", "explained", "edge_count", "by_type", "path"} <= set(answer)
    path = answer["path"]
    assert {"src", "dst", "type", "worker", "duration_ns", "operator"} <= set(path[0])
    assert len(path) == answer["edge_count"]
    assert sum(step["duration_ns"] for step in path) == answer["length_ns"] == answer["span_ns"]
    assert all(a["dst"] == b["src"] for a, b in pairwise(path))
    assert sum(answer["by_type"].values()) == answer["span_ns"]


def test_without_an_epoch_the_slowest_is_taken(run_pag: Command, store: Path) -> None:
    _, text, _ = run_pag("critical-path", store, "--format", "json")
    assert json.loads(text)["epoch"] == 4


def test_why_names_the_skew_in_every_format(run_pag: Command, store: Path) -> None:
    code, text, _ = run_pag("why", store)
    assert code == 0
    assert "Cause: the data is skewed. Worker 0 read all 7,924 records of FlatMap (0.4)" in text
    assert "workers 1, 2 and 3 waited" in " ".join(text.split())
    code, text, _ = run_pag("why", store, "--format", "markdown", "--top", 1)
    assert code == 0
    assert text.startswith("### Epoch 4 took 3.89 ms: the slowest of 9 rounds")
    code, text, _ = run_pag("why", store, "--format", "html")
    assert code == 0
    assert text.startswith("<!DOCTYPE html>")
    assert "<svg" in text


def test_answers_can_be_drawn(run_pag: Command, store: Path, tmp_path: Path) -> None:
    code, _, error = run_pag("skew", store, "--picture", tmp_path / "skew.svg", "--format", "csv")
    assert (code, "Wrote" in error) == (0, True)
    assert "FlatMap (0.4)" in (tmp_path / "skew.svg").read_text(encoding="utf-8")
    code, _, error = run_pag("slack", store, "--picture", tmp_path / "slack.svg")
    assert code == 2
    assert "slack has no picture" in error
    assert not (tmp_path / "slack.svg").exists()


def test_several_changes_at_once(run_pag: Command, store: Path) -> None:
    changes = ("--change", "operator=FlatMap factor=0.5", "--change", "from=1 to=0 factor=0")
    code, text, _ = run_pag("what-if", store, *changes, "--format", "json")
    both = json.loads(text)
    assert code == 0
    _, text, _ = run_pag("what-if", store, "--operator", "0.4", "--factor", 0.5, "--format", "json")
    one = json.loads(text)
    assert both["changed"] > one["changed"]
    assert both["new_span_ns"] <= one["new_span_ns"] < one["span_ns"]


def test_k_hops_as_csv(run_pag: Command, store: Path) -> None:
    code, text, _ = run_pag("k-hops", store, "--epoch", 5, "-k", 3, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert code == 0
    assert {int(row["hop"]) for row in rows} == {1, 2, 3}
    assert {row["type"] for row in rows if row["hop"] == "1"} <= {"data_message", "progress_message"}


def test_info_of_a_source_without_a_version_and_of_one_epoch(run_pag: Command, tmp_path: Path) -> None:
    draw("0 start 1 | 5 stop 1 | 9 end").write(tmp_path / "trace")
    meta = tmp_path / "trace" / "meta.json"
    known = read_meta(meta)
    write_meta(replace(known, source=replace(known.source, system="flink", version="")), meta)
    assert run_pag("build", tmp_path / "trace", tmp_path / "store", "--engine", "local")[0] == 0
    _, text, _ = run_pag("info", tmp_path / "store")
    assert text.splitlines()[0].endswith(": flink, 1 worker")
    assert " epoch 0 " in text
    assert "startup" not in text


def test_a_replay_needs_a_change(run_pag: Command, store: Path) -> None:
    code, text, error = run_pag("what-if", store)
    assert (code, text) == (2, "")
    assert "Nothing is to be changed" in " ".join(error.split())
    assert run_pag("what-if", store, "--type", "processing", "--factor", "0.5")[0] == 0


def test_rules_that_a_trace_contradicts_are_refused_and_can_be_forced(run_pag: Command, tmp_path: Path) -> None:
    draw("0 start 1 =waiting | 5 stop 1 | 9 end", rules=RuleSet.STATED).write(tmp_path / "trace")
    build = ("build", tmp_path / "trace", tmp_path / "store", "--engine", "local", "--rules", "timely")
    code, _, error = run_pag(*build)
    assert code == 8
    assert "--force-rules" in error
    code, text, _ = run_pag(*build, "--force-rules")
    assert code == 0
    assert "1 x rules_contradict_trace" in text


def test_info_lists_the_windows(run_pag: Command, store: Path) -> None:
    code, text, _ = run_pag("info", store, "--format", "json")
    answer = json.loads(text)
    assert code == 0
    assert [row["role"] for row in answer["epochs"]] == ["startup", *["round"] * 9, "shutdown"]
    assert answer["rules"] == "timely"


@pytest.mark.parametrize("table", STORE_TABLES)
def test_info_of_a_store_that_lacks_a_table_is_an_error(
    run_pag: Command, store: Path, tmp_path: Path, table: str
) -> None:
    """All that it shows stands in two of the tables; of a store whose edges were gone it showed windows with edges."""
    damaged = tmp_path / "damaged.pag"
    shutil.copytree(store, damaged)
    shutil.rmtree(damaged / table)
    code, text, error = run_pag("info", damaged)
    assert (code, text) == (4, "")
    assert table in error or "STORE_NOT_FOUND" in error


def test_build_reports_what_became_no_vertex(run_pag: Command, tmp_path: Path) -> None:
    code, text, _ = run_pag("build", SAMPLES / "skewed", tmp_path / "s", "--engine", "local", "--format", "json")
    answer = json.loads(text)
    assert code == 0
    assert answer["events"] == 2922
    assert answer["committed"]
    assert sum(answer["dropped"].values()) < answer["events"]


def test_a_store_that_exists_is_refused_with_advice(run_pag: Command, store: Path) -> None:
    code, _, error = run_pag("build", SAMPLES / "skewed", store, "--engine", "local")
    assert code == 4
    assert "STORE_EXISTS" in error
    assert "--replace" in error


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("critical-path", "{store}", "--epoch", "99"), 2, "epochs 0 to 10"),
        (("critical-path", "{store}", "--epoch", "1", "--role", "startup"), 2, "only one of"),
        (("critical-path", "{store}", "--between", "5", "1"), 2, "does not lie in the run"),
        (("k-hops", "{store}", "-k", "0"), 2, "at least 1"),
        (("what-if", "{store}", "--worker", "9", "--factor", "0"), 2, "no worker 9; there are 0, 1, 2, 3"),
        (("what-if", "{store}", "--to-worker", "9", "--factor", "0"), 2, "no worker 9"),
        (("what-if", "{store}", "--channel", "99", "--factor", "0"), 2, "no channel 99; there are 4, 6"),
        (("what-if", "{store}", "--operator", "Nope", "--factor", "0"), 2, "7 (FlatMap, 0.4)"),
        (("what-if", "{store}", "--change", "oprator=Map factor=0"), 2, "has 'oprator=Map'"),
        (("what-if", "{store}", "--change", "operator='Map factor=0"), 2, "cannot be read"),
        (("what-if", "{store}", "--change", "worker=0 factor=1 factor=2"), 2, "gives factor twice"),
        (("what-if", "{store}", "--change", "worker=0"), 2, "Say what to change"),
        (("why", "{store}", "--lines", "0"), 2, "at least 1"),
        (("sample", "{store}", "--fraction", "2"), 2, "up to 1"),
        (("k-hops", "{store}", "--weight", "heavy"), 2, "delivered or transfer"),
        (("info", "{tmp}/nothing"), 4, "no program activity graph"),
        (("info", "{trace}"), 4, "This is a trace"),
        (("build", "{tmp}/nothing", "{tmp}/s", "--engine", "local"), 3, "no trace"),
        (("convert", "{tmp}", "{tmp}/t"), 3, "timely-prototype"),
        (("build", "{trace}", "{tmp}/s", "--append", "--replace"), 2, "only one of"),
    ],
)
def test_mistakes_get_a_message_and_a_code(
    run_pag: Command, store: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    places = {"store": store, "tmp": tmp_path, "trace": SAMPLES / "skewed"}
    got, _, error = run_pag(*(argument.format(**places) for argument in arguments))
    assert got == code
    assert expected in " ".join(error.split())


@pytest.mark.parametrize("name", ["x" * 300, "circle", "circle/inside"])
@pytest.mark.parametrize(
    "arguments",
    [
        "convert {} {tmp}/t",
        "build {} {tmp}/s --engine local",
        "check {}",
        "latency {}",
        "spark {}",
        "spans {}",
        "torch {}",
    ],
)
def test_names_that_lead_nowhere_get_a_message(run_pag: Command, tmp_path: Path, arguments: str, name: str) -> None:
    (tmp_path / "circle").symlink_to("circle")
    words = arguments.format(tmp_path / name, tmp=tmp_path).split()
    code, answer, error = run_pag(*words)
    assert code in {2, 3, 4}
    assert not answer
    assert error.startswith(("error", "Usage"))


def test_a_trace_takes_no_place_of_a_link_that_leads_nowhere(run_pag: Command, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "a.csv").write_text("worker,start,end,activity\na,0,4,busy\n")
    for name in ("circle", "circle/inside"):
        code, _, error = run_pag("convert", tmp_path / "a.csv", tmp_path / name, "--replace")
        assert code == 4
        assert error.startswith("error STORE")
    assert (tmp_path / "circle").is_symlink()


def test_looking_into_a_store_loads_no_compiler(store: Path) -> None:
    # Numba takes as long to load as all the rest, and the command has no use for it.
    code = (
        f"import sys; sys.argv = ['pag', 'info', {str(store)!r}]\n"
        "from pag_graph.cli import app\n"
        "try:\n    app.main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "print(sorted({'numba', 'scipy', 'pandas', 'pyspark', 'neo4j'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_check_says_what_is_odd_and_exits_by_severity(run_pag: Command, tmp_path: Path) -> None:
    from pag_graph.testing.traces import draw

    fine = draw("0 start 1 | 5 stop 1 | 9 end").write(tmp_path / "fine")
    code, out, _ = run_pag("check", fine)
    assert (code, out.strip()) == (0, "Nothing is odd: no findings.")
    odd = draw("0 start 1 | 5 recv 3<1 #7 | 6 stop 1 | 9 end", "9 end").write(tmp_path / "odd")
    code, out, _ = run_pag("check", odd, "--format", "json")
    assert code == 0
    (row,) = json.loads(out)["findings"]
    assert (row["finding"], row["severity"], row["worker"], row["seq"]) == ("receive_without_send", "warning", 0, 1)
    assert run_pag("check", odd, "--severity", "warning")[0] == 9
