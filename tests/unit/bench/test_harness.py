"""The harness: what it measures, keeps, compares and writes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("bench.harness")


@pytest.fixture
def program(harness: Any) -> Any:  # noqa: ARG001
    return importlib.import_module("bench.__main__")


def test_a_subject_runs_in_turn_with_its_yardstick(harness: Any, tmp_path: Path) -> None:
    calls: list[str] = []
    stick = harness.Yardstick(name="stick", run=lambda: calls.append("stick"))
    session = harness.Session(tmp_path, repeat=3)
    figure = session.measure("it", calls.append, before=lambda: calls.append("before") or "it", against=stick, items=10)
    # A warm-up run, and three that count.
    assert calls == ["before", "stick", "it"] * 4
    assert len(figure.seconds) == len(figure.yardstick_seconds) == len(figure.cpu_seconds) == 3
    assert session.figures == [figure]
    figure.seconds, figure.yardstick_seconds = [4.0, 2.0, 8.0], [1.0, 1.0, 1.0]
    assert (figure.median, figure.ratio, figure.rate) == (4.0, 4.0, 2.5)


def test_inputs_are_made_once_and_whole(harness: Any, tmp_path: Path) -> None:
    session = harness.Session(tmp_path)
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        path.mkdir()
        if len(made) == 1:
            raise KeyboardInterrupt
        (path / "file").write_text("x", encoding="utf-8")

    with pytest.raises(KeyboardInterrupt):
        session.fixed("input-1", make)
    for _ in range(2):
        assert [file.name for file in session.fixed("input-1", make).iterdir()] == ["file"]
    assert len(made) == 2


def result(harness: Any, commit: str, **figures: list[float]) -> dict[str, Any]:
    kept = [
        {"name": name, "seconds": seconds, "yardstick": "stick", "yardstick_seconds": [1.0] * len(seconds)}
        for name, seconds in figures.items()
    ]
    facts = {**harness.machine(), "load_average_after": 0.5}
    return {
        "format": harness.FORMAT,
        "bench": "some",
        "title": "Some figures",
        "about": "What.",
        "commit": commit,
        "begun": "2030-01-01T00:00:00+00:00",
        "quick": False,
        "machine": facts,
        "figures": kept,
    }


def test_two_results_are_compared_by_their_ratios(harness: Any) -> None:
    before = result(harness, "a", same=[1.0, 2.0], faster=[4.0, 5.0], gone=[1.0])
    after = result(harness, "b", same=[1.5, 2.5], faster=[1.0, 1.5], new=[1.0])
    # A machine that is half as fast: the yardstick says so.
    after["figures"][1]["seconds"] = [8.0, 10.0]
    after["figures"][1]["yardstick_seconds"] = [8.0, 8.0]
    table = harness.compare(before, after)
    rows = {
        row[0]: row for row in ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()) if row
    }
    assert rows["same"][-1] == "same"
    assert rows["faster"][-2:] == ["0.25 x", "faster"]
    assert rows["gone"][-2] == "gone"
    assert rows["new"][-2] == "new"


def test_the_page_has_one_section_for_each_result(harness: Any, program: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nBy hand.\n", encoding="utf-8")
    for commit in ("first", "second"):
        harness.save(result(harness, commit, it=[1.0]), tmp_path / "some.json")
        program.write_page(tmp_path, page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Page\n\nBy hand.\n")
    assert text.count("## Some figures") == 1
    assert "commit second" in text
    assert "commit first" not in text
    assert "| it | 1 s | 1 s to 1 s (1) |" in text


def test_a_section_is_replaced_and_nothing_else(harness: Any) -> None:
    once = harness.with_section("before\n", "a", "\nold\n")
    assert once == "before\n\n<!-- begin a -->\n\nold\n\n<!-- end a -->\n"
    twice = harness.with_section(f"{once}\n<!-- begin b -->\n\nb\n\n<!-- end b -->\nafter\n", "a", "new")
    assert twice == once.replace("old", "new") + "\n<!-- begin b -->\n\nb\n\n<!-- end b -->\nafter\n"


def test_a_result_of_another_version_is_refused(harness: Any, tmp_path: Path) -> None:
    harness.save({**result(harness, "a"), "format": 99}, tmp_path / "x.json")
    with pytest.raises(SystemExit, match="format 99"):
        harness.load(tmp_path / "x.json")


def test_every_bench_is_found(program: Any) -> None:
    assert "analyses" in program.benches()


def test_what_predictions_say_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    predictions = importlib.import_module("bench.predictions")
    # Errors of 1 % to 20 %, and one that does not count.
    pairs = [
        predictions.Pair(
            program="p",
            workers=2,
            change="c",
            extra=False,
            recorded_ns=[50.0],
            predicted_ns=[100.0 + n],
            measured_ns=[100.0],
        )
        for n in range(1, 21)
    ]
    pairs.append(
        predictions.Pair(program="p", workers=4, change="c", extra=True, predicted_ns=[900], measured_ns=[100])
    )
    found = predictions.summary(pairs)
    assert found == {
        "pairs": 20,
        "median": pytest.approx(0.105),
        "p95": pytest.approx(0.19),
        "most": pytest.approx(0.2),
        # One run each says nothing about how much runs differ.
        "beyond_spread": 0,
    }
    assert pairs[0].error == pytest.approx(0.01)
    assert pairs[0].unchanged == pytest.approx(-0.5)


def test_predictions_made_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(ROOT)
    predictions = importlib.import_module("bench.predictions")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin predictions -->\nold\n<!-- end predictions -->\nafter\n")
    monkeypatch.setattr(predictions, "RESULT", tmp_path / "result.json")
    monkeypatch.setattr(predictions, "PAGE", page)
    machine = {"cores": 2, "processor": "any"}

    def measured(program: str, *runs: float) -> None:
        pair = predictions.Pair(program=program, workers=2, change="c", extra=False)
        pair.recorded_ns, pair.predicted_ns, pair.measured_ns = [200.0, 220.0], [110.0, 110.0], list(runs)
        piece = {"programs": [program], "begun": f"day {len(runs)}", "repeat": len(runs), "commit": "c"}
        piece |= {"first_in_line": False, "load_average": 0.1, "load_average_after": 0.5}
        known = predictions.harness.load(predictions.RESULT) if predictions.RESULT.exists() else {}
        predictions.write(known, [pair], piece, machine=machine)

    measured("skewed", 100.0, 100.0)
    measured("balanced", 100.0, 90.0)
    measured("skewed", 110.0, 110.0, 110.0)
    result = predictions.harness.load(predictions.RESULT)
    # In the order of the programs, the newest of each.
    assert [(entry["program"], len(entry["measured_ns"])) for entry in result["pairs"]] == [
        ("balanced", 2),
        ("skewed", 3),
    ]
    assert [piece["programs"] for piece in result["pieces"]] == [["balanced"], ["skewed"]]
    text = page.read_text()
    assert text.startswith("before\n<!--")
    assert text.endswith("after\n")
    assert "2 pairs" in text
    assert "Each pair has 2 to 3 recordings" in text
    assert "day 2 to day 3" in text
    assert "1 are off by more than `spread`" in text
    assert "old" not in text
