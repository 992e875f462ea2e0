"""Answers beside the epochs of a loaded run in Neo4j: advice on windows, with what came of it, and rescalings.

Nothing leads from them to events. What is written again takes the place of what was there.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses.advising.advice_state import port_names
from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError
from pag_graph.neo4j_server import lease as leases
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.load_steps import prepare_schema
from pag_graph.sinks.neo4j.model import (
    ADVISED,
    AT,
    BOOTSTRAP_STEP,
    HAS_PHASE,
    HAS_STEP,
    MOVES,
    PHASE,
    PHASE_EPOCHS,
    RESCALING,
    TOOK_PART,
    TRIAL,
    TRIED,
)
from pag_graph.sinks.neo4j.query import plain_errors
from pag_graph.sinks.neo4j.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import neo4j

    from pag_graph.analyses.advise import Advice
    from pag_graph.analyses.advising.advice_state import AdviceState
    from pag_graph.analyses.rescaling.report import Rescaling
    from pag_graph.graph.run import Run
    from pag_graph.sinks.neo4j.model import NodeTable, RelationshipTable

    _Tables = list[tuple[NodeTable | RelationshipTable, pl.DataFrame]]

_BATCH_ROWS = 5_000


def write_advice(driver: neo4j.Driver, run: Run, advice: Advice, state: AdviceState | None = None) -> int:
    """Put advice beside the loaded epochs of its window.

    Parameters
    ----------
    driver
        Of the database.
    run
        The run that was asked about; some epoch of the window must be loaded.
    advice
        From `advise`.
    state
        What was tried: its trials that compared this run with others are written as well.

    Returns
    -------
    int
        Nodes that are there now: one per row of advice, and per port of a trial.

    Raises
    ------
    InvalidParameterError
        If no epoch of the window is loaded.
    Neo4jError
        If the server cannot be reached, refuses the login or refuses to write.
    """
    window, run_id = advice.window, _run_id(run)
    touches_window = (pl.col("end_ns") > window.start_ns) & (pl.col("start_ns") < window.end_ns)
    operator_rows = [
        {**row, "id": f"{window.start_ns}-{window.end_ns}:{row['rank']}:{row['operator']}"}
        for row in advice.table.to_pylist()
    ]
    ids = [row["id"] for row in operator_rows]
    nodes = _frame(
        ADVISED.columns, [{**row, "start_ns": window.start_ns, "end_ns": window.end_ns} for row in operator_rows]
    )
    trials, tried, runs = _trials(run, state, operator_rows)
    link = {
        "run": run_id,
        "epoch": run.epochs.filter(touches_window)["epoch"].to_list(),
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "id": ids,
    }
    with plain_errors(f"write advice on run {run_id}"):
        prepare_schema(driver)
        with leases.held(driver, run_id, lanes=1) as lease:
            writer = Writer(driver, lease)
            tables: _Tables = [
                (ADVISED, nodes),
                (AT, _frame(AT.all_columns, [row for row in operator_rows if row["operator"] is not None])),
                (MOVES, _frame(MOVES.all_columns, list(_moves(advice, operator_rows)))),
                (TRIAL, _frame(TRIAL.columns, trials)),
                (TRIED, _frame(TRIED.all_columns, tried)),
            ]
            writer.merge_all(tables, _BATCH_ROWS)
            if trials:
                writer.write(load_query("load/trials").text, {"run": run_id, **runs})
            snapshots = writer.write(load_query("load/advice").text, link)[0]["snapshots"]
    if not snapshots:
        message = f"No epoch of {window.name} is loaded, so the advice cannot be attached to one."
        raise InvalidParameterError(message, f"Load one: pag neo4j load {run.info.path}")
    return nodes.height + len(trials)


def write_rescalings(driver: neo4j.Driver, answer: Rescaling) -> int:
    """Put the rescalings of a run beside it; those that were there are replaced.

    Parameters
    ----------
    driver
        Of the database.
    answer
        From `rescale`; its run must be loaded, with no more than its summary.

    Returns
    -------
    int
        Nodes that are there now: operations, their phases and their steps.

    Raises
    ------
    Neo4jError
        If the server cannot be reached, refuses the login or refuses to write.
    """
    run, run_id = answer.run, _run_id(answer.run)
    phases, steps = answer.named("phases").to_pylist(), answer.named("steps").to_pylist()
    steps = [{**row, "number": number} for number, row in enumerate(steps)]
    part = {
        "ADDED": [(n, birth.worker) for n, course in _courses(answer) for birth in course.births],
        "REMOVED": [(n, exit_.worker) for n, course in _courses(answer) for exit_ in course.exits],
        "SERVED_BY": [(n, birth.by_worker) for n, course in _courses(answer) for birth in course.births],
    }
    bounds = list(_bounds(answer))
    tables: _Tables = [
        (RESCALING, _frame(RESCALING.columns, answer.table.to_pylist())),
        (PHASE, _frame(PHASE.columns, phases)),
        (BOOTSTRAP_STEP, _frame(BOOTSTRAP_STEP.columns, steps)),
        *(
            (
                table,
                _frame(table.all_columns, [{"operation": n, "worker": worker} for n, worker in set(part[table.type])]),
            )
            for table in TOOK_PART
        ),
        (HAS_PHASE, _frame(HAS_PHASE.all_columns, phases)),
        (HAS_STEP, _frame(HAS_STEP.all_columns, steps)),
        *(
            (table, _frame(table.all_columns, [row for kind, row in bounds if kind == table.type]))
            for table in PHASE_EPOCHS
        ),
    ]
    link = {
        "run": run_id,
        "operation": answer.table["operation"].to_pylist(),
        "commit": Reader(run).jobs()["id"][-1],
    }
    with plain_errors(f"write rescalings of run {run_id}"):
        prepare_schema(driver)
        with leases.held(driver, run_id, lanes=1) as lease:
            writer = Writer(driver, lease)
            for table in (RESCALING, PHASE, BOOTSTRAP_STEP):
                writer.remove(table.label, table.key, _BATCH_ROWS)
            writer.merge_all(tables, _BATCH_ROWS)
            writer.write(load_query("load/rescalings").text, link)
    return len(answer.courses) + len(phases) + len(steps)


def _run_id(run: Run) -> str:
    return str(run.info.run["run_id"])


def _frame(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return rows as a table with these columns."""
    return pl.DataFrame({name: [row[name] for row in rows] for name in columns}, strict=False)


