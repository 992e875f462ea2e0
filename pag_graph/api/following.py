"""Following a trace while it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.model.enums import RuleSet

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from threading import Event

    from pag_graph.engines.following import Following, FollowReport, Progress
    from pag_graph.graph.following import Committed, Observer
    from pag_graph.motif.alerts import Rule
    from pag_graph.rules.rows import RuleParameters


def follow(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    rules: RuleSet | str | None = None,
    parameters: RuleParameters | None = None,
    until: str = "complete",
    commit_every_s: float = 0.25,
    replace: bool = False,
    observers: Sequence[Observer] = (),
    queries: Sequence[str] = (),
    alerts: str | os.PathLike[str] | Sequence[Rule] = (),
    stop: Event | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> FollowReport:
    """Build the graph of a trace while the trace is written.

    Parameters
    ----------
    source
        Directory into which a recorder writes; need not be there yet.
    store
        Directory; made, or gone on with where a follower of the same run ended.
    rules, parameters
        As for `build`.
    until
        When to stop: ``complete``, ``forever``, or ``idle:30s`` (nothing new for so long).
    commit_every_s
        The least time between two commits.
    replace
        Take the place of a store that exists.
    observers
        To be told of each commit.
    queries, alerts
        Standing queries and rules of alerts to add, as for `build`.
    stop
        Set it to stop: what is decided is committed.
    progress
        Called with how far it is.

    Returns
    -------
    FollowReport
        Why it ended, and what was committed. Once the source is complete the store holds what `build` makes of it.
    """
    return _following(
        source,
        store,
        rules=rules,
        until=until,
        parameters=parameters,
        commit_every_s=commit_every_s,
        replace=replace,
        observers=observers,
        queries=queries,
        alerts=alerts,
        stop=stop,
        tell=progress,
    ).run()


def live(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    rules: RuleSet | str | None = None,
    parameters: RuleParameters | None = None,
    until: str = "complete",
    commit_every_s: float = 0.25,
    replace: bool = False,
    observers: Sequence[Observer] = (),
    queries: Sequence[str] = (),
    alerts: str | os.PathLike[str] | Sequence[Rule] = (),
    stop: Event | None = None,
) -> Iterator[Committed]:
    """Build the graph of a trace while it is written, commit by commit.

    Parameters
    ----------
    source, store, rules, parameters, until, commit_every_s, replace, observers, queries, alerts, stop
        As for `follow`.

    Yields
    ------
    Committed
        What each commit made final. Following goes on when the next one is asked for, and ends with the loop.

    Examples
    --------
    >>> import pag_graph
    >>> for commit in pag_graph.live("run.trace", "run.pag"):  # doctest: +SKIP
    ...     for epoch in commit.closed:
    ...         print(commit.run.epochs.filter(epoch=epoch))
    """
    yield from _following(
        source,
        store,
        rules=rules,
        until=until,
        parameters=parameters,
        commit_every_s=commit_every_s,
        replace=replace,
        observers=observers,
        queries=queries,
        alerts=alerts,
        stop=stop,
    ).commits()


def _following(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    rules: RuleSet | str | None,
    until: str,
    queries: Sequence[str],
    alerts: str | os.PathLike[str] | Sequence[Rule],
    **options: Any,
) -> Following:
    # What needs compiled kernels is loaded by whom it serves.
    from pag_graph.api.standing import standings
    from pag_graph.engines.following import Following, Until

    chosen = None if rules is None else RuleSet(rules)
    # Who follows for long may change the folder that it works in.
    options |= {"rules": chosen, "until": Until.of(until), "derive": standings(queries, alerts)}
    return Following(Path(source).absolute(), Path(store).absolute(), **options)
