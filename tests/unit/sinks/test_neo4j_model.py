"""What is loaded into Neo4j is made of the store's tables, and says what the engine says; no server is needed."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.cli.demo import SAMPLES
from pag_graph.cypher import load_query, queries_for_people
from pag_graph.model import tables
from pag_graph.model.enums import LOCAL_TYPES, ActivityType
from pag_graph.model.units import duration
from pag_graph.sinks.neo4j import model
from pag_graph.sinks.neo4j.bulk import ImportFiles
from pag_graph.sinks.neo4j.content import Content, Reader
from pag_graph.sinks.neo4j.detail import Detail

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.graph.run import Run

waits = find_analysis("waits")

BUNDLED = sorted(path.name for path in SAMPLES.iterdir() if (path / "meta.json").is_file())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("model")
    for name in BUNDLED:
        api.build(SAMPLES / name, folder / name, engine="local")
    return {name: api.open(folder / name).run for name in BUNDLED}


@pytest.fixture(scope="module")
def whole(runs: dict[str, Run]) -> dict[str, Content]:
    return {name: Reader(run).read(run.windows(), Detail.FULL) for name, run in runs.items()}


# ---- definitions


def test_properties_are_the_tables_columns() -> None:
    assert set(model.EVENT.columns) == {*tables.PAG_VERTICES.names, "operator_name"}
    for table in model.ACTIVITIES.values():
        # The type is the relationship's own; criticality, title and what ended a wait are not stored but computed.
        computed = {"critical", "title", *(["ended_by"] if table.type == "WAITING" else [])}
        assert set(table.all_columns) == set(tables.PAG_EDGES.names) - {"type"} | computed
    assert set(model.WORKER.columns) == {*tables.TRACE_WORKERS.names, "peers", *model.LOG}
    assert set(model.OPERATOR.columns) == set(tables.TRACE_OPERATORS.names)
    assert set(model.FEEDS.all_columns) == set(tables.TRACE_CHANNELS.names)
    of_alerts = {
        "rule",
        "query",
        "subject",
        "first_epoch",
        "resolved_epoch",
        "learned",
        "coverage",
        "src",
        "dst",
        "row",
    }
    assert set(model.FINDING.columns) == {"id", *tables.PAG_FINDINGS.names, *of_alerts}
    assert set(model.STEP.columns) == {"epoch", *tables.CRITICAL_PATH.names}
    begun = load_query("load/begin_epochs").params.keys()
    assert begun - {"run", "highest_epoch", "end_segment", "after_ns"} == set(tables.PAG_EPOCHS.names)
    assert {f"{kind}_ns" for kind in LOCAL_TYPES} - {"waiting_ns"} <= set(model.SEGMENT.columns)


def test_every_node_table_has_the_constraint_that_its_merge_needs() -> None:
    schema = load_query("schema/constraints").text
    for table in model.NODES:
        key = ", ".join(rf"\w+\.{name}" for name in ("run", *table.key))
        assert re.search(rf"FOR \(\w+:{table.label}\) REQUIRE \({key}\) IS UNIQUE", schema), table.label


TEXTS = [
    *(model.merge_nodes(table) for table in model.NODES),
    *(make(table) for table in model.RELATIONSHIPS for make in (model.merge_relationships, model.create_relationships)),
    *(model.keys_there(table) for table in model.NODES),
    *(
        model.create_together(model.EVENT, tuple(model.ACTIVITIES[kind] for kind in kinds))
        for kinds in ((), (ActivityType.BUSY,), tuple(ActivityType))
    ),
    model.create_together(model.SEGMENT, (model.THEN, model.RELEASED, model.CRITICAL)),
    model.create_together(model.SNAPSHOT, (), (model.SPENT,)),
    model.create_together(model.STEP, (), (model.CONTAINS_STEP,)),
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_hold_no_values_and_every_name_is_ours(text: str) -> None:
    assert not re.search(r"['\"`;]|//|\b\d", text.replace("range(0", "").replace(") - 1)", ""))
    labels = {table.label for table in (*model.NODES, model.EPOCH)}
    types = {table.type for table in model.RELATIONSHIPS}
    assert set(re.findall(r"[(\[]\w*:(\w+)", text)) <= labels | types


def test_names_in_queries_are_those_of_the_model() -> None:
    for query in queries_for_people():
        types = re.findall(r"\[\w*:([^\]{]+)", query.code)
        assert {name for each in types for name in re.findall(r"\w+", each)} <= {*model.TYPES}, query.name


def test_details_hold_what_lesser_ones_hold() -> None:
    assert [[big.covers(small) for small in Detail] for big in Detail] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


# ---- contents


@pytest.mark.parametrize("name", BUNDLED)
def test_all_epochs_together_are_the_store(whole: dict[str, Content], runs: dict[str, Run], name: str) -> None:
    content, run = whole[name], runs[name]
    stored = tables.PAG_VERTICES.names
    assert content.events.select(stored).equals(run.scan("vertices").sort("id").collect().select(stored))
    names = dict(run.operators.select("operator", "name").iter_rows())
    assert content.events["operator_name"].to_list() == [names.get(each) for each in content.events["operator"]]
    edges = run.scan("edges").sort("src", "dst").collect()
    assert content.activities.drop("critical", "run", "title", "ended_by").equals(edges.select(tables.PAG_EDGES.names))
    waits = content.activities.filter(pl.col("type") == "waiting")
    released = content.released.filter(pl.col("type") != "spawn")
    assert dict(waits.select("dst", "ended_by").iter_rows()) == dict(released.select("dst", "src").iter_rows())
    assert content.activities["ended_by"].null_count() == edges.height - waits.height
    assert content.activities["title"].to_list() == [duration(each) for each in edges["duration_ns"]]
    indexed = content.activities["type"].is_in([str(kind) for kind in model.FOUND_BY_EPOCH])
    assert content.activities["run"].is_not_null().equals(indexed, check_names=False)


@pytest.mark.parametrize("name", BUNDLED)
def test_operators_spend_what_the_windows_show(whole: dict[str, Content], runs: dict[str, Run], name: str) -> None:
    """Over a run that windows tile, each operator's time is that of its edges, and the path's is the path's."""
    content, run = whole[name], runs[name]
    assert {window.role for window in run.windows()} >= {"startup", "round", "shutdown"}
    edges = run.scan("edges").filter(pl.col("type").is_in([str(kind) for kind in LOCAL_TYPES])).collect()
    expected = edges.drop_nulls("operator").group_by("operator", "type").agg(pl.col("duration_ns").sum())
    spent = content.spent.group_by("operator", "type").agg(pl.col("ns").sum(), pl.col("path_ns").sum())
    assert set(spent.select("operator", "type", "ns").iter_rows()) == {row for row in expected.iter_rows() if row[2]}
    steps = content.steps.drop_nulls("operator").filter(pl.col("type").is_in([str(kind) for kind in LOCAL_TYPES]))
    on_path = steps.group_by("operator", "type").agg(pl.col("duration_ns").sum())
    assert {row for row in spent.select("operator", "type", "path_ns").iter_rows() if row[2]} == {
        row for row in on_path.iter_rows() if row[2]
    }


