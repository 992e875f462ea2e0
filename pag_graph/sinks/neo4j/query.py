"""Queries of the library, run on a server that cannot be changed by them."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pag_graph.cypher import Over, load_query
from pag_graph.errors import InvalidParameterError, Neo4jError
from pag_graph.model.units import printable, short
from pag_graph.sinks.neo4j.coverage import covers, load_command, read_coverage
from pag_graph.sinks.neo4j.loaded import read_loaded
from pag_graph.sinks.neo4j.settled import read_settled, run_states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import neo4j

    from pag_graph.cypher import Query
    from pag_graph.sinks.neo4j.coverage import Coverage
    from pag_graph.sinks.neo4j.loaded import LoadedRun

_T = TypeVar("_T")

_LATEST_RUN = """\
MATCH (run:Run)-[:HAS_EPOCH]->(:Epoch {published: true})
RETURN DISTINCT run.id AS run, run.origin_unix_ns AS origin_unix_ns
ORDER BY origin_unix_ns DESC, run
LIMIT 1
"""


_LETTERS = 80
"""Of a text in an error."""
_FULL = (
    "Most likely the disk of the server is full (`pag neo4j logs`). Free space there and start it again: "
    "`pag neo4j stop`, `pag neo4j start`. Then load again; what is there is not lost."
)


_MIXED = (
    "A load changed the run whenever this was asked, so that some rows may be of the state before. Ask again when it"
    " has ended, or about fewer epochs."
)


class PartialAnswerWarning(UserWarning):
    """Given when an answer leaves out epochs that are not loaded or rows beyond its limit, or may be of two states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server said to a query."""

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    """The rows, by column; empty when only the plan was asked for."""
    plan: dict[str, Any] | None = None
    """How the server would answer, or did, where asked for: the driver's tree of operators."""
    coverage: Coverage | None = None
    """Which epochs it looked at, and which it left out; none for a query that is not about a run."""
    limit: int | None = None
    """How many rows it was limited to, if there are so many and may be more."""
    mixed: bool = False
    """Whether loads went on whenever it was asked, so that rows may be partly of the state before."""

    def lines(self) -> list[str]:
        """Return what has to be known beside the rows: what was left out, and whether they may be mixed."""
        left_out = self.coverage.line() if self.coverage is not None else None
        return [line for line in (left_out, _MIXED if self.mixed else None) if line]


