"""Answers over epochs that are loaded in part: equal where a lesser detail is enough, and never silently partial."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import neo4j
import pytest

from pag_graph.cypher import load_query, queries_for_people
from pag_graph.errors import InvalidParameterError
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.loader import LoadOptions, load_run
from pag_graph.sinks.neo4j.query import PartialAnswerWarning, answer_query, complete, run_query
from tests.support.sampling import draw_some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pag_graph.graph.run import Run
    from pag_graph.neo4j_server.server import ServerStatus
    from tests.integration.conftest import Database

pytestmark = pytest.mark.neo4j

# Queries that have the same answer whatever the detail, with parameters that make them find something.
FROM_WAITS: dict[str, list[dict[str, Any]]] = {
    "patterns/who_waits_for_whom": [{}],
    "patterns/fan_in_waits": [{}],
    "root_cause/slowest_messages": [{"limit": 100_000}, {"limit": 3}],
    "analyses/path_profile": [{"by": by} for by in ("type", "operator", "worker", "pair")],
    "epochs/difference": [{}, {"against": 3}],
    "epochs/new_on_path": [{"rounds": 1}],
    "patterns/late_sender": [{"limit": 100_000}],
    "patterns/wait_ended_by_data": [{"limit": 100_000}],
    "patterns/wait_chain": [{"limit": 100_000}],
    "patterns/on_every_path": [{"share": 0.1}],
}


def ids(run: Run) -> str:
    return str(run.info.run["run_id"])


def answers(driver: neo4j.Driver, run: Run) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Ask all of `FROM_WAITS`, those about an epoch about each."""
    asked: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for name, cases in FROM_WAITS.items():
        query = load_query(name)
        for number, case in enumerate(cases):
            for epoch in run.epochs["epoch"].to_list() if "epoch" in query.params else [None]:
                values = {"run": ids(run), **case, **({} if epoch is None else {"epoch": epoch})}
                asked[name, number, epoch] = answer_query(driver, query, values).rows
    return asked


@pytest.fixture(scope="module")
def runs(bundled_runs: dict[str, Run]) -> dict[str, Run]:
    return {name: bundled_runs[name] for name in ("skewed", "bfs")}


@pytest.fixture(scope="module")
def loads(
    neo4j_database: Database, bundled_runs: dict[str, Run], runs: dict[str, Run]
) -> Iterator[tuple[neo4j.Driver, Mapping[tuple[str, Detail], dict[tuple[Any, ...], list[dict[str, Any]]]]]]:
    """Ask with all epochs at each detail; then load `waits`, and one epoch of `skewed` with all events."""
    driver = neo4j_database.driver
    neo4j_database.load_bundled(bundled_runs)
    asked = {(name, Detail.FULL): answers(driver, run) for name, run in runs.items()}
    neo4j_database.wipe()
    for name, run in runs.items():
        load_run(run, driver, options=LoadOptions(detail=Detail.WAITS))
        asked[name, Detail.WAITS] = answers(driver, run)
    load_run(runs["skewed"], driver, epochs=[4], options=LoadOptions(detail=Detail.FULL))
    yield driver, asked
    neo4j_database.wipe()


@pytest.fixture
def driver(loads: tuple[neo4j.Driver, Any]) -> neo4j.Driver:
    return loads[0]


def test_an_answer_over_the_run_is_partial_only_with_a_word(driver: neo4j.Driver, runs: dict[str, Run]) -> None:
    run = runs["skewed"]
    store = str(run.info.path.absolute())
    # All waits are there, whatever the detail; of messages, those of one epoch.
    assert len(run_query(driver, "patterns/late_sender", {"run": ids(run)})) == 62
    with pytest.warns(PartialAnswerWarning, match=r"Looked at epoch 4; left out epochs 0 to 3, 5 to 10") as warned:
        run_query(driver, "patterns/fan_in", {"run": ids(run), "limit": 10**6})
    assert f"pag neo4j load {store} --detail full" in str(warned[0].message)
    with pytest.warns(PartialAnswerWarning, match=r"may be more than these 10 rows"):
        assert len(run_query(driver, "segments/wait_chains", {"run": ids(runs["bfs"]), "epoch": 4})) == 10
    answer = answer_query(driver, load_query("patterns/fan_in"), {"run": ids(run), "limit": 10**6})
    assert answer.coverage is not None
    assert answer.coverage.covered == (4,)
    assert dict(answer.coverage.skipped) == dict.fromkeys([0, 1, 2, 3, 5, 6, 7, 8, 9, 10], "waits")
    assert answer.limit is None


