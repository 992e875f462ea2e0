"""A graph for other programs: nothing is lost that a format can hold, and timelines are what the format asks for."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import networkx as nx
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph import api, sources
from pag_graph.cli.demo import SAMPLES
from pag_graph.errors import InvalidParameterError, SinkError, UnsupportedPlanError
from pag_graph.model.enums import MESSAGE_TYPES, RuleSet
from pag_graph.model.tables import PAG_EDGES, PAG_VERTICES, STORE_TABLES
from pag_graph.model.units import in_cell, in_file
from pag_graph.sinks.export import ExportFormat, export
from pag_graph.sinks.export import csv as csv_export

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.api import Pag

_MESSAGES = {str(kind) for kind in MESSAGE_TYPES}
CELLS = ("=1+1", "+1", "-1", "@a", "'a", "\t=", "\r=", "\n", "\x00", "\u202e=", "\uff1d1", "", " ")
ODD = 'sum of "a" <b> & c\\d, è\n'


@pytest.fixture(scope="module")
def timely(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    store = tmp_path_factory.mktemp("export") / "store"
    api.build(SAMPLES / "skewed", store, engine="local")
    return api.open(store)


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    folder = tmp_path_factory.mktemp("export-stated")
    lines = [
        {"worker": "w <1>", "start": 0, "end": 1501, "activity": "processing", "operator": ODD, "epoch": 0},
        {"worker": "w <1>", "start": 200, "end": 333, "activity": "gc", "epoch": 0, "records": 2},
        {"worker": "v", "start": 0, "end": 2007, "activity": "waiting", "epoch": 0},
        {"worker": "v", "start": 2007, "end": 3000, "activity": "io", "operator": "", "epoch": 1},
        {"from": "w <1>", "to": "v", "sent": 1501, "received": 2007, "records": 5, "bytes": 40, "channel": ODD},
        {"from": "w <1>", "to": "v", "sent": 1501, "received": 2007, "channel": "again"},
    ]
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    sources.convert(log, folder / "trace")
    api.build(folder / "trace", folder / "store", rules=RuleSet.STATED, engine="local")
    return api.open(folder / "store")


@pytest.fixture(params=["timely", "stated"])
def pag(request: pytest.FixtureRequest) -> Pag:
    return request.getfixturevalue(request.param)


def table(pag: Pag, name: str) -> list[dict[str, Any]]:
    names = STORE_TABLES[name].names
    frame = (pag.vertices() if name == "vertices" else pag.edges()).select(names).collect()
    return ordered(frame.to_dicts())


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def timeline(pag: Pag, folder: Path, **options: Any) -> dict[str, Any]:
    export(pag.run, folder / "timeline.json", "perfetto", **options)
    return json.loads((folder / "timeline.json").read_text(encoding="utf-8"))


# ---- the Trace Event Format, as its description has it


def check_timeline(found: dict[str, Any]) -> None:
    """Check what the description of the format demands, and what Perfetto needs beyond it."""
    assert set(found) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert found["displayTimeUnit"] in {"ms", "ns"}
    named = set()
    slices: dict[tuple[int, int], list[tuple[int, int, int, str]]] = defaultdict(list)
    flows: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    open_: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    # Readers sort by time and keep the order of the file in one instant.
    timed = sorted((e for e in found["traceEvents"] if e["ph"] != "M"), key=lambda e: e["ts"])
    for event in (*(e for e in found["traceEvents"] if e["ph"] == "M"), *timed):
        assert event["ph"] in {"M", "X", "B", "E", "s", "f", "i"}
        assert isinstance(event["name"], str)
        # 0 is the idle process or thread.
        assert isinstance(event["pid"], int)
        assert event["pid"] > 0
        thread = (event["pid"], event.get("tid", 0))
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}
            assert set(event["args"]) == {"sort_index" if "sort" in event["name"] else "name"}
            assert ("tid" in event) == event["name"].startswith("thread")
            named.add((event["name"], *thread))
            continue
        assert event["tid"] > 0
        assert ("thread_name", *thread) in named
        assert ("process_name", event["pid"], 0) in named
        assert isinstance(event["ts"], int | float)
        start = nanoseconds(event["ts"])
        match event["ph"]:
            case "X":
                assert event["dur"] >= 0
                end = start + nanoseconds(event["dur"])
                assert (start, end - start) == (
                    event["args"]["start_ns"],
                    event["args"].get("duration_ns", end - start),
                )
                slices[thread].append((start, end, len(slices[thread]), event["name"]))
            case "B":
                open_[thread].append((event["name"], start))
            case "E":
                name, begun = open_[thread].pop()
                assert name == event["name"]
                slices[thread].append((begun, start, -len(open_[thread]) - 1, name))
            case "i":
                assert event["s"] in {"t", "p", "g"}
            case _:
                assert event.get("bp") == ("e" if event["ph"] == "f" else None)
                flows[event["cat"], event["name"], event["id"]].append(event)
    assert not any(open_.values())
    for thread, mine in slices.items():
        inside: list[tuple[int, int]] = []
        for start, end, _, name in sorted(mine, key=lambda s: (s[0], -s[1])):
            while inside and inside[-1][1] <= start:
                inside.pop()
            assert not inside or end <= inside[-1][1], (thread, name, start, end, inside[-1])
            inside.append((start, end))
    for events in flows.values():
        assert [event["ph"] for event in events] in (["s", "f"], ["f", "s"])
        for event in events:
            # Arrows hang on slices: without one that contains the instant they are not drawn.
            at = nanoseconds(event["ts"])
            assert any(low <= at <= high for low, high, *_ in slices[event["pid"], event["tid"]])


def nanoseconds(microseconds: float) -> int:
    """Convert a time as Perfetto does, which cuts off what is below a nanosecond."""
    return int(microseconds * 1000.0)


@pytest.mark.parametrize("piece_edges", [None, 3])
def test_a_timeline_is_valid_and_holds_every_column(
    pag: Pag, tmp_path: Path, piece_edges: int | None, request: pytest.FixtureRequest
) -> None:
    if piece_edges and request.node.callspec.params["pag"] == "timely":
        # That many pieces of few edges; the smaller run has one edge a piece.
        piece_edges = 1_500
    found = timeline(pag, tmp_path, **({"piece_edges": piece_edges} if piece_edges else {}))
    check_timeline(found)
    path_pid = next(e["pid"] for e in found["traceEvents"] if e["ph"] == "M" and e["args"] == {"name": "critical path"})
    edges, vertices = [], []
    for event in found["traceEvents"]:
        args = event.get("args", {})
        if event["ph"] == "X" and event["pid"] < path_pid:
            edges.append({name: args[name] for name in PAG_EDGES.names})
            vertex = {name: args[f"vertex_{name}"] for name in PAG_VERTICES.names if name not in {"id", "worker"}}
            vertices.append({"id": args["dst"], "worker": args["dst"] >> 40, **vertex})
        elif event["ph"] == "f" and event["cat"] != "critical_path":
            edges.append({name: args[name] for name in PAG_EDGES.names})
        elif event["ph"] == "i":
            vertices.append(args)
    assert ordered(edges) == table(pag, "edges")
    assert ordered(vertices) == table(pag, "vertices")
    for name in ("operators", "channels", "workers", "findings", "epochs"):
        assert ordered(found["otherData"][name]) == ordered(pag.run.scan(name).collect().to_dicts())
    assert found["otherData"]["run"] == dict(pag.run.info.run)


def test_the_critical_path_has_a_track_and_flows_of_its_own(pag: Pag, tmp_path: Path) -> None:
    found = timeline(pag, tmp_path)["traceEvents"]
    pid = next(e["pid"] for e in found if e["ph"] == "M" and e["args"] == {"name": "critical path"})
    shown: dict[int, int] = Counter()
    for event in found:
        if event["ph"] == "X" and event["pid"] == pid:
            shown[event["args"]["epoch"]] += event["args"]["duration_ns"]
    assert shown == {window.epoch: window.span_ns for window in pag.run.windows()}
    paths = [pag.critical_path(epoch=window.epoch).steps.to_pylist() for window in pag.run.windows()]
    moves = sum(step["worker"] != step["to_worker"] for steps in paths for step in steps)
    flows = Counter(e["ph"] for e in found if e.get("cat") == "critical_path")
    assert flows == Counter({"s": moves, "f": moves}) - Counter()


def test_only_the_path_is_exported_where_asked_for(pag: Pag, tmp_path: Path) -> None:
    found = timeline(pag, tmp_path, path_only=True)
    check_timeline(found)
    steps = [step for w in pag.run.windows() for step in pag.critical_path(epoch=w.epoch).steps.to_pylist()]
    local = sum(step["type"] not in _MESSAGES for step in steps)
    assert sum(event["ph"] == "X" for event in found["traceEvents"]) == len(steps) + local
    graph = pag.to_networkx(path_only=True)
    on_path = {(step["edge_src"], step["edge_dst"]) for step in steps}
    assert set(graph.edges()) == on_path
    assert set(graph) == {end for ends in on_path for end in ends}


def test_a_window_is_exported_alone(timely: Pag, tmp_path: Path) -> None:
    window = timely.run.window(epoch=4)
    found = timeline(timely, tmp_path, window=window)
    shown = [e["args"] for e in found["traceEvents"] if e["ph"] == "X" and "vertex_kind" in e["args"]]
    local = timely.snapshot(epoch=4).local
    assert sorted(row["dst"] for row in shown) == sorted(local["dst"].to_list())
    assert found["otherData"]["window"] == {"start_ns": window.start_ns, "end_ns": window.end_ns, "name": "epoch 4"}


def test_a_choice_of_nothing_exports_the_whole_run(timely: Pag, tmp_path: Path) -> None:
    nothing: dict[str, Any] = {"epoch": None, "between": None}
    whole = timely.export(tmp_path / "whole")
    assert timely.export(tmp_path / "chosen", **nothing).rows == whole.rows
    assert timely.to_networkx(**nothing).number_of_edges() == timely.to_networkx().number_of_edges()


def test_slices_of_operators_contain_each_other(timely: Pag, tmp_path: Path) -> None:
    found = timeline(timely, tmp_path)["traceEvents"]
    begun = {event["args"]["address"] for event in found if event["ph"] == "B"}
    known = set(timely.run.operators["address"].to_list())
    used = {row["operator"] for row in timely.edges().collect().to_dicts()} - {None}
    addresses = dict(timely.run.operators.select("operator", "address").iter_rows())
    outer = {addresses[n].rpartition(".")[0] for n in used if n in addresses}
    assert begun
    assert {address for address in outer if address in known} <= begun <= known


def test_a_compressed_timeline_is_the_same(timely: Pag, tmp_path: Path) -> None:
    window = timely.run.window(epoch=2)
    plain = timeline(timely, tmp_path, window=window)
    export(timely.run, tmp_path / "t.json.gz", "chrome", window=window)
    with gzip.open(tmp_path / "t.json.gz", "rt", encoding="utf-8") as file:
        assert json.load(file) == plain


# ---- round trips


def marked(pag: Pag) -> set[tuple[int, int]]:
    steps = [step for w in pag.run.windows() for step in pag.critical_path(epoch=w.epoch).steps.to_pylist()]
    return {(step["edge_src"], step["edge_dst"]) for step in steps}


def test_graphml_comes_back_whole(pag: Pag, tmp_path: Path) -> None:
    done = export(pag.run, tmp_path / "g.graphml", ExportFormat.GRAPHML, piece_edges=5_000)
    assert done.rows == {"vertices": len(table(pag, "vertices")), "edges": len(table(pag, "edges"))}
    graph = nx.read_graphml(tmp_path / "g.graphml", force_multigraph=True)
    vertices = [
        {name: data.get(name) for name in PAG_VERTICES.names} | {"id": int(node[1:])}
        for node, data in graph.nodes(data=True)
    ]
    assert ordered(vertices) == table(pag, "vertices")
    edges = [
        {name: data.get(name) for name in PAG_EDGES.names} | {"src": int(src[1:]), "dst": int(dst[1:])}
        for src, dst, data in graph.edges(data=True)
    ]
    assert ordered(edges) == table(pag, "edges")
    critical = {(int(s[1:]), int(d[1:])) for s, d, data in graph.edges(data=True) if data["critical"]}
    assert critical == marked(pag)
    space = "{http://graphml.graphdrawing.org/xmlns}"
    root = ET.parse(tmp_path / "g.graphml").getroot()
    held = {data.get("key"): json.loads(data.text or "") for data in root.find(f"{space}graph").findall(f"{space}data")}
    assert held["g_operators"] == pag.run.operators.to_dicts()
    assert held["g_run"] == dict(pag.run.info.run)
    declared = {key.get("id") for key in root.findall(f"{space}key")}
    assert {data.get("key") for data in root.iter(f"{space}data")} <= declared


def test_networkx_has_every_column(pag: Pag) -> None:
    graph = pag.to_networkx()
    assert ordered([{"id": node, **data} for node, data in graph.nodes(data=True)]) == table(pag, "vertices")
    edges = [({"src": s, "dst": d, **data}, data["critical"]) for s, d, data in graph.edges(data=True)]
    assert ordered([{k: v for k, v in row.items() if k != "critical"} for row, _ in edges]) == table(pag, "edges")
    assert {(row["src"], row["dst"]) for row, critical in edges if critical} == marked(pag)
    assert graph.graph["operators"] == pag.run.operators.to_dicts()
    assert isinstance(graph, nx.MultiDiGraph)


def test_csv_comes_back_whole(pag: Pag, tmp_path: Path) -> None:
    export(pag.run, tmp_path / "tables", "csv", piece_edges=5_000)
    convert = {"strings_can_be_null": True, "quoted_strings_can_be_null": False, "null_values": [""]}
    for name, schema in STORE_TABLES.items():
        types = {field.name: field.type for field in schema}
        options = pa_csv.ConvertOptions(column_types=types, include_columns=schema.names, **convert)
        parse = pa_csv.ParseOptions(newlines_in_values=True)
        read = pa_csv.read_csv(tmp_path / "tables" / f"{name}.csv", convert_options=options, parse_options=parse)
        stored = pag.run.scan(name).select(schema.names).collect().to_arrow()
        assert ordered(read.to_pylist()) == ordered(stored.to_pylist()), name
    steps = pl.read_csv(tmp_path / "tables" / "critical_path.csv")
    assert steps.height == sum(len(pag.critical_path(epoch=w.epoch).steps) for w in pag.run.windows())
    assert set(steps.select("edge_src", "edge_dst").iter_rows()) == marked(pag)
    assert json.loads((tmp_path / "tables" / "run.json").read_text()) == dict(pag.run.info.run)


def test_a_picture_is_the_timeline_of_the_window(timely: Pag, tmp_path: Path) -> None:
    export(timely.run, tmp_path / "p.svg", "svg", window=timely.run.window(epoch=4))
    picture = ET.parse(tmp_path / "p.svg").getroot()
    assert picture.tag.endswith("svg")
    assert "epoch 4" in (tmp_path / "p.svg").read_text(encoding="utf-8")


def test_the_columns_of_exports_are_those_of_the_store() -> None:
    # A new type of column needs a kind in GraphML.
    from pag_graph.sinks.export import graphml

    types = {field.type for schema in (PAG_EDGES, PAG_VERTICES) for field in schema}
    assert types <= set(graphml._KINDS)
    assert pa.bool_() in graphml._KINDS


# ---- misuse


def test_what_is_there_is_not_written_over(timely: Pag, tmp_path: Path) -> None:
    window = timely.run.window(epoch=2)
    target = tmp_path / "t.json"
    target.write_text("mine", encoding="utf-8")
    with pytest.raises(SinkError, match="exists already"):
        export(timely.run, target, "perfetto", window=window)
    assert target.read_text(encoding="utf-8") == "mine"
    export(timely.run, target, "perfetto", window=window, replace=True)
    assert target.stat().st_size > 100
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(SinkError, match="nothing that an export wrote"):
        export(timely.run, folder, "csv", window=window, replace=True)
    with pytest.raises(SinkError, match="nothing that an export wrote"):
        export(timely.run, folder, "graphml", window=window, replace=True)


def test_misuse_is_refused(timely: Pag, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=r"no export to word; there are perfetto"):
        export(timely.run, tmp_path / "x", "word")
    with pytest.raises(InvalidParameterError, match="always shows all workers"):
        export(timely.run, tmp_path / "x.svg", "svg", path_only=True)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SinkError, match="cannot be written"):
        export(timely.run, tmp_path / "file" / "x.json", "perfetto", window=timely.run.window(epoch=2))


def test_a_run_without_aligned_clocks_has_no_path_to_export(tmp_path: Path) -> None:
    api.build(SAMPLES / "skewed", tmp_path / "store", rules=RuleSet.ST2, engine="local")
    pag = api.open(tmp_path / "store")
    with pytest.raises(UnsupportedPlanError, match="no critical path"):
        export(pag.run, tmp_path / "x.json", "perfetto", path_only=True)
    export(pag.run, tmp_path / "x.json", "perfetto")
    found = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["traceEvents"]
    shown = sum(event["ph"] in {"X", "f"} and event["cat"] != "epoch" for event in found)
    assert shown == pag.edges().select(pl.len()).collect().item()


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(CELLS), min_size=1))
def test_cells_of_a_table_are_those_of_one_text_at_a_time(texts: list[str | None]) -> None:
    rows = pl.DataFrame({"text": pl.Series(texts, dtype=pl.String), "number": [-1] * len(texts)})
    frame = csv_export._safe(rows)
    assert frame["text"].to_list() == [text if text is None else in_cell(text) for text in texts]
    assert set(frame["number"]) == {-1}
    whole = [text for text in texts if text is not None and in_file(text) == text]
    # What can be in a file comes back.
    assert [in_cell(text).removeprefix("'") for text in whole] == whole
    assert all(in_cell(text)[:1] not in {*"=+-@\t\n"} for text in whole)