@pytest.mark.parametrize("name", BUNDLED)
def test_messages_say_which_operator_sent_them(whole: dict[str, Content], runs: dict[str, Run], name: str) -> None:
    edges = runs[name].scan("edges").filter(pl.col("type").is_in([str(kind) for kind in LOCAL_TYPES])).collect()
    before = dict(edges.select("dst", "operator").iter_rows())
    released = whole[name].released
    assert released.height
    assert released["sender_operator"].to_list() == [before.get(src) for src in released["src"]]


@pytest.mark.parametrize("name", BUNDLED)
def test_segments_tile_the_time_between_waits(whole: dict[str, Content], runs: dict[str, Run], name: str) -> None:
    segments, run = whole[name].segments, runs[name]
    spent = segments.select(pl.sum_horizontal(model.TIME_BY_TYPE)).to_series()
    assert spent.equals(segments["end_ns"] - segments["start_ns"], check_names=False)
    vertices = run.scan("vertices").collect()
    assert segments["id"].to_list() == sorted(vertices["segment"].unique().to_list())
    assert segments["events"].sum() == vertices.height
    edges = run.scan("edges").collect()
    waiting = edges.filter(pl.col("type") == "waiting")
    then = whole[name].then
    assert then["waited_ns"].sum() == waiting["duration_ns"].sum()
    assert then.height == waiting.height
    # A worker's segments and waits follow each other without a gap.
    starts, ends = dict(segments.select("id", "start_ns").rows()), dict(segments.select("id", "end_ns").rows())
    for source, target, start, waited in then.select("source", "target", "start_ns", "waited_ns").rows():
        assert ends[source] == start
        assert starts[target] == start + waited
    operators = edges.filter(pl.col("operator").is_not_null(), pl.col("src") // (1 << 40) == pl.col("dst") // (1 << 40))
    assert segments["operators_ns"].list.sum().sum() == operators["duration_ns"].sum()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BUNDLED)
