"""Runs in Neo4j: loaded once, whole or hidden, verbatim; the queries of the library agree with the engine."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, Any

import neo4j
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pag_graph import api
from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.cli.demo import SAMPLES
from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError, Neo4jError
from pag_graph.model.enums import LOCAL_TYPES, ActivityType, RuleSet
from pag_graph.model.units import duration
from pag_graph.neo4j_server import ports
from pag_graph.sinks.neo4j import events, loader, model, writer
from pag_graph.sinks.neo4j.detail import Detail, RunLabels
from pag_graph.sinks.neo4j.load_steps import prepare_schema
from pag_graph.sinks.neo4j.loader import LoadOptions, load_run, remove_run
from pag_graph.sinks.neo4j.query import answer_query, run_query
from pag_graph.store.maker import maker
from pag_graph.testing.traces import draw
from tests.integration.conftest import PROVE, keep_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.graph.run import Run
    from pag_graph.neo4j_server.server import ServerStatus

traffic = find_analysis("traffic")
waits = find_analysis("waits")

pytestmark = pytest.mark.neo4j


def build(trace: Path, store: Path, rules: RuleSet = RuleSet.TIMELY) -> Run:
    api.build(trace, store, engine="local", rules=rules)
    return api.open(store).run


@pytest.fixture(scope="module")
def bfs(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return build(SAMPLES / "bfs", tmp_path_factory.mktemp("loader") / "bfs.pag")


@pytest.fixture(scope="module")
def st2(first_rounds: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    # Of the same trace: there is one node for it, which says where it lies.
    trace = SAMPLES / "skewed" if PROVE else first_rounds.info.path.with_suffix(".trace")
    return build(trace, tmp_path_factory.mktemp("loader") / "st2.pag", RuleSet.ST2)


def ask(driver: neo4j.Driver, text: str, **values: Any) -> list[dict[str, Any]]:
    return [row.data() for row in driver.execute_query(text, values).records]


def contents(driver: neo4j.Driver) -> tuple[list[str], list[str]]:
    """Return everything in the database, sorted, without the server's own ids."""
    nodes = ask(driver, "MATCH (n) RETURN labels(n) AS label, properties(n) AS has")
    relationships = ask(
        driver,
        "MATCH (a)-[r]->(b) RETURN type(r) AS type, properties(r) AS has, labels(a) + labels(b) AS labels, "
        "[a.run, a.id, a.epoch, a.operator, b.run, b.id, b.epoch, b.operator] AS ends",
    )
    key = [str({**row, "has": sorted(row["has"].items())}) for row in nodes]
    between = [str({**row, "has": sorted(row["has"].items())}) for row in relationships]
    return sorted(key), sorted(between)


def ids(run: Run) -> str:
    return str(run.info.run["run_id"])


def expected_path(run: Run, epoch: int) -> list[dict[str, Any]]:
    steps = critical_path(run.snapshot(run.window(epoch=epoch))).steps.to_pylist()
    same = ("step", "type", "worker", "start_ns", "duration_ns", "operator")
    return [{"src": row["edge_src"], "dst": row["edge_dst"], **{name: row[name] for name in same}} for row in steps]


def test_queries_agree_with_the_engine_in_every_window(neo4j_driver: neo4j.Driver, first_rounds: Run) -> None:
    done = load_run(first_rounds, neo4j_driver)
    epochs = first_rounds.epochs["epoch"].to_list()
    assert list(done.epochs) == epochs
    critical: set[tuple[int, int]] = set()
    for epoch in epochs:
        here = {"run": ids(first_rounds), "epoch": epoch}
        path = run_query(neo4j_driver, "analyses/critical_path", here)
        assert path == expected_path(first_rounds, epoch)
        window = first_rounds.window(epoch=epoch)
        assert sum(row["duration_ns"] for row in path) == window.span_ns
        critical |= {(row["src"], row["dst"]) for row in path}
        assert run_query(neo4j_driver, "patterns/who_waits_for_whom", here) == [
            {name: row[name] for name in ("worker", "from_worker", "type", "channel", "waits", "waiting_ns")}
            for row in waits(first_rounds.snapshot(window)).to_pylist()
        ]
        columns = ("from_worker", "to_worker", "channel", "messages", "records")
        messages = run_query(neo4j_driver, "patterns/data_messages", here)
        assert [[row[name] for name in columns] for row in messages] == [
            [row[name] for name in columns]
            for row in traffic(first_rounds.snapshot(window)).to_pylist()
            if row["type"] == "data_message"
        ]
    marked = ask(neo4j_driver, "MATCH (a:Event)-[{critical: true}]->(b:Event) RETURN a.id AS a, b.id AS b")
    assert {(row["a"], row["b"]) for row in marked} == critical
    listed = run_query(neo4j_driver, "analyses/epochs", {"run": ids(first_rounds)})
    assert [(row["epoch"], row["span_ns"]) for row in listed] == [
        (epoch, first_rounds.window(epoch=epoch).span_ns) for epoch in epochs
    ]


