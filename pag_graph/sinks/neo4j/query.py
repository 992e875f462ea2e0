"""Queries of the library, run on a server that cannot be changed by them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError, Neo4jError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import neo4j


def run_query(driver: neo4j.Driver, name: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run a query of the library in read access mode: the server refuses to write.

    Parameters
    ----------
    driver
        From `pag_graph.sinks.neo4j.server.driver`, or one's own.
    name
        Out of `pag_graph.cypher.list_queries`, such as ``analyses/critical_path``.
    parameters
        A value for each parameter that the query declares.

    Returns
    -------
    list of dict
        The rows, by column.

    Raises
    ------
    InvalidParameterError
        If there is no such query, or if parameters are missing or unknown.
    Neo4jError
        If the server cannot be reached, or refuses the query.
    """
    query = load_query(name)
    _check_parameters(name, query.params, parameters)
    with plain_errors(f"run {name}"):
        rows, _, _ = driver.execute_query(query.text, dict(parameters), routing_=_read_access())
    return [row.data() for row in rows]


def _read_access() -> neo4j.RoutingControl:
    import neo4j

    return neo4j.RoutingControl.READ


def _check_parameters(name: str, declared: Mapping[str, str], given: Mapping[str, Any]) -> None:
    """Check that a query gets what it declares, no less and no more.

    Raises
    ------
    InvalidParameterError
        Otherwise.
    """
    missing, unknown = declared.keys() - given.keys(), given.keys() - declared.keys()
    if missing or unknown:
        found = [
            *(f"lacks {each}, {declared[each]}" for each in sorted(missing)),
            *(f"has no parameter {each}" for each in sorted(unknown)),
        ]
        message = f"The query {name} {'; it '.join(found)}."
        takes = "; ".join(f"{each}: {meaning}" for each, meaning in declared.items()) or "none"
        raise InvalidParameterError(message, f"Its parameters: {takes}.", {"query": name})


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
        hint = "Start it: `pag neo4j start`. Then do the same again; what is there already does no harm."
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