def test_what_released_whom_is_what_the_analysis_of_waits_says(
    whole: dict[str, Content], runs: dict[str, Run], name: str
) -> None:
    run, content = runs[name], whole[name]
    worker = dict(content.segments.select("id", "worker").rows())
    found: dict[tuple[int, int], int] = {}
    for source, target, waited in content.released.select("source", "target", "waited_ns").rows():
        pair = worker[target], worker[source]
        found[pair] = found.get(pair, 0) + waited
    expected: dict[tuple[int, int], int] = {}
    for row in itertools.chain.from_iterable(waits(run.snapshot(window)).to_pylist() for window in run.windows()):
        pair = row["worker"], row["from_worker"]
        expected[pair] = expected.get(pair, 0) + row["waiting_ns"]
    assert found == {pair: time for pair, time in expected.items() if time}


@pytest.mark.parametrize("name", BUNDLED)
def test_paths_are_chains_of_segments(whole: dict[str, Content], runs: dict[str, Run], name: str) -> None:
    """Walk back over RELEASED as a query does, and meet the messages of the engine's path."""
    run, content = runs[name], whole[name]
    segments = {row["id"]: row for row in content.segments.to_dicts()}
    into = {row["target"]: row for row in content.released.to_dicts()}
    marked = set()
    for epoch, snapshot in zip(content.epochs.to_dicts(), content.snapshots.to_dicts(), strict=True):
        window = run.window(epoch=epoch["epoch"])
        path = critical_path(run.snapshot(window))
        assert sum(snapshot["path_times_ns"]) == window.span_ns
        assert snapshot["path_steps"] == path.steps.num_rows
        messages = [row for row in path.steps.to_pylist() if row["worker"] != row["to_worker"]]
        marked |= {(row["edge_src"], row["edge_dst"]) for row in messages}
        if epoch["end_segment"] is None:
            continue
        at, walked = epoch["end_segment"], []
        while segments[at]["start_ns"] > window.start_ns and at in into:
            walked.append((into[at]["src"], into[at]["dst"]))
            if into[at]["sent_ns"] <= window.start_ns:
                break
            at = into[at]["source"]
        assert walked[::-1] == [(row["edge_src"], row["edge_dst"]) for row in messages]
        assert snapshot["path_segments"] == [dst for _, dst in walked[::-1]]
    critical = content.released.filter(pl.col("critical")).select("src", "dst").rows()
    assert set(critical) == {pair for pair in marked if pair[1] in into}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["skewed", "bfs"])