def test_paths_of_long_rounds_agree_and_take_one_way_back(neo4j_driver: neo4j.Driver, bfs: Run) -> None:
    rounds = [bfs.slowest().epoch or 0, *bfs.epochs["epoch"][:2]]
    load_run(bfs, neo4j_driver, epochs=rounds)
    for epoch in rounds:
        here = {"run": ids(bfs), "epoch": epoch}
        expected = expected_path(bfs, epoch)
        assert run_query(neo4j_driver, "analyses/critical_path", here) == expected
    text = "PROFILE " + load_query("analyses/critical_path").text
    plan = neo4j_driver.execute_query(text, here).summary.profile
    assert plan is not None
    hits, rows = 0, {}
    stack = [plan]
    while stack:
        step = stack.pop()
        hits += step["args"]["DbHits"]
        rows[step["operatorType"].split("@")[0]] = step["args"]["Rows"]
        stack.extend(step.get("children", ()))
    assert rows["Repeat(Trail)"] == len(expected)
    assert rows["Expand(All)"] < 2 * len(expected)
    assert hits < 40 * len(expected)


def test_the_graph_is_the_stores(neo4j_driver: neo4j.Driver, first_rounds: Run) -> None:
    load_run(first_rounds, neo4j_driver, options=LoadOptions(batch_rows=100))
    vertices = first_rounds.scan("vertices").sort("id").collect()
    events = ask(neo4j_driver, "MATCH (e:Event) RETURN properties(e) AS has ORDER BY e.id")
    present = [{k: v for k, v in row.items() if v is not None} for row in vertices.to_dicts()]
    names = dict(first_rounds.operators.select("operator", "name").iter_rows())
    for row in present:
        if "operator" in row:
            row["operator_name"] = names[row["operator"]]
    assert [row["has"] for row in events] == [{"run": ids(first_rounds), **row} for row in present]
    edges = first_rounds.scan("edges").sort("src", "dst").collect()
    found = ask(
        neo4j_driver,
        "MATCH (a:Event)-[r]->(b:Event) RETURN a.id AS src, b.id AS dst, type(r) AS type, "
        "r {.*, critical: null, run: null} AS has "
        "ORDER BY src, dst",
    )
    got = [{**row["has"], "src": row["src"], "dst": row["dst"], "type": row["type"].lower()} for row in found]
    senders = edges.filter(~pl.col("type").is_in([str(kind) for kind in LOCAL_TYPES]))
    by_end = dict(senders.select("dst", "src").iter_rows())
    computed = [
        {"title": duration(row["duration_ns"])} | ({"ended_by": by_end[row["dst"]]} if row["type"] == "waiting" else {})
        for row in edges.to_dicts()
    ]
    assert [{k: v for k, v in row.items() if v is not None} for row in got] == [
        {k: v for k, v in row.items() if v is not None} | more
        for row, more in zip(edges.to_dicts(), computed, strict=True)
    ]


def test_a_run_keeps_what_it_is_called(neo4j_driver: neo4j.Driver, first_rounds: Run) -> None:
    labels = RunLabels(name="monday", tags=("nightly", "small"), program="skewed join")
    load_run(first_rounds, neo4j_driver, epochs=[1], options=LoadOptions(labels=labels))
    load_run(first_rounds, neo4j_driver, epochs=[2])
    (row,) = run_query(neo4j_driver, "runs/runs", {"tag": "nightly"})
    assert (row["name"], row["tags"], row["program"]) == ("monday", ["nightly", "small"], "skewed join")
    assert (row["run"], row["epochs"]) == (ids(first_rounds), 2)
    load_run(first_rounds, neo4j_driver, epochs=[2], options=LoadOptions(labels=RunLabels(name="tuesday", tags=())))
    assert run_query(neo4j_driver, "runs/runs", {"tag": "nightly"}) == []
    assert run_query(neo4j_driver, "runs/runs", {})[0]["name"] == "tuesday"


