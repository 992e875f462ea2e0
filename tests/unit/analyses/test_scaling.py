"""Scaling studies: what they add up to, who is compared, what they refuse, and their picture."""

from __future__ import annotations

import json
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from pag_graph import api, samples
from pag_graph.cli.app import app
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.model.enums import RuleSet
from pag_graph.sinks.scaling import scaling_picture
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.api import Pag


def worker(rounds: int, work: int, *, waits: bool = False) -> str:
    """Draw a worker that works in each round; one that waits does so for the first worker."""
    events, t = [], 0
    for number in range(rounds):
        events += [f"{t} start {1 + number % 2}", f"{t + work} stop {1 + number % 2}"]
        if waits:
            events += [f"{t + work} park", f"{t + 2 * work} unpark", f"{t + 2 * work} precv 9<0 #{number}"]
        else:
            events += [f"{t + 2 * work} psend 9 #{number}"]
        t += 2 * work + 1
        events.append(f"{t} end")
    return " | ".join(events)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Pag]:
    """One run of a worker, of four rounds, and three of two workers, of three and more."""
    place = tmp_path_factory.mktemp("runs")
    logs = [
        (worker(4, 1_000),),
        *((worker(rounds, work), worker(rounds, work, waits=True)) for rounds, work in ((3, 600), (4, 500), (5, 700))),
    ]
    made = []
    for number, log in enumerate(logs):
        trace = draw(*log).write(place / f"trace-{number}", trace_id=f"run {number}")
        api.build(trace, place / f"{number}.pag", engine="local")
        made.append(api.open(place / f"{number}.pag"))
    return made


def times(pag: Pag, epochs: list[int], by: str) -> dict[str, int]:
    """Sum a run's critical paths, step by step."""
    sums: dict[str, int] = {}
    for epoch in epochs:
        for step in pag.critical_path(epoch=epoch).steps.to_pylist():
            message = step["type"].endswith("message")
            operator = "(messages)" if message else f"operator {step['operator']}"
            name = step["type"] if by == "type" else operator if step["operator"] or message else "(no operator)"
            sums[name] = sums.get(name, 0) + step["duration_ns"]
    return sums


def test_rows_are_means_over_runs_of_sums_over_rounds_that_all_have(runs: list[Pag]) -> None:
    study = api.scaling(runs, n=10)
    assert (study.rounds, study.left_out) == ((1, 2), 2)
    found = {(row["by"], row["key"], row["workers"]): row for row in study.table.to_pylist()}
    for by in ("type", "operator"):
        one, *two = (times(pag, [1, 2], by) for pag in runs)
        for key in one.keys() | {key for sums in two for key in sums}:
            several = [sums.get(key, 0) for sums in two]
            alone, pair = found[by, key, 1], found[by, key, 2]
            assert (alone["mean_ns"], alone["deviation_ns"], alone["runs"]) == (one.get(key, 0), None, 1)
            assert pair["mean_ns"] == pytest.approx(mean(several))
            assert (pair["deviation_ns"], pair["runs"]) == (pytest.approx(stdev(several)), 3)
            assert pair["ideal_ns"] == one.get(key, 0) / 2
            if pair["mean_ns"]:
                assert pair["speed_up"] == pytest.approx(one.get(key, 0) / pair["mean_ns"])
    assert len(found) == len(study.table)


def built(place: Path, name: str, *logs: str, rules: RuleSet = RuleSet.TIMELY) -> Pag:
    api.build(
        draw(*logs, rules=rules).write(place / f"{name}.trace", trace_id=name), place / f"{name}.pag", engine="local"
    )
    return api.open(place / f"{name}.pag")


def test_of_workers_that_come_or_go_counts_the_time_for_which_they_are_there(tmp_path: Path) -> None:
    # Rounds go from 100 to 200 and to 300; what happens before and after them counts for nobody.
    one = built(tmp_path, "one", "0 start 1 | 90 stop 1 | ~1 100 end | 200 end | 300 end | 400 start 1")
    spawns = (
        "0 start 1 | 90 stop 1 | ~1 100 end | 120 spawn 1 | 200 end | 270 spawn 2 | 300 end | 350 spawn 3 | 400 start 1"
    )
    # Worker 1 is there for 150 ns of the rounds, worker 2 begins in the instant in which it ends, and worker 3 is late.
    joined = built(
        tmp_path,
        "joined",
        spawns,
        "~2 130 start 1 | 190 stop 1 | 200 end | 280 exit",
        "~3 280 start 1 | 290 stop 1 | 300 end | 400 start 1",
        "~4 360 start 1 | 390 stop 1",
    )
    study = api.scaling([one, joined], cores=2)
    whole = {row["workers"]: row for row in study.table.to_pylist() if row["by"] == "total"}
    assert whole.keys() == {1, 2}
    assert {row["ideal_ns"] for row in whole.values()} == {200, 200 / (1 + 170 / 200)}
    assert {workers: row["mean_workers"] for workers, row in whole.items()} == {1: 1.0, 2: 1 + 170 / 200}
    assert [(run["workers"], run["mean_workers"]) for run in study.runs] == [(1, 1.0), (2, 1.85)]
    assert not any(row["over_cores"] for row in study.table.to_pylist())
    assert "2 workers (1.85 on average): 200 ns, 1.00 x as fast as 1 worker (ideal: 1.85 x)" in study.headline()
    assert scaling_picture(study).count("<title>ideal</title>") == 2


