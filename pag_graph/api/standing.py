"""What standing queries of a store say, and the alerts that came of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.analyses.definition import Standing
from pag_graph.analyses.standing import Query, decoded
from pag_graph.engines.standing import Standings, refuse_sums
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.window import whole_number
from pag_graph.model.given import path_of, text_of, texts_of
from pag_graph.model.live_tables import ALERTS, HELD
from pag_graph.motif.alerts import FRONTIER, read_rules
from pag_graph.store.readers import open_held

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pyarrow as pa

    from pag_graph.motif.alerts import Rule

ORDER = ("commit", "ordinal")


def standings(
    queries: Sequence[str] = (), alerts: str | os.PathLike[str] | Sequence[Rule] = (), *, forgets: bool = False
) -> Standings:
    """Return queries and rules to be registered with a commit.

    Parameters
    ----------
    queries
        Such as ``k-hops:k=3``.
    alerts
        Rules, or a file of them.
    forgets
        Whether old epochs are removed.

    Raises
    ------
    InvalidParameterError
        If there is no such analysis or parameter, the file cannot be read, or a rule does not fit its query.
    UnsupportedPlanError
        If an analysis cannot be a standing query.
    """
    rules = tuple(alerts) if isinstance(alerts, list | tuple) else read_rules(path_of(alerts, "alerts"))
    parsed = [Query.parse(text) for text in texts_of(queries, "queries")]
    # Queries that cannot be standing are refused before the build begins.
    for query in parsed:
        if forgets:
            refuse_sums(query)
        _ = query.standing
    for rule in rules:
        if rule.query == FRONTIER:
            rule.condition(HELD)
            continue
        of_rule = Query.parse(rule.query)
        if of_rule.standing is Standing.LINEAR:
            message = f"The alert rule {rule.name!r} watches {rule.query}, whose rows belong to no epoch."
            raise InvalidParameterError(message, "Watch a query whose rows belong to epochs, such as metrics.")
        rule.condition(of_rule.schema)
    return Standings(queries=parsed, rules=rules, forgets=forgets)


def changes(store: str | os.PathLike[str], query: str, *, since: int = -1) -> pa.Table:
    """Return how the answer of a standing query changed, commit after commit.

    Parameters
    ----------
    store
        Directory of the store.
    query
        One of its queries, as it was registered.
    since
        Only what came with later commits.

    Returns
    -------
    pa.Table
        ``commit``, ``ordinal`` and ``diff``, and the columns of the answer; one row per row that came or went. Summed
        up over all commits they are the answer over all answered epochs.

    Raises
    ------
    InvalidParameterError
        If the store has no such query; the message lists those that it has.

    Examples
    --------
    >>> pag_graph.changes("run.pag", "k-hops:k=3")  # doctest: +SKIP
    """
    info, _hold = open_held(path_of(store, "store").absolute())
    standing_query = Query.parse(text_of(query, "query"))
    query_texts = [] if info.live is None else info.live["queries"]
    if standing_query.id not in query_texts:
        from pag_graph.builder.append import FOLLOWED

        message = f"{store} has no standing query {standing_query.id!r}; it has {', '.join(query_texts) or 'none'}."
        command, further = ("follow", ()) if info.run.get(FOLLOWED) else ("build", ("--append",))
        words = ("pag", command, "TRACE", str(store), *further, "--query", standing_query.id)
        raise InvalidParameterError(message, f"Register it: `{shlex.join(words)}`.")
    rows = info.scan("changes", pl.col("max_commit") > whole_number(since, "since"))
    rows = rows.filter(pl.col("query") == standing_query.id, pl.col("commit") > since).drop("query").sort(ORDER)
    return decoded(rows.collect(), standing_query.schema).to_arrow()


def alerts(store: str | os.PathLike[str], *, since: int = -1) -> pa.Table:
    """Return the alerts of a store: a row for each that opened, and one for each that was resolved.

    Parameters
    ----------
    store
        Directory of the store.
    since
        Only what came with later commits.

    Returns
    -------
    pa.Table
        Rows of `pag_graph.model.live_tables.ALERTS`, in the order in which they came.

    Examples
    --------
    >>> pag_graph.alerts("run.pag")  # doctest: +SKIP
    """
    info, _hold = open_held(path_of(store, "store").absolute())
    rows = info.scan("alerts", pl.col("max_commit") > whole_number(since, "since")).filter(pl.col("commit") > since)
    return rows.sort(ORDER).collect().to_arrow().cast(ALERTS)