def test_nothing_counts_twice(neo4j_driver: neo4j.Driver, first_rounds: Run) -> None:
    """Every group of epochs shows what crosses its borders, too."""
    done = load_run(first_rounds, neo4j_driver, options=LoadOptions(group_edges=100))
    assert done.events == first_rounds.scan("vertices").collect().height
    assert done.relationships == first_rounds.scan("edges").collect().height
    (there,) = ask(neo4j_driver, "MATCH (s:Segment) RETURN count(s) AS segments")
    assert done.segments == there["segments"]
    marked = ask(neo4j_driver, "MATCH (:Event)-[a {critical: true}]->(:Event) RETURN count(a) AS critical")
    assert done.critical == marked[0]["critical"]


def test_what_an_earlier_release_loaded_is_loaded_again(neo4j_driver: neo4j.Driver, first_rounds: Run) -> None:
    load_run(first_rounds, neo4j_driver)
    expected = contents(neo4j_driver)
    earlier = (
        "MATCH (epoch:Epoch) REMOVE epoch.model, epoch.after_ns "
        "WITH count(*) AS epochs MATCH (event:Event) REMOVE event.operator_name "
        "WITH count(*) AS events MATCH (worker:Worker) REMOVE worker.peers "
        "WITH count(*) AS workers MATCH ()-[activity:DATA_MESSAGE|WAITING]->() REMOVE activity.run, activity.ended_by "
        "WITH count(*) AS activities MATCH ()-[spent:SPENT]->() DELETE spent"
    )
    neo4j_driver.execute_query(earlier)
    with pytest.raises(InvalidParameterError, match="an earlier release"):
        run_query(neo4j_driver, "patterns/data_messages", {"run": ids(first_rounds), "epoch": 2})
    assert load_run(first_rounds, neo4j_driver).skipped == ()
    assert contents(neo4j_driver) == expected