def run_query(driver: neo4j.Driver, name: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run a query of the library in read access mode: the server refuses to write.

    Parameters
    ----------
    driver
        From `pag_graph.neo4j_server.server.driver`, or one's own.
    name
        Out of `pag_graph.cypher.list_queries`, such as ``analyses/critical_path``.
    parameters
        A value for each parameter that the query declares; those with a default may be absent.

    Returns
    -------
    list of dict
        The rows, by column.

    Raises
    ------
    InvalidParameterError
        If there is no such query, or if parameters are missing, unknown or of another type; if nothing is loaded that
        the query could look at.
    Neo4jError
        If the server cannot be reached, or refuses the query.

    Warns
    -----
    PartialAnswerWarning
        If epochs were left out because they are not loaded, or loaded with less detail than the query needs; if there
        may be more rows than the query returns where it is not told otherwise; if a load changed the run whenever it
        was asked.
    """
    answer = answer_query(driver, load_query(name), parameters)
    if answer.coverage is not None:
        answer.coverage.check()
    for line in answer.lines():
        warnings.warn(f"{name}: {line}", PartialAnswerWarning, stacklevel=2)
    if answer.limit is not None and "limit" not in parameters:
        message = f"{name}: there may be more than these {answer.limit:,} rows; give a limit."
        warnings.warn(message, PartialAnswerWarning, stacklevel=2)
    return answer.rows


def answer_query(
    driver: neo4j.Driver,
    query: Query,
    parameters: Mapping[str, Any],
    *,
    plan: Literal["explain", "profile"] | None = None,
) -> Answer:
    """Run a query in read access mode, or ask how the server would.

    Parameters
    ----------
    driver
        From `pag_graph.neo4j_server.server.driver`, or one's own.
    query
        From `pag_graph.cypher.load_query` or `find_query`.
    parameters
        As for `run_query`; `complete` adds run and epoch.
    plan
        ``explain`` asks for the plan without running it, ``profile`` for rows and what each step cost.

    Returns
    -------
    Answer
        Rows, which epochs they were made of, and the plan if asked for. The query is asked again where a load has
        changed meanwhile what it looked at; if that happens again and again, an epoch that was published or hidden
        while the query ran counts as left out.

    Raises
    ------
    InvalidParameterError
        If parameters are missing, unknown or of another type.
    Neo4jError
        If the server cannot be reached, or refuses the query.
    """
    values = _checked(query, parameters)
    text = f"{plan.upper()} {query.text}" if plan else query.text
    only_run = None if query.over is Over.ROUNDS_OF_BOTH else values.get("run")

    def look(transaction: neo4j.ManagedTransaction) -> tuple[Any, Coverage | None]:
        return run_states(transaction, only_run), _coverage(transaction, query, values)

    def ask(transaction: neo4j.ManagedTransaction) -> Answer:
        result = transaction.run(text, values)
        columns, rows = tuple(result.keys()), result.data()
        summary = result.consume()
        limit = values.get("limit")
        return Answer(
            columns=columns,
            rows=rows,
            plan={"explain": summary.plan, "profile": summary.profile}.get(plan or ""),
            limit=limit if limit is not None and len(rows) >= limit > 0 else None,
        )

    with plain_errors(f"run {query.name}"):
        settled = read_settled(driver, ask, look)
    (_, before), (_, after) = settled.before, settled.after
    coverage = before if before is None or after is None or before == after else before.within(after)
    return replace(settled.value, coverage=coverage, mixed=not settled.is_whole)


def complete(driver: neo4j.Driver, query: Query, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the run and the epoch where they are not given.

    Parameters
    ----------
    driver, query
        As for `answer_query`.
    parameters
        What is given, as values or as text.

    Returns
    -------
    dict
        The parameters with `run`, the loaded run that started last, and `epoch`, its slowest round that is loaded with
        the detail that the query needs; startup or shutdown only where there is no round.

    Raises
    ------
    InvalidParameterError
        If nothing is loaded that the query could look at; the message says what is.
    Neo4jError
        If the server cannot be reached.
    """
    chosen = dict(parameters)
    if "run" not in query.params:
        return chosen
    with plain_errors("look for runs"):
        return _read(driver, lambda transaction: _completed(transaction, query, chosen))


def _completed(transaction: neo4j.ManagedTransaction, query: Query, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with the run and the epoch that were chosen.

    Raises
    ------
    InvalidParameterError
        If nothing is loaded that the query could look at.
    """
    chosen = dict(parameters)
    if chosen.get("run") is None:
        latest = transaction.run(_LATEST_RUN).single()
        if latest is None:
            message = "No run is loaded."
            raise InvalidParameterError(message, "Load one: `pag neo4j load STORE`.")
        chosen["run"] = latest["run"]
    loaded_run = read_loaded(transaction, str(chosen["run"]))
    if "epoch" in query.params and loaded_run.epochs:
        epoch = chosen.get("epoch")
        chosen["epoch"] = query.params["epoch"].convert(epoch) if epoch is not None else _slowest(query, loaded_run)
    elif "epoch" in query.params and chosen.get("epoch") is None:
        chosen["epoch"] = 0
    covers(query, _checked(query, chosen), loaded_run, transaction).check()
    return chosen


def _slowest(query: Query, loaded_run: LoadedRun) -> int:
    """Return the slowest round that has the detail that the query needs.

    Raises
    ------
    InvalidParameterError
        If no epoch has it.
    """
    for epoch in loaded_run.slowest_first():
        if epoch.is_enough(query):
            return epoch.number
    needs = " or ".join(query.details)
    message = f"All epochs of run {loaded_run.run} are loaded with less detail than {query.name} needs: {needs}."
    slowest = loaded_run.slowest_first()[0].number
    command = load_command(loaded_run.store, [slowest], query.details)
    hint = f"Load the slowest round again: `{command}`; all without --epoch."
    raise InvalidParameterError(message, hint, {"run": loaded_run.run, "epoch": None, "query": query.name})


def _read(driver: neo4j.Driver, work: Callable[[neo4j.ManagedTransaction], _T]) -> _T:
    """Do something in one transaction in which the server refuses to write."""
    with driver.session(default_access_mode="READ", bookmark_manager=driver.execute_query_bookmark_manager) as session:
        return session.execute_read(work)


def _coverage(transaction: neo4j.ManagedTransaction, query: Query, values: Mapping[str, Any]) -> Coverage | None:
    return None if query.over is None or "run" not in query.params else read_coverage(transaction, query, values)


def _checked(query: Query, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value of the right type for each parameter that a query declares.

    Raises
    ------
    InvalidParameterError
        If one is missing, unknown or of another type.
    """
    declared = query.params
    missing = {name for name, param in declared.items() if param.required} - values.keys()
    unknown = values.keys() - declared.keys()
    if missing or unknown:
        problems = [
            *(f"lacks {name}, {declared[name].meaning}" for name in sorted(missing)),
            *(f"has no parameter {name}" for name in sorted(unknown)),
        ]
        message = f"The query {query.name} {'; it '.join(problems)}."
        takes = "; ".join(f"{name}: {param.meaning}" for name, param in declared.items()) or "none"
        raise InvalidParameterError(message, f"Its parameters: {takes}.", {"query": query.name})
    return {name: param.convert(values[name]) if name in values else param.default for name, param in declared.items()}


@contextmanager
def plain_errors(action: str) -> Iterator[None]:
    """Turn errors of the driver into ours, with what to do about them.

    Parameters
    ----------
    action
        What was tried, to follow "could not".

    Raises
    ------
    Neo4jError
        In place of the driver's own.
    InvalidParameterError
        If a text is no UTF-8, which the driver cannot send.
    """
    import neo4j.exceptions as driver_errors

    try:
        yield
    except driver_errors.AuthError as error:
        message = f"Could not {action}: the Neo4j server refuses the user or the password."
        raise Neo4jError(message, "Check both; `pag neo4j status` says where the password is kept.") from error
    except (driver_errors.ServiceUnavailable, driver_errors.SessionExpired) as error:
        message = f"Could not {action}: the Neo4j server does not answer: {error}"
        hint = (
            "Start it (`pag neo4j start`), or correct the address and the certificate of another one. Then do the same"
            " again; what is there already does no harm."
        )
        raise Neo4jError(message, hint) from error
    except UnicodeEncodeError as error:
        message = f"{printable(short(error.object, _LETTERS))} is not UTF-8: could not {printable(action)}."
        raise InvalidParameterError(message, "Give another text.") from error
    except (driver_errors.DriverError, driver_errors.Neo4jError) as error:
        code = getattr(error, "code", None)
        message = f"Could not {action}: {getattr(error, 'message', None) or error}"
        hints = {
            "Neo.ClientError.Statement.AccessMode": "Queries run in read access mode; use one that only reads.",
            "Neo.TransientError.General.MemoryPoolOutOfMemoryError": "Give the server more memory: "
            "`pag neo4j stop`, then `pag neo4j start --heap 2g`.",
            "Neo.DatabaseError.Transaction.TransactionLogError": _FULL,
            "Neo.DatabaseError.Transaction.TransactionStartFailed": _FULL,
        }
        raise Neo4jError(message, hints.get(str(code)), {"code": code}) from error
