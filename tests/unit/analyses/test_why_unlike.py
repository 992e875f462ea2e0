"""Reports on runs whose workers run different operators, and have names: who is compared, and what they are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses import find_analysis, table_of
from pag_graph.analyses.evidence import Cause
from pag_graph.sinks.charts import picture
from pag_graph.sinks.report import page
from pag_graph.sinks.timeline import timeline
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from pag_graph.api import Pag

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def opened(source: Path, place: Path) -> Pag:
    api.convert(source, place / "trace")
    api.build(place / "trace", place / "store", engine="local")
    return api.open(place / "store")


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    return opened(EXAMPLES / "flink", tmp_path_factory.mktemp("flink"))


@pytest.fixture(scope="module")
def heron(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    return opened(EXAMPLES / "heron" / "heron.jsonl", tmp_path_factory.mktemp("heron"))


def plain(text: str) -> str:
    return " ".join(text.split())


def test_who_works_on_the_path_is_the_bottleneck_and_no_worker_of_another_kind(flink: Pag) -> None:
    told = flink.why()
    assert (told.cause, told.alarm, told.named["worker"]) == (Cause.BOTTLENECK, True, 2)
    assert (told.named["worker_name"], told.named["share"]) == ("window-0", pytest.approx(110 / 130))
    text = plain(told.text(top=50))
    assert "Cause: window-0 (worker 2) is the bottleneck. 85% of the time on the critical path" in text
    assert "worked 1.7 x the median of the 2 workers that run the same." in text
    # One source reads more than the other, but nothing can be spread from sources to windows.
    assert flink.run.peers == {0: 0, 1: 0, 2: 2, 3: 2}
    assert "over the 4 workers" not in text
    rows = pl.DataFrame(pl.from_arrow(flink.skew()))
    assert rows.group_by("operator").agg(pl.col("worker").sort()).sort("operator")["worker"].to_list() == [
        [0, 1],
        [2, 3],
    ]
    assert rows["skew_ratio"].max() <= 2
    ratios = dict(pl.DataFrame(pl.from_arrow(flink.stragglers())).select("worker", "work_ratio").iter_rows())
    assert ratios == pytest.approx({0: 100 / 65, 1: 30 / 65, 2: 110 / 65, 3: 20 / 65})


def test_nothing_is_spread_over_workers_that_run_something_else(heron: Pag) -> None:
    told = heron.why()
    text = plain(told.text(top=50))
    assert (told.cause, told.named["worker_name"]) == (Cause.BOTTLENECK, "spout-1")
    assert "Nobody else runs what it runs." in text
    assert "spread evenly" not in text
    assert not any(row["straggler"] for row in heron.stragglers().to_pylist())
    assert not any(row["skewed"] for row in heron.skew().to_pylist())


def test_who_is_waited_for_and_not_recorded_is_not_compared(tmp_path: Path) -> None:
    rows = []
    for worker, end in (("a", 100), ("b", 90)):
        rows += [
            {"worker": worker, "start": 0, "end": 40, "activity": "waiting"},
            {"worker": worker, "start": 40, "end": end, "activity": "processing", "operator": "write"},
            {"from": "source", "to": worker, "sent": 40, "received": 40},
        ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pag = opened(tmp_path / "log.jsonl", tmp_path)
    assert {row["worker"]: row["work_ratio"] for row in pag.stragglers().to_pylist()} == {0: 60 / 55, 1: 50 / 55}
    told = pag.why()
    assert (told.cause, told.alarm, told.named["worker_name"]) == (Cause.UNKNOWN, False, "source")
    text = plain(told.text(top=50))
    assert (
        "Cause: the trace does not say what source (worker 2) did; a (worker 0) and b (worker 1) waited 80 ns" in text
    )


def test_who_is_waited_for_and_not_recorded_is_not_said_to_have_most_to_do(tmp_path: Path) -> None:
    # All run the same, but of the source nothing is recorded before 200.
    rows = [{"worker": name, "start": 200, "end": 260, "activity": "processing", "operator": "w"} for name in "abs"]
    for worker, end in (("a", 100), ("b", 90)):
        rows += [
            {"worker": worker, "start": 0, "end": 40, "activity": "waiting"},
            {"worker": worker, "start": 40, "end": end, "activity": "processing", "operator": "w"},
            {"from": "s", "to": worker, "sent": 40, "received": 40},
        ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pag = opened(tmp_path / "log.jsonl", tmp_path)
    assert not pag.run.unlike
    told = pag.why(between=(0, 100))
    assert (told.cause, told.named["worker"]) == (Cause.UNKNOWN, 2)
    assert "had most to do" not in plain(told.text(top=50))


def test_names_stand_wherever_a_worker_is_named(flink: Pag) -> None:
    text = plain(flink.why().text(top=50))
    assert "data message from source-0 (worker 0) to window-0 (worker 2)" in text
    assert "window-0 (worker 2) and window-1 (worker 3) waited" in text
    assert "records source-0 -> window-0 (8,200), source-1 -> window-1 (900)" in text
    assert "all work of window-0 (worker 2) twice as fast" in text
    assert "on worker" not in text
    snapshot = flink.snapshot()
    for analysis, drawn in (("matrix", "source-0 (0), to worker window-0 (2)"), ("stragglers", "window-0 (2)")):
        found = find_analysis(analysis)
        assert drawn in picture(found, flink.analyse(analysis), run=flink.run, snapshot=snapshot)
    assert ">window-0 (2)<" in page(find_analysis("blame"), flink.blame(), run=flink.run, snapshot=snapshot)
    keys = flink.profile()["key"].to_pylist()
    assert {"window-0 (worker 2)", "source-0 (worker 0) -> window-0 (worker 2)"} <= set(keys)
    assert "window-0 (worker 2) for source-0 (worker 0)" in table_of(flink.sample(fraction=1.0))["key"].to_pylist()
    svg = timeline(snapshot)
    assert "<title>window-1</title>" in svg
    assert ">worker 3<" in svg


def test_names_of_workers_are_data(tmp_path: Path) -> None:
    evil = "<b>\x1b[31mw</b>|`"
    rows = [
        {"worker": evil, "start": 0, "end": 10, "activity": "processing", "operator": "a"},
        {"worker": "b", "start": 0, "end": 8, "activity": "waiting"},
        {"worker": "b", "start": 8, "end": 12, "activity": "processing", "operator": "b"},
        {"from": evil, "to": "b", "sent": 6, "received": 8},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pag = opened(tmp_path / "log.jsonl", tmp_path)
    told, snapshot = pag.why(), pag.snapshot()
    assert "<b>?[31mw</b>|` (worker 0)" in plain(told.text(top=50))
    assert "\\<b\\>?[31mw\\</b\\>".replace("[", "\\[") in told.markdown(top=50)
    for made in (
        timeline(snapshot),
        page(find_analysis("why"), told, run=pag.run, snapshot=snapshot),
        page(find_analysis("matrix"), pag.matrix(), run=pag.run, snapshot=snapshot),
        pag.analyse("diff", between=(0, 8), against_between=(4, 12)).markdown(),
    ):
        assert "\x1b" not in made
        assert "<b>" not in made


def test_the_only_round_of_a_run_is_called_by_its_epoch(flink: Pag, skewed: Pag) -> None:
    assert flink.why().text().startswith("Epoch 0 took 130.00 ms.")
    assert flink.critical_path().headline().startswith("Epoch 0: 130,000,000 ns")
    assert [window.name for window in flink.run.windows()] == ["epoch 0"]
    # Where rounds follow, the first one is their startup.
    assert [window.name for window in skewed.run.windows()][:2] == ["startup", "epoch 1"]
    assert skewed.snapshot(epoch=0).window.name == "startup"


def test_one_word_for_each_quantity(flink: Pag, tmp_path: Path) -> None:
    told, path = flink.why(), flink.critical_path()
    assert told.explained == path.explained == path.summary()["explained"] == told.summary()["explained"] == 1.0
    assert flink.epochs["coverage"].to_list() == pytest.approx([1 - 75 / 520])
    assert "coverage" not in {*told.summary(), *path.summary()}
    # The last epoch takes five times as long as the others, from its first event to its last: that is its latency.
    ends = [*range(1_000, 12_000, 1_000), 16_000]
    log = " | ".join(f"{end - 990} start 1 | {end - 10} stop 1 | {end} end" for end in ends)
    draw(log.replace("15010 start 1", "11010 start 1")).write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    unusual = api.open(tmp_path / "store").why(epoch=11)
    limits = [row["statement"] for row in unusual.table.to_pylist() if row["topic"] == "limits"]
    assert limits[0].startswith(
        "epoch_max (latency, from the epoch's first event on any worker to its last): 5.0 us, more"
    )
    assert unusual.text().startswith("Epoch 11 took 5.0 us")