def test_what_cannot_be_answered_says_which_load_to_run(driver: neo4j.Driver, runs: dict[str, Run]) -> None:
    run = runs["bfs"]
    store = str(run.info.path.absolute())
    window = run.slowest()
    at_ns = (window.start_ns + window.end_ns) // 2
    needy = [query for query in queries_for_people() if query.details and "run" in query.params]
    assert len(needy) > 20
    for query in draw_some(needy, 12):
        given = {"run": ids(run), "worker": 0, "at_ns": at_ns}
        values = {name: value for name, value in given.items() if name in query.params}
        with pytest.raises(InvalidParameterError) as refused:
            complete(driver, query, values)
        assert f"pag neo4j load {store}" in str(refused.value.hint), query.name
        assert f"--detail {query.details[0]}" in str(refused.value.hint), query.name
        if "epoch" in query.params:
            values["epoch"] = window.epoch
        with pytest.raises(InvalidParameterError):
            run_query(driver, query.name, values)


def test_the_command_says_what_it_left_out(
    driver: neo4j.Driver, runs: dict[str, Run], neo4j_server: ServerStatus, run_pag: Callable[..., tuple[int, str, str]]
) -> None:
    del driver
    words = ("neo4j", "query", "message_burst", "--run", ids(runs["skewed"]), "--within_ns", 10**9)
    home = ("--home", neo4j_server.home)
    said = "Looked at epoch 4; left out epochs 0 to 3, 5 to 10 (loaded with waits, needs full)."
    code, out, error = run_pag(*words, *home)
    assert code == 0
    assert said in " ".join(out.split())
    code, out, error = run_pag(*words, *home, "--format", "json")
    assert isinstance(json.loads(out), list)
    assert said in " ".join(error.split())
    code, out, error = run_pag(*words, *home, "--format", "csv")
    assert out.splitlines()[0].startswith("worker,")
    assert said in " ".join(error.split())
    code, _, error = run_pag("neo4j", "query", "held_up_by", "--run", ids(runs["bfs"]), *home)
    assert code == 2
    assert str(runs["bfs"].info.path) in "".join(error.split())
    code, out, _ = run_pag("neo4j", "query", "late_sender", "--run", ids(runs["skewed"]), "--limit", 7, *home)
    assert "There may be more than these 7 rows" in " ".join(out.split())


def test_epochs_that_were_never_loaded_are_missed(
    driver: neo4j.Driver, runs: dict[str, Run], loads: tuple[Any, Any]
) -> None:
    """Hide an epoch: it is as if it had not been loaded."""
    del loads
    run = runs["bfs"]
    hide = "MATCH (epoch:Epoch {run: $run, epoch: 3}) SET epoch.published = $shown"
    driver.execute_query(hide, {"run": ids(run), "shown": False})
    try:
        with pytest.warns(
            PartialAnswerWarning, match=r"left out epoch 3 \(not loaded\)\. Load the rest: .* --epoch 3`"
        ):
            run_query(driver, "epochs/trend", {"run": ids(run)})
        with pytest.warns(PartialAnswerWarning, match="left out epoch 3"):
            run_query(driver, "epochs/new_on_path", {"run": ids(run), "epoch": 4})
        with pytest.raises(InvalidParameterError, match=r"Epoch 3 of run .* is not loaded"):
            run_query(driver, "epochs/difference", {"run": ids(run), "epoch": 4})
    finally:
        driver.execute_query(hide, {"run": ids(run), "shown": True})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_query(driver, "epochs/trend", {"run": ids(run)})


def test_browser_has_nothing_to_warn_of(driver: neo4j.Driver, neo4j_server: ServerStatus) -> None:
    """Whatever is loaded: each name in a query is known to the server, which minds no query's form."""
    del driver
    assert neo4j_server.bolt_uri
    password = neo4j_server.password_file.read_text(encoding="utf-8").strip()
    told = []
    unheard_of = "EXPLAIN MATCH (run:Run)-[:NEVER_HEARD_OF]->() RETURN run"
    with neo4j.GraphDatabase.driver(neo4j_server.bolt_uri, auth=(neo4j_server.user, password)) as talkative:
        for query in draw_some(queries_for_people(), 12):
            of_kind = {"boolean": True, "string": "x"}
            values = {
                name: {"run": "x", "by": "type"}.get(name, of_kind.get(each.kind or "", 1))
                for name, each in query.params.items()
            }
            summary = talkative.execute_query(f"EXPLAIN {query.text}", values, routing_="r").summary
            told += [
                (query.name, each.status_description) for each in summary.gql_status_objects if each.is_notification
            ]
        control = talkative.execute_query(unheard_of, routing_="r").summary
    assert any(each.is_notification for each in control.gql_status_objects), "nothing would have been told"
    assert not told


@pytest.mark.parametrize("sample", ["bfs", "skewed"])
def test_waits_are_enough_for_the_whole_answer(
    loads: tuple[neo4j.Driver, Mapping[tuple[str, Detail], Any]], sample: str
) -> None:
    """Row by row, what is asked of waits is what is asked of all events; the engine is compared with elsewhere."""
    _, asked = loads
    whole = asked[sample, Detail.FULL]
    assert whole == asked[sample, Detail.WAITS]
    found = {name for (name, _, _), rows in whole.items() if rows}
    assert found >= FROM_WAITS.keys() - (
        {"patterns/wait_chain"} if sample == "bfs" else {"patterns/wait_ended_by_data"}
    )