def test_around_the_events(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    load_run(skewed, neo4j_driver, epochs=[5, 3])
    load_run(skewed, neo4j_driver, epochs=[4])
    (run,) = ask(neo4j_driver, "MATCH (r:Run) RETURN properties(r) AS has")
    assert run["has"]["id"] == ids(skewed)
    assert run["has"]["origin_unix_ns"] == skewed.info.run["origin_unix_ns"]
    assert run["has"]["rules"] == "timely"
    chain = ask(neo4j_driver, "MATCH (:Run)-[:HAS_EPOCH]->(a:Epoch)-[:NEXT]->(b) RETURN a.epoch AS a, b.epoch AS b")
    assert sorted((row["a"], row["b"]) for row in chain) == [(3, 4), (4, 5)]
    workers = ask(neo4j_driver, "MATCH (w:Worker) RETURN w.worker AS worker ORDER BY worker")
    assert [row["worker"] for row in workers] == skewed.workers
    window = skewed.window(epoch=4)
    inside = (
        skewed.scan("vertices")
        .filter(pl.col("t_ns") > window.start_ns, pl.col("t_ns") <= window.end_ns)
        .group_by("worker")
        .agg(first=pl.col("id").min(), last=pl.col("id").max())
        .sort("worker")
        .collect()
    )
    ends = ask(
        neo4j_driver,
        "MATCH (p:Epoch {epoch: 4})-[f:FIRST]->(a), (p)-[l:LAST {worker: f.worker}]->(b) "
        "RETURN f.worker AS worker, a.id AS first, b.id AS last ORDER BY worker",
    )
    assert ends == inside.to_dicts()
    crowded = ask(neo4j_driver, "MATCH (:Event)--(n) WHERE n:Worker OR n:Operator OR n:Run RETURN n")
    assert not crowded
    channels = skewed.channels.drop_nulls(["source_operator", "target_operator"])
    fed = ask(
        neo4j_driver,
        "MATCH (a:Operator)-[c:FEEDS]->(b:Operator) RETURN c.channel AS channel, a.operator AS a, b.operator AS b "
        "ORDER BY channel",
    )
    assert [(row["channel"], row["a"], row["b"]) for row in fed] == [
        tuple(row) for row in channels.select("channel", "source_operator", "target_operator").sort("channel").rows()
    ]


def test_loading_twice_changes_nothing(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    first = load_run(skewed, neo4j_driver, epochs=[4], again=True)
    before = contents(neo4j_driver)
    again = load_run(skewed, neo4j_driver, epochs=[4], again=True, options=LoadOptions(batch_rows=7))
    assert contents(neo4j_driver) == before
    assert (again.events, again.relationships, again.critical) == (first.events, first.relationships, first.critical)
    assert first.critical == critical_path(skewed.snapshot(skewed.window(epoch=4))).steps.num_rows
    skipped = load_run(skewed, neo4j_driver, epochs=[4])
    assert (skipped.epochs, skipped.skipped, skipped.events) == ((), (4,), 0)


def test_loading_again_removes_what_is_there_twice(neo4j_driver: neo4j.Driver, first_rounds: Run) -> None:
    load_run(first_rounds, neo4j_driver)
    whole = contents(neo4j_driver)
    double = """
        MATCH (source)-[activity]->(target)
        WHERE type(activity) IN ['WAITING', 'DATA_MESSAGE', 'THEN', 'RELEASED', 'CONTAINS', 'NEXT', 'FIRST']
        WITH source, activity, target ORDER BY elementId(activity) LIMIT 1000
        CALL (source, activity, target) {
          CREATE (source)-[again:$(type(activity))]->(target)
          SET again = properties(activity)
        }"""
    neo4j_driver.execute_query(double)
    assert contents(neo4j_driver) != whole
    load_run(first_rounds, neo4j_driver, again=True)
    assert contents(neo4j_driver) == whole


def test_a_killed_load_shows_nothing_and_can_be_done_again(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    load_run(skewed, neo4j_driver, epochs=[5], again=True)
    whole = contents(neo4j_driver)
    neo4j_driver.execute_query("MATCH (n) DETACH DELETE n")
    here = {"run": ids(skewed), "epoch": 5}

    def kill(_: str, done: int, total: int) -> None:
        if done >= total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_run(skewed, neo4j_driver, epochs=[5], again=True, options=LoadOptions(batch_rows=20), progress=kill)
    assert ask(neo4j_driver, "MATCH (e:Event) RETURN count(*) > 0 AS some") == [{"some": True}]
    for name in ("analyses/critical_path", "patterns/who_waits_for_whom", "patterns/data_messages"):
        assert answer_query(neo4j_driver, load_query(name), here).rows == []
        with pytest.raises(InvalidParameterError, match=r"No epoch of run .* is loaded"):
            run_query(neo4j_driver, name, here)
    with pytest.raises(InvalidParameterError, match=r"No epoch of run .* is loaded"):
        run_query(neo4j_driver, "analyses/epochs", {"run": ids(skewed)})

    resumed = load_run(skewed, neo4j_driver, epochs=[5])
    assert resumed.epochs == (5,)
    assert contents(neo4j_driver) == whole


def test_a_reload_is_hidden_while_it_runs(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    load_run(skewed, neo4j_driver, epochs=[5], again=True)
    seen = []

    def look(_: str, done: int, total: int) -> None:
        state = ask(neo4j_driver, "MATCH (e:Epoch {epoch: 5}) RETURN e.published AS published")
        seen.append((done, total, state[0]["published"]))

    load_run(skewed, neo4j_driver, epochs=[5], again=True, options=LoadOptions(batch_rows=50), progress=look)
    assert len(seen) > 2
    # Whoever waits for the last report sees it published.
    assert not any(published for *_, published in seen[:-1])
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    assert seen[-1][0] == seen[-1][1]


def test_two_loads_at_once_leave_what_one_does(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    epochs = [2, 3, 4, 5]
    load_run(skewed, neo4j_driver, epochs=epochs)
    whole = contents(neo4j_driver)
    neo4j_driver.execute_query("MATCH (n) DETACH DELETE n")
    failed: list[BaseException] = []

    def load() -> None:
        try:
            load_run(
                api.open(skewed.info.path).run,
                neo4j_driver,
                epochs=epochs,
                again=True,
                options=LoadOptions(batch_rows=100),
            )
        except BaseException as error:  # noqa: BLE001  (shown by the assertion below)
            failed.append(error)

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert contents(neo4j_driver) == whole


def hostile_trace(trace: Path, names: list[str]) -> None:
    shutil.copytree(SAMPLES / "skewed", trace)
    operators = pq.read_table(trace / "operators.parquet")
    new = [names[row % len(names)] for row in range(operators.num_rows)]
    at = operators.column_names.index("name")
    pq.write_table(operators.set_column(at, operators.schema.field(at), pa.array(new)), trace / "operators.parquet")


def test_hostile_names_are_stored_as_they_are(neo4j_driver: neo4j.Driver, tmp_path: Path) -> None:
    names = [
        "'}) DETACH DELETE n //",
        'x"}) MATCH (n) DETACH DELETE n; //',
        "`]->() DELETE `$run",
        "\\u0027 OR 1=1",
        "Ünïcode 😀\n\ttab",
        "",
    ]
    hostile_trace(tmp_path / "trace", names)
    run = build(tmp_path / "trace", tmp_path / "store")
    load_run(run, neo4j_driver, epochs=[3], again=True)
    stored = ask(neo4j_driver, "MATCH (o:Operator) RETURN o.name AS name ORDER BY o.operator")
    assert [row["name"] for row in stored] == run.operators.sort("operator")["name"].to_list()
    assert set(names) <= {row["name"] for row in stored}
    assert run_query(neo4j_driver, "analyses/critical_path", {"run": ids(run), "epoch": 3}) == expected_path(run, 3)
    types = ask(neo4j_driver, "MATCH (:Event)-[r]->() RETURN DISTINCT type(r) AS type")
    assert {row["type"] for row in types} <= {kind.upper() for kind in ActivityType}


def test_what_is_no_text_is_refused_or_written_out(
    neo4j_driver: neo4j.Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command with bytes that are not UTF-8 in it made a store that could not be loaded."""
    monkeypatch.setattr("sys.argv", ["pag", "build", "--alerts", "a\udcff.toml"])
    maker.cache_clear()
    draw("0 start 1 | 4 stop 1 | 5 end").write(tmp_path / "trace")
    run = build(tmp_path / "trace", tmp_path / "run.pag")
    maker.cache_clear()
    for labels in (RunLabels(name="\udcff"), RunLabels(tags=("\udcff",)), RunLabels(program="\udcff")):
        with pytest.raises(InvalidParameterError, match=r"\? is not UTF-8"):
            load_run(run, neo4j_driver, options=LoadOptions(labels=labels))
    load_run(run, neo4j_driver)
    run_id = run.info.run["run_id"]
    (job,) = ask(neo4j_driver, "MATCH (job:Job {run: $run}) RETURN job.command AS command", run=run_id)
    assert job["command"] == r"pag build --alerts 'a\udcff.toml'"
    with pytest.raises(InvalidParameterError, match="is not UTF-8"):
        remove_run(neo4j_driver, "\udcff")
    with pytest.raises(InvalidParameterError, match="is not UTF-8"):
        answer_query(neo4j_driver, load_query("analyses/critical_path"), {"run": "\udcff", "epoch": 0})
    remove_run(neo4j_driver, run_id)


def test_runs_without_critical_paths_can_be_loaded(neo4j_driver: neo4j.Driver, st2: Run, skewed: Run) -> None:
    done = load_run(st2, neo4j_driver)
    assert done.critical == 0
    assert done.relationships == st2.scan("edges").collect().height
    assert len(run_query(neo4j_driver, "analyses/epochs", {"run": ids(st2)})) == st2.epochs.height
    epoch = int(st2.epochs["epoch"][3])
    assert run_query(neo4j_driver, "analyses/critical_path", {"run": ids(st2), "epoch": epoch}) == []
    # A second run beside it: same workers and events, other ids of the run.
    load_run(skewed, neo4j_driver, epochs=[3], again=True)
    assert run_query(neo4j_driver, "analyses/critical_path", {"run": ids(skewed), "epoch": 3}) == expected_path(
        skewed, 3
    )


def test_what_an_append_changed_is_loaded_anew(neo4j_driver: neo4j.Driver, tmp_path: Path) -> None:
    trace, store = tmp_path / "trace", tmp_path / "store"
    shutil.copytree(SAMPLES / "skewed", trace)
    if not PROVE:
        keep_epochs(trace, 4)
    early_last = 6 if PROVE else 2
    later = {}
    for file in sorted((trace / "events").glob("*.parquet")):
        rows = pq.read_table(file)
        later[file.with_name(f"{file.stem}1.parquet")] = rows.filter(pc.field("epoch") > early_last)
        pq.write_table(rows.filter(pc.field("epoch") <= early_last), file)
    meta = trace / "meta.json"
    whole = meta.read_text()
    meta.write_text(whole.replace('"complete": true', '"complete": false'))
    api.build(trace, store, engine="local")
    early = api.open(store).run
    load_run(early, neo4j_driver)
    early_epochs = early.epochs["epoch"].to_list()
    for file, rows in later.items():
        pq.write_table(rows, file)
    meta.write_text(whole)
    api.build(trace, store, engine="local", mode="append")
    run = api.open(store).run
    assert ids(run) == ids(early)

    one = load_run(run, neo4j_driver, epochs=[0], again=True)
    # The shutdown of the shorter run is gone, and so is whatever showed its events.
    assert early_epochs[-1] in one.unpublished
    listed = [row["epoch"] for row in run_query(neo4j_driver, "analyses/epochs", {"run": ids(run)})]
    assert listed == [epoch for epoch in early_epochs if epoch not in one.unpublished]
    rest = load_run(run, neo4j_driver)
    assert rest.skipped == tuple(listed)
    revised = ask(
        neo4j_driver,
        "MATCH (new:Snapshot {current: true})-[:WAS_REVISION_OF]->(old:Snapshot {current: false}) "
        "RETURN new.epoch AS epoch, old.epoch AS old, old.commit <> new.commit AS later",
    )
    assert {row["epoch"] for row in revised} >= {epoch for epoch in one.unpublished if epoch in early_epochs}
    assert all(row["epoch"] == row["old"] and row["later"] for row in revised)
    neo4j_driver.execute_query("MATCH (old:Snapshot {current: false}) DETACH DELETE old")
    grown = contents(neo4j_driver)
    for epoch in run.epochs["epoch"].to_list():
        here = {"run": ids(run), "epoch": epoch}
        assert run_query(neo4j_driver, "analyses/critical_path", here) == expected_path(run, epoch)
    neo4j_driver.execute_query("MATCH (n) DETACH DELETE n")
    load_run(run, neo4j_driver)
    assert contents(neo4j_driver) == grown


def test_a_run_is_removed_whole_and_alone(neo4j_driver: neo4j.Driver, st2: Run, first_rounds: Run) -> None:
    load_run(first_rounds, neo4j_driver, epochs=[2, 3])
    alone = contents(neo4j_driver)
    load_run(st2, neo4j_driver)
    assert remove_run(neo4j_driver, ids(st2)) > st2.scan("vertices").collect().height
    assert contents(neo4j_driver) == alone
    assert remove_run(neo4j_driver, ids(st2)) == 0
    remove_run(neo4j_driver, ids(first_rounds))
    assert contents(neo4j_driver) == ([], [])


def test_a_node_may_have_more_relationships_than_a_transaction_removes(
    neo4j_driver: neo4j.Driver, first_rounds: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that was followed for long, an operator did something in each of its epochs."""
    most_rows, most_relationships = 10, 6
    load_run(first_rounds, neo4j_driver, options=LoadOptions(detail=Detail.CRITICAL))
    degree = "MATCH (operator:Operator)-[spent:SPENT]-() RETURN operator, count(spent) AS spent ORDER BY spent DESC"
    assert ask(neo4j_driver, degree)[0]["spent"] > most_relationships
    removed: list[tuple[int, int]] = []

    def counted(transaction: Any, lease: Any, lane: int, statements: Any) -> list[dict[str, Any]]:
        lease.hold(transaction, lane)
        nodes = relationships = 0
        rows: list[dict[str, Any]] = []
        for text, values in statements:
            result = transaction.run(text, dict(values))
            rows = result.data()
            counters = result.consume().counters
            nodes, relationships = nodes + counters.nodes_deleted, relationships + counters.relationships_deleted
        removed.append((nodes, relationships))
        return rows

    monkeypatch.setattr(writer, "_run_all", counted)
    monkeypatch.setattr(writer, "REMOVED_TOGETHER", most_relationships)
    monkeypatch.setattr(loader, "BATCH_ROWS", most_rows)
    there = ask(neo4j_driver, "MATCH (node) WHERE NOT node:Lease RETURN count(node) AS nodes")[0]["nodes"]
    assert 0 < remove_run(neo4j_driver, ids(first_rounds)) < there
    assert contents(neo4j_driver) == ([], [])
    # What the last one removes describes the run itself: a handful.
    assert max(nodes for nodes, _ in removed) <= most_rows
    assert max(relationships for _, relationships in removed) <= most_relationships


def operators(driver: neo4j.Driver, text: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    """Profile a query; return its operators with what the server says of each."""
    with driver.session() as session, session.begin_transaction() as transaction:
        plan = transaction.run(f"PROFILE {text}", values).consume().profile
        transaction.rollback()
    found, stack = [], [plan]
    while stack:
        step = stack.pop()
        assert step is not None
        found.append((step["operatorType"].split("@")[0], step["args"].get("Details", "")))
        stack.extend(step.get("children", ()))
    return found


SCANS = {"AllNodesScan", "NodeByLabelScan", "PartitionedNodeByLabelScan", "UnionNodeByLabelsScan"}


def test_every_index_is_used_by_what_it_is_for(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    load_run(skewed, neo4j_driver, epochs=[3])
    run = {"run": ids(skewed)}
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "event_time": (events._READ_EVENTS, {"worker": 1, "low": 0, "high": 10**9}),
        "event_epoch": (load_query("load/retract_events").text, {"open_epoch": 4, "kept_events": [], "batch_rows": 1}),
        "segment_time": (
            (
                "MATCH (s:Segment {run: $run, worker: $worker}) WHERE s.start_ns <= $t RETURN s "
                "ORDER BY s.start_ns DESC LIMIT 1"
            ),
            {"worker": 1, "t": 10**6},
        ),
        "segment_round": ("MATCH (s:Segment {run: $run, round: $epoch}) RETURN s", {"epoch": 3}),
        "segment_epoch": ("MATCH (s:Segment {run: $run, epoch: $epoch}) RETURN s", {"epoch": 3}),
        "snapshot_epoch": ("MATCH (s:Snapshot {run: $run, epoch: $epoch}) RETURN s", {"epoch": 3}),
        "epoch_detail, epoch_trims": (load_query("load/details").text, {"latest": 1, "more": ["full"]}),
        **{
            f"{table.label} by key": (
                model.merge_nodes(table),
                {name: [] for name in table.columns},
            )
            for table in model.NODES
        },
        **{
            f"{table.type} by keys": (model.merge_relationships(table), {name: [] for name in table.all_columns})
            for table in (*model.ACTIVITIES.values(), model.THEN, model.RELEASED, model.CONTAINS_STEP)
        },
        **{
            f"remove {table.label}, {number}": (text, {"batch_rows": 1, "relationships": 1})
            for table in model.NODES
            for number, text in enumerate(model.remove_some(table.label, table.key))
        },
    }
    for what, (text, values) in asked.items():
        used = operators(neo4j_driver, text, {**run, **values})
        assert not SCANS & {name for name, _ in used}, what
        assert any("Index" in name for name, _ in used), what
    named = {row["name"] for row in ask(neo4j_driver, "SHOW INDEXES YIELD name, type WHERE type = 'RANGE' RETURN name")}
    assert {"event_time", "event_epoch", "segment_time", "segment_round", "segment_epoch", "snapshot_epoch"} <= named
    assert {"epoch_detail", "epoch_trims"} <= named
    assert all(row["state"] == "ONLINE" for row in ask(neo4j_driver, "SHOW INDEXES YIELD state RETURN state"))


def test_library_queries_cannot_write(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    load_run(skewed, neo4j_driver, epochs=[3], again=True)
    before = contents(neo4j_driver)
    values: dict[str, Any] = {"run": ids(skewed), "open_epoch": 0}
    with pytest.raises(Neo4jError, match="Could not run load/retract_epochs") as info:
        run_query(neo4j_driver, "load/retract_epochs", values)
    assert info.value.context["code"] == "Neo.ClientError.Statement.AccessMode"
    assert "only reads" in str(info.value)
    assert contents(neo4j_driver) == before


@pytest.mark.parametrize(
    ("name", "values", "match"),
    [
        ("analyses/critical_path", {"run": "x"}, "lacks epoch, number of the epoch"),
        ("analyses/critical_path", {"run": "x", "epoch": 1, "epock": 2}, "has no parameter epock"),
        ("analyses/nothing", {}, "there are .*analyses/critical_path"),
    ],
)
def test_parameters_are_checked(neo4j_driver: neo4j.Driver, name: str, values: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidParameterError, match=match):
        run_query(neo4j_driver, name, values)


def test_epochs_and_batches_are_checked_before_anything_is_written(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    with pytest.raises(InvalidParameterError, match="epoch 99"):
        load_run(skewed, neo4j_driver, epochs=[99], again=True)
    with pytest.raises(InvalidParameterError, match="at least 1"):
        load_run(skewed, neo4j_driver, epochs=[3], again=True, options=LoadOptions(batch_rows=0))
    assert contents(neo4j_driver) == ([], [])


def test_a_refused_login_is_said_in_plain_words(neo4j_server: ServerStatus, skewed: Run) -> None:
    assert neo4j_server.bolt_uri
    with neo4j.GraphDatabase.driver(neo4j_server.bolt_uri, auth=("neo4j", "wrong")) as driver:
        with pytest.raises(Neo4jError, match="refuses the user or the password") as info:
            load_run(skewed, driver, epochs=[3], again=True)
        assert info.value.hint
        with pytest.raises(Neo4jError, match="Could not run analyses/epochs"):
            run_query(driver, "analyses/epochs", {"run": "x"})


def test_a_server_that_is_not_there_is_said_in_plain_words(skewed: Run) -> None:
    port = ports.free_port(0)
    with (
        neo4j.GraphDatabase.driver(f"bolt://127.0.0.1:{port}", auth=("neo4j", "x")) as driver,
        pytest.raises(Neo4jError, match="does not answer") as info,
    ):
        load_run(skewed, driver, epochs=[3], again=True)
    assert "pag neo4j start" in str(info.value)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_schema_that_another_client_is_making_is_waited_for(neo4j_driver: neo4j.Driver, ending: str) -> None:
    """A client that is killed leaves the server at work: there is the index of a constraint, and not yet the latter."""
    prepare_schema(neo4j_driver)
    (create,) = (text for text in load_query("schema/constraints").statements if "trace_key" in text)
    neo4j_driver.execute_query("DROP CONSTRAINT trace_key")
    done = threading.Event()

    def prepare() -> None:
        prepare_schema(neo4j_driver)
        done.set()

    waiter = threading.Thread(target=prepare)
    with neo4j_driver.session() as session, session.begin_transaction() as transaction:
        transaction.run(create).consume()
        half = ask(neo4j_driver, "SHOW INDEXES YIELD name WHERE name = 'trace_key' RETURN name")
        assert half, "the server makes the constraint at once: this test shows nothing"
        waiter.start()
        assert not done.wait(0.3)
        getattr(transaction, ending)()
    waiter.join(60)
    assert done.is_set()
    assert ask(neo4j_driver, "SHOW CONSTRAINTS YIELD name WHERE name = 'trace_key' RETURN name")


@pytest.mark.parametrize("rules", [RuleSet.TIMELY, RuleSet.ST2])
def test_epochs_that_show_nothing_are_loaded(neo4j_driver: neo4j.Driver, tmp_path: Path, rules: RuleSet) -> None:
    """One without length where the log ends; of rules by which epochs are islands, also one of a single event."""
    run = build(
        draw("0 start 7 | 10 stop 7 | 20 end | 40 end | 40 end").write(tmp_path / "trace"), tmp_path / "s", rules
    )
    epochs = run.epochs["epoch"].to_list()
    for epoch in reversed(epochs):
        assert load_run(run, neo4j_driver, epochs=[epoch]).epochs == (epoch,)
    assert ask(neo4j_driver, "MATCH (e:Epoch {published: true}) RETURN e.epoch AS epoch ORDER BY epoch") == [
        {"epoch": epoch} for epoch in epochs
    ]
    touched = run.scan("edges").select("src", "dst").collect()
    events = ask(neo4j_driver, "MATCH (e:Event) RETURN e.id AS id")
    assert {row["id"] for row in events} == {*touched["src"], *touched["dst"]}