@pytest.mark.parametrize("detail", [Detail.CRITICAL, Detail.FULL])
def test_epochs_one_by_one_or_together_hold_the_same(runs: dict[str, Run], name: str, detail: Detail) -> None:
    run, reader = runs[name], Reader(runs[name])
    windows = run.windows()[:12]
    alone = [reader.read([window], detail) for window in windows]
    together = reader.read(windows, detail)
    for table in ("events", "segments", "steps", "epochs", "snapshots", "then"):
        parts = pl.concat([getattr(content, table) for content in alone])
        key = ["epoch", "step"] if table == "steps" else parts.columns[:2] if table == "then" else parts.columns[:1]
        expected = getattr(together, table).sort(key)
        assert parts.unique(key).sort(key).equals(expected), table
    for table in ("activities", "released"):
        parts = pl.concat([getattr(content, table) for content in alone])
        joined = parts.group_by("src", "dst", "type").agg(pl.col("critical").max()).sort("src", "dst")
        assert joined.equals(getattr(together, table).select("src", "dst", "type", "critical").sort("src", "dst")), (
            table
        )


@pytest.mark.parametrize("name", BUNDLED)
def test_critical_holds_the_path_and_its_neighbours(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    window = run.slowest()
    content = Reader(run).read([window], Detail.CRITICAL)
    snapshot = run.snapshot(window)
    path = {(row["edge_src"], row["edge_dst"]) for row in critical_path(snapshot).steps.to_pylist()}
    assert set(content.activities.filter(pl.col("critical")).select("src", "dst").rows()) == path
    near = {vertex for pair in path for vertex in pair}
    edges = snapshot.edges.filter(pl.col("src").is_in(list(near)) | pl.col("dst").is_in(list(near)))
    assert set(edges.select("src", "dst").rows()) <= set(content.activities.select("src", "dst").rows())
    ends = set(content.activities["src"]) | set(content.activities["dst"])
    assert set(content.events["id"]) == ends
    assert content.steps.height == len(path)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("detail", list(Detail))
@pytest.mark.parametrize("group_edges", [1, 500, 10**9])
def test_import_files_hold_every_row_once(
    runs: dict[str, Run], tmp_path: Path, detail: Detail, group_edges: int
) -> None:
    """Whatever the groups: what a border cuts belongs to two of them."""
    run = runs["skewed"]
    files = ImportFiles(Reader(run), detail, tmp_path)
    files.write(group_edges, lambda *_: None)
    expected = Reader(run).read(run.windows(), detail)
    written = {}
    for (kind, label), parts in files._parts.items():
        rows = sorted(line for part in parts for line in part.read_text(encoding="utf-8").splitlines())
        assert len(rows) == len(set(rows))
        written[kind, label] = rows
    assert len(written.get(("nodes", "Segment"), [])) == expected.segments.height
    assert len(written.get(("relationships", "THEN"), [])) == expected.then.height
    assert len(written.get(("relationships", "RELEASED"), [])) == expected.released.height
    assert len(written["relationships", "SPENT"]) == expected.spent.height
    assert len(written["nodes", "Snapshot"]) == expected.snapshots.height
    assert len(written.get(("nodes", "Event"), [])) == expected.events.height
    assert len(written.get(("nodes", "CriticalStep"), [])) == expected.steps.height
    # The server takes numbers of nodes as they are: each is of one node, and leads to one.
    numbers = [row.split(",", 1)[0] for (kind, _), rows in written.items() if kind == "nodes" for row in rows]
    assert sorted(map(int, numbers)) == sorted(set(map(int, numbers)))
    ends = [row.split(",", 2)[:2] for (kind, _), rows in written.items() if kind == "relationships" for row in rows]
    assert {number for pair in ends for number in pair} <= set(numbers)
    for kind, table in model.ACTIVITIES.items():
        rows = expected.activities.filter(pl.col("type") == str(kind))
        lines = written.get(("relationships", table.type), [])
        assert len(lines) == rows.height
        assert sum(line.endswith("true") for line in lines) == int(rows["critical"].sum() or 0)


def test_details_differ_in_size_as_promised(runs: dict[str, Run]) -> None:
    run = runs["bfs"]
    sizes = {detail: Reader(run).read(run.windows(), detail).rows for detail in Detail}
    assert 0 == sizes[Detail.SUMMARY] < sizes[Detail.WAITS] < sizes[Detail.CRITICAL] <= sizes[Detail.FULL]
