"""The nineteen questions that analysts ask first, each by one query of the library, on a whole run with all events.

What the Python API answers as well is compared before anything is timed; a difference ends the bench.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from bench.cypher_queries import hits
from bench.harness import Bench, Session, Yardstick
from bench.neo4j_load import holding, needs, opened_run
from pag_graph import api
from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import local_inside
from pag_graph.cli.demo import SAMPLES
from pag_graph.cypher import load_query
from pag_graph.sinks.neo4j import loader
from pag_graph.sinks.neo4j.query import answer_query, complete
from pag_graph.sinks.provenance_walks import log_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import neo4j

    from pag_graph.graph.run import Run

Rows = list[dict[str, Any]]
_TOP = 20


class Question(NamedTuple):
    """What is asked, of which query, and what the Python API says to it."""

    text: str
    query: str
    parameters: Mapping[str, Any] = {}
    check: Callable[[Run, Rows, Mapping[str, Any]], bool] | None = None
    """Says whether the rows are what the API answers; None where it has no answer."""


def run(session: Session) -> None:
    """Load two runs where no home with them is given, and ask."""
    opened = opened_run(session)
    with holding(session, opened, "neo4j-questions") as driver:
        other_run = api.open(session.fixed("skewed.pag", _build)).run
        loader.load_run(other_run, driver)
        for question in questions(driver, opened, other_run):
            _ask(session, driver, opened, question)


def _build(path: Path) -> None:
    api.build(SAMPLES / "skewed", path, engine="local")


def _ask(session: Session, driver: neo4j.Driver, opened: Run, question: Question) -> None:
    query = load_query(question.query)
    run_parameter = {"run": str(opened.info.run["run_id"])} if "run" in query.params else {}
    values = complete(driver, query, {**run_parameter, **question.parameters})
    answer = answer_query(driver, query, values, plan="profile")
    assert answer.plan is not None
    if question.check is not None and not question.check(opened, answer.rows, values):
        message = f"{question.query} {values} differs from the Python API"
        raise AssertionError(message)
    figure = session.measure(
        question.text,
        lambda: answer_query(driver, query, values),
        against=Yardstick(name="RETURN 1", run=lambda: driver.execute_query("RETURN 1")),
        target="1 s",
        note=question.query,
    )
    as_python = "no answer there" if question.check is None else "equal"
    figure.values = {"rows": len(answer.rows), "touched": hits(answer.plan), "python": as_python}


def questions(driver: neo4j.Driver, opened: Run, other_run: Run) -> list[Question]:
    """Return the questions, about the slowest round where they are about one; two of them have the same answer."""
    window = opened.slowest()
    epoch = window.epoch
    rounds = _rounds(opened)
    middle = max(len(rounds) // 2 - _TOP // 2, 0)
    twenty = rounds[middle : middle + _TOP]
    slowest = answer_query(
        driver,
        load_query("root_cause/slowest_messages"),
        {"run": opened.info.run["run_id"], "epoch": epoch, "limit": 1},
    ).rows
    sent_ns = slowest[0]["sent_ns"] if slowest else window.end_ns
    name = opened.operators["name"][-1]
    in_epoch = {"epoch": epoch}
    return [
        Question(
            "blame over 20 epochs",
            "segments/waited_for_operators",
            {"first_epoch": twenty[0], "last_epoch": twenty[-1], "limit": 100_000},
            _blame,
        ),
        Question("chains over 5 hops", "segments/wait_chains", in_epoch),
        Question("whose message ends waits", "patterns/who_waits_for_whom", in_epoch, _who_waits),
        Question("an epoch against the one before", "epochs/difference", in_epoch, _difference),
        Question("provenance of a path", "provenance/log_rows", in_epoch, _log_rows),
        Question("paths that change worker", "epochs/path_switches", {"limit": _TOP}, _switches),
        Question(
            "two runs",
            "runs/run_difference",
            {"against": str(other_run.info.run["run_id"])},
            partial(_two_runs, other_run),
        ),
        Question("mutual waits", "patterns/mutual_waits", in_epoch, _mutual),
        Question("waits at once, and how many", "patterns/waits_at_once", {}, _waits_at_once),
        Question(
            "5 ms before the slowest message",
            "analyses/just_before",
            {"epoch": epoch, "at_ns": sent_ns, "back_ns": min(5_000_000, sent_ns), "limit": 100_000},
            _just_before,
        ),
        Question("shortest path", "provenance/shortest_path"),
        Question("trend of an operator", "runs/operator_trend", {"operator": name}),
        Question("critical share of waits", "segments/critical_waits"),
        Question("operators never on a path", "patterns/never_on_path"),
        Question("upstream of the blamed operator", "provenance/upstream"),
        Question("p95 by channel", "root_cause/channel_percentiles"),
        Question("worst epochs of all runs", "runs/worst_epochs", {"limit": _TOP}, _worst),
        Question("path as segments", "segments/path", in_epoch, _path),
    ]


def _two_runs(other_run: Run, opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    del values
    lengths = [sum(run.window(epoch=number).span_ns for number in _rounds(run)) for run in (other_run, opened)]
    return sum(row["difference_ns"] for row in rows) == lengths[1] - lengths[0]


def _rounds(opened: Run) -> list[int]:
    return opened.epochs.filter(pl.col("role") == "round")["epoch"].sort().to_list()


def _steps(opened: Run, epoch: int) -> Rows:
    rows: Rows = critical_path(opened.snapshot(opened.window(epoch=epoch))).steps.to_pylist()
    return rows


def _waits(opened: Run, epoch: int) -> Rows:
    rows: Rows = find_analysis("waits")(opened.snapshot(opened.window(epoch=epoch))).to_pylist()
    return rows


def _blame(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    """Sum the waits that ended in the rounds, by a message."""
    numbers = range(values["first_epoch"], values["last_epoch"] + 1)
    ended = 0
    for snapshot in opened.snapshots([opened.window(epoch=number) for number in numbers]):
        window = snapshot.window
        inside = (pl.col("end_ns") > window.start_ns) & (pl.col("end_ns") <= window.end_ns)
        waited = snapshot.local.filter(inside, pl.col("type") == "waiting")
        ended += int(waited.join(snapshot.enders.select("dst").unique(), on="dst")["duration_ns"].sum())
    return sum(row["waited_ns"] for row in rows) == ended


def _who_waits(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    names = ("worker", "from_worker", "type", "channel", "waits", "waiting_ns")
    expected = [{name: row[name] for name in names} for row in _waits(opened, values["epoch"])]
    return _counted(rows, names) == _counted(expected, names)


def _counted(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in names) for row in rows)


def _difference(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    previous_epoch = max(epoch for epoch in opened.epochs["epoch"] if epoch < values["epoch"])
    spans = [opened.window(epoch=epoch).span_ns for epoch in (previous_epoch, values["epoch"])]
    return sum(row["difference_ns"] for row in rows) == spans[1] - spans[0]


def _log_rows(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    return rows == log_rows(opened, values["epoch"]).to_dicts()


def _switches(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    del values
    return all(
        (row["switches"], row["steps"]) == (sum(step["worker"] != step["to_worker"] for step in steps), len(steps))
        for row in rows
        for steps in [_steps(opened, row["epoch"])]
    )


def _mutual(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    sums: Counter[tuple[int, int]] = Counter()
    for row in _waits(opened, values["epoch"]):
        if row["from_worker"] is not None:
            sums[row["worker"], row["from_worker"]] += row["waiting_ns"]
    pairs = {(a, b): (sums[a, b], sums[b, a]) for a, b in list(sums) if a < b and (b, a) in sums}
    return {(row["worker"], row["other"]): (row["waiting_ns"], row["other_waiting_ns"]) for row in rows} == pairs


def _waits_at_once(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    del values
    rounds = opened.epochs.filter(pl.col("role") == "round")
    spans_ns = int((rounds["end_ns"] - rounds["start_ns"]).sum())
    waiting_ns = int(rounds["waiting_ns"].sum())
    answered_ns = [sum(row["time_ns"] for row in rows), sum(row["time_ns"] * row["waiting"] for row in rows)]
    return answered_ns == [spans_ns, waiting_ns]


def _just_before(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    # No further back than the window of the epoch has been open.
    opens_ns = max(opened.window(epoch=values["epoch"]).start_ns, values["at_ns"] - values["back_ns"])
    part = opened.snapshot(opened.window(between=(opens_ns, values["at_ns"])))
    spent = local_inside(part).group_by("worker", "type").agg(pl.col("inside_ns").sum())
    expected_ns = {(worker, kind): ns for worker, kind, ns in spent.iter_rows() if ns}
    answered_ns: Counter[tuple[int, str]] = Counter()
    for row in rows:
        answered_ns[row["worker"], row["type"]] += row["spent_ns"]
    return +answered_ns == expected_ns


def _worst(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    del values
    run_rows = [row for row in rows if row["run"] == opened.info.run["run_id"]]
    return all(row["span_ns"] == opened.window(epoch=row["epoch"]).span_ns for row in run_rows)


def _path(opened: Run, rows: Rows, values: Mapping[str, Any]) -> bool:
    steps = _steps(opened, values["epoch"])
    path_ns: Counter[int] = Counter()
    for step in steps:
        if step["worker"] == step["to_worker"]:
            path_ns[step["worker"]] += step["duration_ns"]
    answered_ns: Counter[int] = Counter()
    for row in rows:
        answered_ns[row["worker"]] += row["duration_ns"]
    transfers = sum(step["duration_ns"] for step in steps if step["worker"] != step["to_worker"])
    return +answered_ns == +path_ns and sum(row["transfer_ns"] for row in rows) == transfers


BENCH = Bench(
    name="neo4j_questions",
    title="Nineteen questions in Neo4j",
    about=(
        "Each row is a question that analysts ask first, answered by one query of the library (the note), on all"
        " epochs of a run with the detail `full` and with a second run beside it. The embedded server is asked by"
        " its driver, after a warm-up. `touched` is what the server counts as accesses. `python` says whether the"
        " answer was compared with that of the Python API right before. Tests compare the other answers with what"
        " they compute from the store (`tests/integration/test_neo4j_library.py`, `test_neo4j_queries.py`). The"
        " run is the bundled `bfs`, or the one of the store that `PAG_BENCH_STORE` names; `PAG_BENCH_NEO4J_HOME`"
        " names a home that already holds it."
    ),
    run=run,
    needs=needs,
)
