"""Queries of the library, run on a server that cannot be changed by them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError, Neo4jError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import neo4j

    from pag_graph.cypher import Query

_LATEST_RUN = """\
MATCH (run:Run)-[:HAS_EPOCH]->(:Epoch {published: true})
RETURN DISTINCT run.id AS run, run.origin_unix_ns AS origin_unix_ns
ORDER BY origin_unix_ns DESC, run
LIMIT 1
"""

# Without a detail, an epoch is of a release that knew only one.
_EPOCHS = """\
MATCH (:Run {id: $run})-[:HAS_EPOCH]->(epoch:Epoch {published: true})
RETURN epoch.epoch AS number, coalesce(epoch.detail, 'full') AS detail
ORDER BY epoch.role = 'round' DESC, epoch.end_ns - epoch.start_ns DESC, number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server said to a query."""

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    """The rows, by column; empty when only the plan was asked for."""
    plan: dict[str, Any] | None = None
    """How the server would answer, or did, where asked for: the driver's tree of operators."""


def run_query(driver: neo4j.Driver, name: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run a query of the library in read access mode: the server refuses to write.

    Parameters
    ----------
    driver
        From `pag_graph.neo4j_server.server.driver`, or one's own.
    name
        Out of `pag_graph.cypher.list_queries`, such as ``analyses/critical_path``.
    parameters
        A value for each parameter that the query declares, but for those with a default.

    Returns
    -------
    list of dict
        The rows, by column.

    Raises
    ------
    InvalidParameterError
        If there is no such query, or if parameters are missing, unknown or of another type.
    Neo4jError
        If the server cannot be reached, or refuses the query.
    """
    return answer_query(driver, load_query(name), parameters).rows


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
        Rows, and the plan if asked for.

    Raises
    ------
    InvalidParameterError
        If parameters are missing, unknown or of another type.
    Neo4jError
        If the server cannot be reached, or refuses the query.
    """
    values = _checked(query, parameters)
    text = f"{plan.upper()} {query.text}" if plan else query.text
    with plain_errors(f"run {query.name}"):
        result = driver.execute_query(text, values, routing_=_read_access())
    steps = {"explain": result.summary.plan, "profile": result.summary.profile}.get(plan or "")
    return Answer(columns=tuple(result.keys), rows=[row.data() for row in result.records], plan=steps)


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
    with plain_errors("look for runs"):
        if "run" in query.params and chosen.get("run") is None:
            runs = driver.execute_query(_LATEST_RUN, routing_=_read_access()).records
            if not runs:
                message = "No run is loaded."
                raise InvalidParameterError(message, "Load one: `pag neo4j load STORE`.")
            chosen["run"] = runs[0]["run"]
        if "epoch" in query.params:
            known = driver.execute_query(_EPOCHS, {"run": str(chosen["run"])}, routing_=_read_access()).records
            details = {row["number"]: row["detail"] for row in known}
            chosen["epoch"] = _epoch(query, chosen["run"], details, chosen.get("epoch"))
    return chosen


def _epoch(query: Query, run: str, details: Mapping[int, str], wanted: Any) -> int:
    """Return the epoch to look at: the one asked for, or the first that has the detail that the query needs.

    Raises
    ------
    InvalidParameterError
        If there is none.
    """
    enough = [epoch for epoch, detail in details.items() if not query.details or detail in query.details]
    if wanted is not None:
        wanted = query.params["epoch"].convert(wanted)
        if wanted in enough:
            return int(wanted)
    elif enough:
        return enough[0]
    context = {"run": run, "epoch": wanted, "query": query.name}
    if not details:
        message = f"No epoch of run {run} is loaded."
        raise InvalidParameterError(message, "Load it: `pag neo4j load STORE`.", context)
    needs = " or ".join(query.details)
    if wanted is not None and wanted not in details:
        message = f"Epoch {wanted} of run {run} is not loaded; loaded are {_ranges(sorted(details))}."
        raise InvalidParameterError(message, f"Load it: `pag neo4j load STORE --epoch {wanted}`.", context)
    what = f"Epoch {wanted} of run {run} is" if wanted is not None else f"All epochs of run {run} are"
    message = f"{what} loaded with less detail than {query.name} needs: {needs}."
    hint = f"Load it again: `pag neo4j load STORE --epoch {wanted or 'N'} --detail {query.details[-1]}`."
    raise InvalidParameterError(message, hint, context)


def _ranges(numbers: list[int]) -> str:
    """Write ascending numbers in short: ``0 to 4, 7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join(" to ".join(map(str, part)) for part in parts)


def _read_access() -> neo4j.RoutingControl:
    import neo4j

    return neo4j.RoutingControl.READ


def _checked(query: Query, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value of the right type for each parameter that a query declares.

    Raises
    ------
    InvalidParameterError
        If one is missing, unknown or of another type.
    """
    declared = query.params
    missing = {name for name, each in declared.items() if each.required} - given.keys()
    unknown = given.keys() - declared.keys()
    if missing or unknown:
        found = [
            *(f"lacks {name}, {declared[name].meaning}" for name in sorted(missing)),
            *(f"has no parameter {name}" for name in sorted(unknown)),
        ]
        message = f"The query {query.name} {'; it '.join(found)}."
        takes = "; ".join(f"{name}: {each.meaning}" for name, each in declared.items()) or "none"
        raise InvalidParameterError(message, f"Its parameters: {takes}.", {"query": query.name})
    return {name: each.convert(given[name]) if name in given else each.default for name, each in declared.items()}


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Turn errors of the driver into ours, with what to do about them.

    Parameters
    ----------
    what
        What was tried, to follow "could not".

    Raises
    ------
    Neo4jError
        In place of the driver's own.
    """
    import neo4j.exceptions as driver_errors

    try:
        yield
    except driver_errors.AuthError as error:
        message = f"Could not {what}: the Neo4j server refuses the user or the password."
        raise Neo4jError(message, "Check both; `pag neo4j status` says where the password is kept.") from error
    except (driver_errors.ServiceUnavailable, driver_errors.SessionExpired) as error:
        message = f"Could not {what}: the Neo4j server does not answer: {error}"
        hint = (
            "Start it (`pag neo4j start`), or correct the address and the certificate of another one. Then do the same"
            " again; what is there already does no harm."
        )
        raise Neo4jError(message, hint) from error
    except (driver_errors.DriverError, driver_errors.Neo4jError) as error:
        code = getattr(error, "code", None)
        message = f"Could not {what}: {getattr(error, 'message', None) or error}"
        hints = {
            "Neo.ClientError.Statement.AccessMode": "Queries run in read access mode; use one that only reads.",
            "Neo.TransientError.General.MemoryPoolOutOfMemoryError": "Give the server more memory: "
            "`pag neo4j stop`, then `pag neo4j start --heap 2g`.",
        }
        raise Neo4jError(message, hints.get(str(code)), {"code": code}) from error