def _moves(advice: Advice, operator_rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what each port takes along: per operator downstream of it, the utilisation on all threads together."""
    ports = advice.ports
    for row in operator_rows:
        operator = row["operator"]
        if operator is None:
            continue
        if ports.stacks is not None:
            yield {"id": row["id"], "operator": operator, "mu": sum(mu.likely for mu in ports.below[operator].values())}
            continue
        own_rows = ports.work.own.rows_by_key("operator", named=True)
        for moved_operator, shares in ports.shares[operator].items():
            spent = {
                row_of_thread["worker"]: row_of_thread["own_ns"] / ports.work.life[row_of_thread["worker"]]
                for row_of_thread in own_rows.get(moved_operator, ())
            }
            mu = sum(shares[worker].likely * part for worker, part in spent.items())
            if mu > 0:
                yield {"id": row["id"], "operator": moved_operator, "mu": mu}


def _trials(
    run: Run, state: AdviceState | None, operator_rows: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, list[Any]]]:
    """Return the ports of trials that this run took part in, the advice that each tried, and the runs compared."""
    nodes: list[dict[str, Any]] = []
    tried: list[dict[str, Any]] = []
    runs: dict[str, list[Any]] = {"id": [], "before": [], "after": [], "previous": []}
    names, run_id, previous = port_names(run), _run_id(run), None
    for trial in () if state is None else state.trials:
        if run_id not in (*trial["before"], *trial["after"]):
            continue
        for port in trial["ports"]:
            text = "\n".join((*trial["before"], "", *trial["after"], port["port"]))
            trial_id = hashlib.sha256(text.encode()).hexdigest()[:16]
            nodes.append({**port, "id": trial_id})
            tried += [
                {"trial": trial_id, "id": row["id"]}
                for row in operator_rows
                if row["operator"] in names and str(names[row["operator"]]) == port["port"]
            ]
            for name, value in (
                ("id", trial_id),
                ("before", list(trial["before"])),
                ("after", list(trial["after"])),
                ("previous", previous),
            ):
                runs[name].append(value)
            previous = trial_id
    return nodes, tried, runs


def _courses(answer: Rescaling) -> Iterator[tuple[int, Any]]:
    return ((number, course.operation) for number, course in enumerate(answer.courses))


def _bounds(answer: Rescaling) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the first and the last epoch of every phase that has any."""
    for row in answer.named("phases").to_pylist():
        places = answer.courses[row["operation"]].places(answer.epochs, row["phase"])
        if len(places):
            for kind, place in (("FIRST_EPOCH", places[0]), ("LAST_EPOCH", places[-1])):
                epoch = int(answer.epochs.epoch[place])
                yield kind, {"operation": row["operation"], "phase": row["phase"], "epoch": epoch}
