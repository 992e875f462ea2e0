"""No answer relies on an order that Polars does not promise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import pag_graph
from pag_graph import api
from pag_graph.analyses import all_entries
from pag_graph.diagnosis.spark.causes import diagnose
from pag_graph.errors import TraceFormatError
from pag_graph.samples import FOLDER
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sources import convert
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log
from pag_graph.store.trace import Trace
from pag_graph.workbench.paths import DrawnPath
from tests.support.disorder import disorder
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph import Pag

WHOLE = {
    "sample": {"fraction": 0.4, "strata": 2},
    "profile-rounds": {},
    "invariants": {"epoch_max_ns": 1, "message_max_ns": 1},
}
"""Analyses that look at all rounds."""
CHANGED = {"what-if": {"worker": 0, "factor": 0.5}}
LEFT_OUT = {"k-hops-st2"}
"""Of another rule set than the samples."""


@pytest.fixture(scope="module")
def pag(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    folder = tmp_path_factory.mktemp("disorder") / "skewed.pag"
    api.build(FOLDER / "skewed", folder, engine="local")
    return pag_graph.open(folder)


def test_disorder_is_what_it_says() -> None:
    rows = pl.DataFrame({"key": range(50), "half": [number // 2 for number in range(50)]})
    ordered = rows["key"].to_list()
    with disorder():
        assert rows.join(rows, on="key", how="left")["key"].to_list() != ordered
        assert rows.join(rows, on="key", how="left", maintain_order="left")["key"].to_list() == ordered
        assert rows.group_by("key").agg(pl.len())["key"].to_list() != ordered
        assert rows.group_by("key", maintain_order=True).agg(pl.len())["key"].to_list() == ordered
        assert rows.unique("half")["key"].sort().to_list() != rows.unique("half")["key"].sort().to_list()
        assert rows.unique("half", keep="first", maintain_order=True)["key"].to_list() == ordered[::2]
        assert rows.sort("half")["key"].to_list() != ordered
        assert rows.sort("half", maintain_order=True)["key"].to_list() == ordered


def told(pag: Pag, name: str) -> tuple[Any, ...]:
    """Return what an analysis says of a round, or of all."""
    options: dict[str, Any] = WHOLE[name] if name in WHOLE else {"epoch": 3, **CHANGED.get(name, {})}
    answer = getattr(pag, name.replace("-", "_"))(**options)
    if isinstance(answer, pa.Table):
        return (answer.to_pylist(),)
    return answer.table.to_pylist(), answer.headline(), answer.text(), answer.markdown()


@pytest.mark.parametrize("name", [entry.name for entry in all_entries() if entry.name not in LEFT_OUT])
def test_an_analysis_says_the_same_in_disorder(pag: Pag, name: str) -> None:
    expected = told(pag, name)
    with disorder():
        assert told(pag, name) == expected


@pytest.mark.parametrize("detail", [Detail.CRITICAL, Detail.FULL])
def test_what_is_loaded_into_neo4j_is_the_same_in_disorder(pag: Pag, detail: Detail) -> None:
    windows = pag.run.windows()[2:5]
    expected = Reader(pag.run).read(windows, detail)
    with disorder():
        content = Reader(pag.run).read(windows, detail)
    for table in ("events", "segments", "steps", "epochs", "snapshots", "then", "released", "activities"):
        assert getattr(content, table).equals(getattr(expected, table)), table


@pytest.mark.parametrize("name", ["run.json", "run.graphml"])
def test_an_export_is_the_same_in_disorder(pag: Pag, name: str, tmp_path: Path) -> None:
    pag.export(tmp_path / name, epoch=3)
    with disorder():
        pag.export(tmp_path / f"disordered-{name}", epoch=3)
    assert (tmp_path / f"disordered-{name}").read_bytes() == (tmp_path / name).read_bytes()


def test_a_picture_is_the_same_in_disorder(pag: Pag, tmp_path: Path) -> None:
    pag.draw(tmp_path / "epoch.svg", epoch=3)
    with disorder():
        pag.draw(tmp_path / "disordered.svg", epoch=3)
    assert (tmp_path / "disordered.svg").read_bytes() == (tmp_path / "epoch.svg").read_bytes()


def test_types_that_take_as_long_as_each_other_have_an_order(tmp_path: Path) -> None:
    kinds = ["processing", "io", "gc", "serialization"]
    rows = [f"0,{10 * place},{10 * place + 10},{kind}\n" for place, kind in enumerate(kinds)]
    (tmp_path / "activities.csv").write_text("worker,start,end,activity\n" + "".join(rows))
    convert(tmp_path / "activities.csv", tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    run = pag_graph.open(tmp_path / "store").run
    with disorder():
        orders = {tuple(DrawnPath.of(run, run.windows()[0]).by_type) for _ in range(5)}
    assert orders == {(*sorted(kinds), "busy")}


def test_which_worker_is_said_to_end_too_early_is_the_first(tmp_path: Path) -> None:
    rows = "".join(f"w{number},0,10,processing\n" for number in range(9))
    (tmp_path / "activities.csv").write_text("worker,start,end,activity\n" + rows)
    (tmp_path / "workers.csv").write_text("worker,end\n" + "".join(f"w{number},5\n" for number in range(9)))
    said = set()
    with disorder():
        for number in range(5):
            with pytest.raises(TraceFormatError) as raised:
                convert(tmp_path, tmp_path / f"trace-{number}")
            said.add(raised.value.message)
    assert len(said) == 1


def test_links_of_spans_are_the_same_in_disorder(tmp_path: Path) -> None:
    spans = []
    for trace in range(1, 30):
        for number, above, times in ((1, 0, (0, 90)), (2, 1, (10, 30)), (3, 1, (15, 25)), (4, 1, (20, 70))):
            begin, end = (str(1_700_000_000_000_000_000 + 1_000 * trace + time) for time in times)
            spans.append(
                {
                    "traceId": f"{trace:032x}",
                    "spanId": f"{number:016x}",
                    "parentSpanId": f"{above:016x}",
                    "name": "work",
                    "startTimeUnixNano": begin,
                    "endTimeUnixNano": end,
                    "links": [{"traceId": f"{trace:032x}", "spanId": f"{n:016x}"} for n in (3, 2) if number == 4],
                }
            )
    (tmp_path / "spans.json").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    convert(tmp_path / "spans.json", tmp_path / "trace")
    with disorder():
        convert(tmp_path / "spans.json", tmp_path / "disordered")
    assert Trace.open(tmp_path / "disordered").events().equals(Trace.open(tmp_path / "trace").events())


def test_causes_of_a_spark_application_are_the_same_in_disorder(tmp_path: Path) -> None:
    """Whatever begins and ends at the same millisecond, in stages that collect garbage for as long as each other."""
    log = EventLog(cores=[4, 4])
    for job in range(30):
        at = 1_000 * job + 100
        log.job(job, at, [job]).stage(job, at, tasks=8)
        for index in range(8):
            log.task(job, index, str(index // 4), at + 10, at + 810, run=790, gc=400)
        log.stage_done(job, at + 811).job_done(job, at + 812)
    log.end(31_000).write(tmp_path / "app")
    (files,) = find_logs(tmp_path / "app")
    expected = diagnose(map_log(read_log(files)).schedule).causes
    assert "gc" in {cause.cause for cause in expected}
    with disorder():
        assert diagnose(map_log(read_log(files)).schedule).causes == expected


def test_bytes_of_a_shuffle_are_divided_in_the_same_way_in_disorder(tmp_path: Path) -> None:
    """What each executor sent is rounded, and what is left over goes to the last one."""
    log = EventLog(cores=[1] * 5).job(0, 100, [0, 1], parents={1: [0]}).stage(0, 105, tasks=5)
    for index in range(5):
        log.task(0, index, str(index), 110, 200, run=90, wrote=(100 * (index + 1), 10))
    log.stage_done(0, 200).stage(1, 201, tasks=5)
    for index in range(5):
        log.task(1, index, str(index), 210, 300, run=90, read=(501, 99, 61))
    log.stage_done(1, 300).job_done(0, 301).end(310).write(tmp_path / "app")
    (files,) = find_logs(tmp_path / "app")
    expected = map_log(read_log(files)).shuffles.messages
    with disorder():
        assert map_log(read_log(files)).shuffles.messages.equals(expected)