def test_workers_of_which_nothing_is_recorded_in_the_rounds_share_nothing(tmp_path: Path) -> None:
    works = "0 start 1 | 90 stop 1 | 100 end | 110 start 1 | {until} stop 1 | 200 end | 300 end"
    one = built(tmp_path, "one", works.format(until=190), rules=RuleSet.STATED)
    # Nobody says what worker 2 did in the rounds, only what it did later.
    silent = "100 end | 200 end | 300 end | 310 start 1 | 320 stop 1"
    logs = (works.format(until=150), works.format(until=140), silent)
    two = built(tmp_path, "two", *logs, rules=RuleSet.STATED)
    study = api.scaling([one, two])
    assert [(run["workers"], run["mean_workers"], run["unrecorded"]) for run in study.runs] == [
        (1, 1.0, 0),
        (2, 2.0, 1),
    ]
    assert f"do not count: 1 of {two.run.info.path}." in study.headline()


@pytest.mark.parametrize("n", [1, 2, 10])
def test_every_division_adds_up_to_the_whole_path(runs: list[Pag], n: int) -> None:
    rows = api.scaling(runs, n=n).table.to_pylist()
    for workers in (1, 2):
        (whole,) = (row for row in rows if row["by"] == "total" and row["workers"] == workers)
        for by in ("type", "operator"):
            mine = [row for row in rows if row["by"] == by and row["workers"] == workers]
            assert sum(row["mean_ns"] for row in mine) == pytest.approx(whole["mean_ns"])
            assert sum(row["share"] for row in mine) == pytest.approx(1)
            assert [row["rank"] for row in mine] == list(range(1, len(mine) + 1))
            assert all(row["key"] == "(other)" for row in mine if row["rank"] > n)
    spans = [sum(w.span_ns for w in pag.rounds() if w.epoch in {1, 2}) for pag in runs]
    assert [row["mean_ns"] for row in rows if row["by"] == "total"] == [spans[0], pytest.approx(mean(spans[1:]))]


def test_the_order_of_the_runs_does_not_matter(runs: list[Pag]) -> None:
    assert api.scaling(runs[::-1]).table.equals(api.scaling(runs).table)


def test_who_lacked_a_core_is_said(runs: list[Pag]) -> None:
    told = api.scaling(runs, cores=1)
    assert "More workers (2) than cores (1): their threads take turns" in told.headline()
    assert {(row["workers"], row["over_cores"]) for row in told.table.to_pylist()} == {(1, False), (2, True)}
    assert "cores" not in api.scaling(runs, cores=2).headline()
    assert "give --cores" in api.scaling(runs).headline()
    assert {row["over_cores"] for row in api.scaling(runs).table.to_pylist()} == {None}


def test_what_cannot_be_compared_is_refused(runs: list[Pag], tmp_path: Path) -> None:
    def refused(given: list[Any], **options: Any) -> str:
        with pytest.raises(InvalidParameterError) as caught:
            api.scaling(given, **options)
        return caught.value.message

    assert "1 run cannot be compared" in refused(runs[:1])
    assert "hold the same run" in refused([runs[0], runs[1], runs[1].run.info.path])
    assert "both must be at least 1" in refused(runs, cores=0)
    late = draw("~7 0 start 1 | 5 end | 9 end").write(tmp_path / "trace", trace_id="late")
    api.build(late, tmp_path / "late.pag", engine="local")
    assert "no epoch in common" in refused([runs[0], tmp_path / "late.pag"])
    api.build(late, tmp_path / "st2.pag", engine="local", rules="st2")
    with pytest.raises(UnsupportedPlanError, match="profile is defined for"):
        api.scaling([runs[0], tmp_path / "st2.pag"])


def test_another_program_is_noticed(runs: list[Pag], tmp_path: Path) -> None:
    api.build(samples.path("skewed"), tmp_path / "other.pag", engine="local")
    assert "FlatMap (0.4)" in api.scaling([runs[0], tmp_path / "other.pag"]).strange


def test_the_picture_shows_every_row_and_is_well_formed(runs: list[Pag]) -> None:
    study = api.scaling(runs, n=2)
    drawn = scaling_picture(study)
    root = ET.fromstring(drawn)
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    shown = [row for row in study.table.to_pylist() if row["by"] != "total" and row["mean_ns"]]
    assert sum(" workers, " in title for title in titles) == 2 * len(shown)
    assert titles.count("ideal") == 2
    assert drawn == scaling_picture(study)


def test_the_command(runs: list[Pag], tmp_path: Path) -> None:
    stores = [str(pag.run.info.path) for pag in runs]
    done = CliRunner().invoke(app, ["scaling", *stores, "--cores", "1", "--picture", str(tmp_path / "s.svg")])
    assert done.exit_code == 0
    assert "4 runs: 1 with 1 worker, 3 with 2 workers. Compared: 2 rounds that all have (2 rounds" in done.output
    assert "2 workers: 2.4 us +- 400 ns, 1.67 x as fast as 1 worker (ideal: 2 x)" in done.output
    assert (tmp_path / "s.svg").read_text().startswith("<svg")
    facts = json.loads(CliRunner().invoke(app, ["scaling", *stores, "--format", "json"]).stdout)
    assert [(run["workers"], run["mean_workers"]) for run in facts["runs"]] == [(1, 1.0), *3 * [(2, 2.0)]]
    assert facts["rows"] == api.scaling(stores).table.to_pylist()
    table = CliRunner().invoke(app, ["scaling", *stores, "--format", "csv"]).stdout.splitlines()
    assert len(table) == 1 + len(facts["rows"])
