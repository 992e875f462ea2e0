"""Motifs over committed runs: named patterns beside a plain look at the tables, plans, the command, paths."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph import api
from pag_graph.cli import motif as motif_command
from pag_graph.cli.demo import SAMPLES
from pag_graph.cli.motif import parse_epochs
from pag_graph.errors import InvalidParameterError, MotifSyntaxError
from pag_graph.graph.membership import epochs_between
from pag_graph.model.enums import LOCAL_TYPES
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import K_HOP_PATHS, PAG_EDGES, PAG_VERTICES
from pag_graph.motif.paths import MOST_HOPS
from pag_graph.motif.patterns import PATTERNS
from pag_graph.motif.shape import PAG_SHAPE
from pag_graph.motif.store import epochs_around
from tests.support.sampling import draw_some

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

LOCAL = [str(kind) for kind in LOCAL_TYPES]


@pytest.fixture(scope="module")
def pags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, api.Pag]:
    folder = tmp_path_factory.mktemp("motifs")
    for name in ("skewed", "bfs", "triangles"):
        api.build(SAMPLES / name, folder / name, engine="local")
    return {name: api.open(folder / name) for name in ("skewed", "bfs", "triangles")}


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> api.Pag:
    """Return a run of many files."""
    store = tmp_path_factory.mktemp("sliced") / "bfs.pag"
    api.build(SAMPLES / "bfs", store, engine="local", slice_events=5_000)
    return api.open(store)


# ------------------------------------------------------------------ what the planner takes for granted


@pytest.mark.parametrize("sample", ["skewed", "bfs", "triangles"])
def test_edges_tell_what_the_shape_says_of_their_ends(pags: dict[str, api.Pag], sample: str) -> None:
    pag = pags[sample]
    vertices, edges = pag.vertices().collect(), pag.edges().collect()
    assert not edges.select(PAG_SHAPE.edge_key).is_duplicated().any()
    for end, told in (
        ("src", {"t_ns": pl.col("start_ns"), "epoch_": pl.col("src_epoch")}),
        ("dst", {"t_ns": pl.col("start_ns") + pl.col("duration_ns"), "epoch_": pl.col("epoch")}),
    ):
        ends = vertices.select(pl.col("id").alias(end), at_ns="t_ns", label="epoch", on="worker")
        both = edges.join(ends, on=end, how="left")
        # Closed: every end of an edge is a vertex.
        assert both["at_ns"].null_count() == 0
        assert both.filter(told["t_ns"] != pl.col("at_ns")).is_empty()
        assert both.filter(told["epoch_"] != pl.col("label")).is_empty()
        assert both.filter(pl.col(end) // (1 << POSITION_BITS) != pl.col("on")).is_empty()


def test_only_files_of_the_epochs_are_read(sliced: api.Pag) -> None:
    run = sliced.run
    files = run.info.files("edges")
    assert len(files) > 4
    for epoch in (3, 11, 18):
        chosen = run.info.files("edges", epochs_between(epoch, epoch))
        assert 0 < len(chosen) < len(files)
        rows = pl.read_parquet(chosen).filter(pl.col("epoch") == epoch)
        assert rows.height == sliced.edges().filter(pl.col("epoch") == epoch).collect().height
        low, high = epochs_around(run, [epoch])
        ends = pl.concat([rows["src"], rows["dst"]]).unique().to_frame("id")
        near = sliced.vertices().filter(pl.col("epoch").is_between(low, high)).collect()
        assert ends.join(near, on="id", how="anti").is_empty()


@pytest.mark.parametrize("epochs", [[4], [3, 4, 5], [2, 9]])
def test_epochs_choose_edges_and_their_ends(sliced: api.Pag, epochs: list[int]) -> None:
    edges = sliced.edges().filter(pl.col("epoch").is_in(epochs)).collect()
    found = sliced.motif("()-[e]->()", epochs=epochs).frame()["e"].struct.unnest()
    assert found.sort("dst", "src", "type").equals(edges.sort("dst", "src", "type"))
    # A vertex that stands alone is any of the epochs' events, or the far end of an edge.
    own = sliced.vertices().filter(pl.col("epoch").is_in(epochs)).collect()["id"]
    expected = pl.concat([own, edges["src"], edges["dst"]]).unique().sort()
    assert sliced.motif("(a)", epochs=epochs, columns=["a.id"]).frame()["a"].struct["id"].sort().equals(expected)


# ------------------------------------------------------------------ named patterns, looked up by hand


def rows_of(pag: api.Pag, name: str, **parameters: int) -> list[tuple[Any, ...]]:
    shown = PATTERNS[name].shown
    found = pag.motif(name, columns=list(shown.values()), parameters=parameters).table().to_pylist()
    cells = [column.partition(".")[::2] for column in shown.values()]
    return sorted((tuple(row[element][column] for element, column in cells) for row in found), key=str)


def test_late_senders_are_waits_whose_message_was_sent_after_they_began(pags: dict[str, api.Pag]) -> None:
    for pag in pags.values():
        edges = pag.edges().collect().to_dicts()
        waits = {edge["dst"]: edge for edge in edges if edge["type"] == "waiting"}
        expected = sorted(
            (
                message["dst"] >> POSITION_BITS,
                message["src"] >> POSITION_BITS,
                waits[message["dst"]]["duration_ns"],
                message["start_ns"],
            )
            for message in edges
            if message["type"] not in LOCAL
            and message["dst"] in waits
            and message["start_ns"] - waits[message["dst"]]["start_ns"] >= 10_000
        )
        names = list(PATTERNS["late_sender"].shown)
        columns = [names.index(each) for each in ("worker", "from_worker", "waited_ns", "send_ns")]
        assert sorted(tuple(row[i] for i in columns) for row in rows_of(pag, "late_sender", min_ns=10_000)) == expected
        assert expected


def test_bursts_are_three_sends_with_nothing_in_between(pags: dict[str, api.Pag]) -> None:
    pag = pags["triangles"]
    edges = pag.edges().collect().to_dicts()
    sent: dict[int, list[Any]] = {}
    after: dict[int, Any] = {}
    for edge in edges:
        if edge["type"] == "data_message":
            sent.setdefault(edge["src"], []).append(edge)
        if edge["type"] in LOCAL:
            after[edge["src"]] = edge
    count = 0
    for first, messages in sent.items():
        gap1 = after.get(first)
        gap2 = after.get(gap1["dst"]) if gap1 and gap1["dst"] in sent else None
        if gap1 and gap2 and gap2["dst"] in sent and gap1["duration_ns"] + gap2["duration_ns"] <= 50_000:
            count += len(messages) * len(sent[gap1["dst"]]) * len(sent[gap2["dst"]])
    assert len(rows_of(pag, "message_burst", within_ns=50_000)) == count > 0


def test_chains_lead_over_three_workers(pags: dict[str, api.Pag]) -> None:
    found = rows_of(pags["skewed"], "wait_chain", gap_ns=10**10)
    vertices = {row["id"]: row for row in pags["skewed"].vertices().collect().to_dicts()}
    assert found
    for first, second, third, *_, sent_first, end1, sent_second, end2 in found:
        assert len({first, second, third}) == 3
        assert vertices[sent_second]["segment"] == end1
        assert vertices[sent_first]["t_ns"] <= vertices[end1]["t_ns"] <= vertices[sent_second]["t_ns"]
        assert vertices[end2]["worker"] == third
    # Without the gap the waits have to overlap, and in this run none do; what is asked without a word finds some.
    assert rows_of(pags["skewed"], "wait_chain", gap_ns=0) == []
    assert 0 < len(rows_of(pags["skewed"], "wait_chain")) < len(found)


def test_patterns_can_be_narrowed(pags: dict[str, api.Pag]) -> None:
    pag = pags["bfs"]
    narrowed = pag.motif("late_sender", "z.worker = 1 and wait.duration_ns > us(20)", parameters={"min_ns": 1})
    names = list(PATTERNS["late_sender"].shown)
    worker, waited = names.index("worker"), names.index("waited_ns")
    expected = [row for row in rows_of(pag, "late_sender") if row[worker] == 1 and row[waited] > 20_000]
    assert narrowed.total == len(expected) > 0


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=lambda pattern: pattern.name)
def test_pictures_are_drawn_by_the_code(pattern: Any, pags: dict[str, api.Pag]) -> None:
    from pathlib import Path

    from pag_graph.sinks.motif_svg import PICTURED, pattern_picture

    sample, parameters = PICTURED[pattern.name]
    file = f"motif-{pattern.name.replace('_', '-')}.svg"
    written = (Path(__file__).parents[2] / "docs" / "pictures" / file).read_text(encoding="utf-8")
    assert pattern_picture(pags[sample].run, pattern.name, parameters) == written, (
        "run: python -m pag_graph.sinks.motif_svg docs/pictures"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"pattern": "late_sender", "parameters": {"max_ns": 1}}, "has no parameter 'max_ns'; it has min_ns"),
        ({"pattern": "late_sender", "parameters": {"min_ns": 1.5}}, "must be a whole number"),
        ({"pattern": "(a)", "epochs": [99]}, "has no epoch 99"),
        ({"pattern": "(a)", "epochs": []}, "empty choice"),
        ({"pattern": "(a)", "columns": ["b.id"]}, "no column 'b.id'"),
        ({"pattern": "(a)", "columns": ["a.nothing"]}, "no column 'a.nothing'"),
        ({"pattern": "(a)", "limit": 0}, "at least 1"),
        ({"pattern": "late_sneder"}, "There is no pattern 'late_sneder'"),
    ],
)
def test_misuse_is_told(pags: dict[str, api.Pag], call: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        pags["bfs"].motif(**call)


# ------------------------------------------------------------------ the plan


def test_the_plan_says_what_is_expected_and_what_there_was(pags: dict[str, api.Pag]) -> None:
    query = pags["bfs"].motif("(a)-[w]->(z); (s)-[m]->(z)", "w.type = 'waiting' and s.kind = 'send' and a.worker = 0")
    text = query.explain()
    assert "estimated" in text
    assert "found" not in text
    text = query.explain(analyse=True)
    lines = text.splitlines()
    assert lines[0] == "motif (a)-[w]->(z); (s)-[m]->(z)"
    # The few waits come first; the worker is read off the edge, the kind of the sender is not.
    assert lines[1].startswith("1. scan (a)-[w]->(z)  [rows: estimated ")
    assert lines[2:4] == ["     only type = 'waiting'", "     only (src >> 40) = 0"]
    assert "look up vertex s: kind = 'send'" in text
    assert lines[-1] == f"answer: a, w, z, s, m  [rows: found {query.frame().height:,}]"
    waits = pags["bfs"].edges().filter(pl.col("type") == "waiting", pl.col("src") < 1 << POSITION_BITS)
    assert f"found {waits.collect().height:,}]" in lines[1]


def test_vertices_are_not_read_where_nothing_is_asked_of_them(pags: dict[str, api.Pag]) -> None:
    query = pags["bfs"].motif("(a)-[e]->(b)", "a.worker != b.worker and b.t_ns > ms(1)", columns=["a.id", "e.type"])
    assert query.plan.vertices_at_end == ()
    assert "look up" not in query.explain()
    assert query.table().schema.names == ["a", "e"]
    assert set(query.plan.edge_columns) == {"src", "dst", "type", "start_ns", "duration_ns"}


def test_the_answer_has_the_declared_columns(pags: dict[str, api.Pag]) -> None:
    table = pags["triangles"].motif("(a)-[e]->(b)", "e.type = 'data_message'", limit=3).table()
    for name, schema in (("a", PAG_VERTICES), ("e", PAG_EDGES), ("b", PAG_VERTICES)):
        own = [(field.name, field.type, field.nullable) for field in table.schema.field(name).type]
        assert own == [(field.name, field.type, field.nullable) for field in schema]


# ------------------------------------------------------------------ paths of k hops


@pytest.mark.parametrize("sample", ["skewed", "bfs", "triangles"])
def test_paths_are_as_many_as_the_walks_that_k_hops_counts(pags: dict[str, api.Pag], sample: str) -> None:
    pag = pags[sample]
    edges = {(e["src"], e["dst"], e["type"]) for e in pag.edges().select("src", "dst", "type").collect().to_dicts()}
    for epoch in pag.epochs["epoch"].to_list()[:3]:
        for k in (1, 2, 4):
            for through_waits in (True, False):
                counted = pag.k_hops(k=k, through_waits=through_waits, epoch=epoch).to_pylist()
                walks = [row for row in counted if row["hop"] == k]
                found = pag.k_hop_paths(k, limit=10**6, through_waits=through_waits, epoch=epoch)
                assert found.total == found.shown == sum(row["walks"] for row in walks)
                assert found.paths.schema.equals(K_HOP_PATHS)
                rows = found.paths.to_pylist()
                # By type, hop k has as many edges as there are walks that begin with such an edge.
                last = [row["type"] for row in rows if row["hop"] == k]
                assert {name: last.count(name) for name in set(last)} == {
                    name: sum(row["walks"] for row in walks if row["type"] == name)
                    for name in {row["type"] for row in walks}
                }
                for one, following in pairwise(rows):
                    if following["hop"] > 1:
                        assert (following["path"], following["dst"]) == (one["path"], one["src"])
                assert all((row["src"], row["dst"], row["type"]) in edges for row in rows)
                paths = [
                    tuple((r["src"], r["dst"], r["type"]) for r in rows[i : i + k]) for i in range(0, len(rows), k)
                ]
                assert len(set(paths)) == len(paths)


def test_a_limit_is_stated(pags: dict[str, api.Pag]) -> None:
    everything = pags["bfs"].k_hop_paths(3, limit=10**6)
    some = pags["bfs"].k_hop_paths(3, limit=5)
    assert (some.shown, some.total, some.cut) == (5, everything.total, everything.total - 5)
    assert str(some) == f"5 of {some.total:,} paths of 3 hops; {some.cut:,} are cut off by the limit of 5"
    assert some.paths.to_pylist() == everything.paths.to_pylist()[:15]
    for k, limit in ((0, 5), (MOST_HOPS + 1, 5), (2, 0)):
        with pytest.raises(InvalidParameterError):
            pags["bfs"].k_hop_paths(k, limit=limit)


# ------------------------------------------------------------------ Spark


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    from pag_graph.engines.session import spark_session

    # The session is shared with other modules, and ends with the process.
    return spark_session(master="local[2]", quick=True)


@pytest.mark.spark
def test_spark_gives_the_same_answers_over_a_store(sliced: api.Pag, spark: SparkSession) -> None:
    patterns = (("late_receiver", None), ("ping_pong", [3, 4]), ("idle_beside_backlog", [0, 1, 2, 3]))
    for name, epochs in draw_some(patterns, 1):
        here = sliced.motif(name, epochs=epochs)
        there = sliced.motif(name, epochs=epochs, spark=spark)
        expected, found = here.table(), there.table()
        assert found.schema == expected.schema
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
        assert expected.num_rows
        here.limit = there.limit = 2
        assert there.table().to_pylist() == here.table().to_pylist()
    text = there.explain(analyse=True)
    assert f"[rows: found {there.total:,}]" in text.splitlines()[-1]


@pytest.mark.spark
def test_spark_shows_the_same_first_matches_of_few_columns(pags: dict[str, api.Pag], spark: SparkSession) -> None:
    columns = ["wait.duration_ns", "z.id"]
    question: dict[str, Any] = {"columns": columns, "limit": 3}
    here = pags["skewed"].motif("late_sender", **question)
    there = pags["skewed"].motif("late_sender", **question, spark=spark)
    assert there.table().to_pylist() == here.table().to_pylist()
    assert there.total == here.total > 3


@pytest.mark.spark
def test_spark_lists_the_same_paths(sliced: api.Pag, spark: SparkSession) -> None:
    here = sliced.k_hop_paths(3, limit=20, epoch=4)
    there = sliced.k_hop_paths(3, limit=20, epoch=4, spark=spark)
    assert there.total == here.total > 0
    assert there.paths.equals(here.paths)


# ------------------------------------------------------------------ the command


@pytest.fixture
def store(pags: dict[str, api.Pag]) -> Path:
    return pags["bfs"].run.info.path


def test_the_command_lists_paths(run_pag: Callable[..., Any], store: Path, pags: dict[str, api.Pag]) -> None:
    expected = pags["bfs"].k_hop_paths(2, limit=3, epoch=4)
    code, text, _ = run_pag("k-hop-paths", store, "-k", 2, "-n", 3, "--epoch", 4, "--format", "json")
    facts = json.loads(text)
    assert (code, facts["paths"], facts["shown"]) == (0, expected.total, 3)
    assert facts["rows"] == expected.paths.to_pylist()
    code, text, _ = run_pag("k-hop-paths", store, "-k", 2, "-n", 3, "--epoch", 4)
    assert (code, str(expected) in text) == (0, True)
    code, text, _ = run_pag("k-hop-paths", store, "--causes-only", "--epoch", 4, "--format", "csv")
    assert code == 0
    assert "waiting" not in text
    code, _, _ = run_pag("k-hop-paths", store, "-k", motif_command.MOST_HOPS + 1)
    assert code == 2
    assert motif_command.MOST_HOPS == MOST_HOPS


def test_the_command_prints_matches(run_pag: Callable[..., Any], store: Path, pags: dict[str, api.Pag]) -> None:
    expected = rows_of(pags["bfs"], "late_receiver")
    code, text, _ = run_pag("motif", "late_receiver", store, "--format", "csv")
    assert code == 0
    header, *lines = text.splitlines()
    assert header.split(",") == list(PATTERNS["late_receiver"].shown)
    assert len(lines) == len(expected)
    code, text, _ = run_pag("motif", "late_receiver", store, "--format", "json", "--limit", 2)
    facts = json.loads(text)
    assert (facts["pattern"], facts["matches"], facts["shown"], len(facts["rows"])) == (
        "late_receiver",
        len(expected),
        2,
        2,
    )
    code, text, _ = run_pag("motif", "late_receiver", store, "--limit", 2)
    assert text.startswith(f"late_receiver: {len(expected)} matches, 2 shown (--limit)")
    code, text, _ = run_pag("motif", "late_receiver", store, "--set", "min_ns=1000000000")
    assert (code, text) == (0, "No match.\n")


def test_the_command_takes_any_motif(run_pag: Callable[..., Any], store: Path) -> None:
    motif = "(a)-[w]->(z); (s)-[m]->(z)"
    given = (
        motif,
        store,
        "--epochs",
        "3-5,7",
        "--where",
        "w.type = $kind and m.type != $kind",
        "--set",
        "kind=waiting",
    )
    code, text, _ = run_pag("motif", *given, "--columns", "z.id, w.duration_ns", "--format", "csv")
    assert code == 0
    assert text.splitlines()[0] == "z.id,w.duration_ns"
    code, table, _ = run_pag("motif", *given)
    assert f"{motif}: {len(text.splitlines()) - 1} matches" in table
    code, plan, _ = run_pag("motif", *given, "--explain")
    assert plan.startswith(f"motif {motif}\n1. scan (a)-[w]->(z)  [rows: estimated")
    code, listed, _ = run_pag("motif", "--format", "json")
    assert [row["name"] for row in json.loads(listed)] == list(PATTERNS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("late_sneder", "STORE"), "There is no pattern 'late_sneder'; there are wait_ended_by_data"),
        (("(a)-[e->(b)", "STORE"), "(a)-[e->(b)\n        ^"),
        (("(a)-[e]->(b)", "STORE", "--where", "e.typ = 'x'"), "Did you mean e.type?"),
        (("(a)", "STORE", "--epochs", "7-3"), "names no epochs"),
        (("(a)", "STORE", "--epochs", "0-99999999999"), "more than a million epochs"),
        (("(a)", "STORE", "--set", "x"), "not of the form NAME=VALUE"),
        (("(a)", "STORE", "--set", "x=[1]"), "a parameter is a number, a text"),
        (("(a)",), "needs a store"),
    ],
)
def test_the_command_refuses(run_pag: Callable[..., Any], store: Path, arguments: tuple[str, ...], said: str) -> None:
    code, _, error = run_pag("motif", *(str(store) if word == "STORE" else word for word in arguments))
    assert code == 2
    assert said in error


def test_epochs_are_numbers_and_ranges() -> None:
    assert parse_epochs("4") == [4]
    assert parse_epochs(" 1, 3-5 ") == [1, 3, 4, 5]
    assert parse_epochs(None) is None
    for text in ("", "a", "3-", "-3", "1,,2", "5-4"):
        with pytest.raises(InvalidParameterError):
            parse_epochs(text)


def test_syntax_errors_are_misuse() -> None:
    assert issubclass(MotifSyntaxError, InvalidParameterError)
