"""Following a trace while it is written."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pag_graph.api.building import rule_set
from pag_graph.api.event_logs import fed
from pag_graph.errors import InvalidParameterError, MissingExtraError
from pag_graph.model.given import path_of, text_of
from pag_graph.store.access import read_token
from pag_graph.store.durable import durable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from threading import Event
    from typing import Unpack

    from pag_graph.engines.following import Following, FollowReport, Progress
    from pag_graph.graph.following import Committed, Observer
    from pag_graph.model.enums import RuleSet
    from pag_graph.motif.alerts import Rule
    from pag_graph.rules.rows import RuleParameters


class FollowOptions(TypedDict, total=False):
    """How to follow; all may be absent."""

    rules: RuleSet | str | None
    """As for `build`."""
    parameters: RuleParameters | None
    """As for `build`."""
    until: str
    """When to stop: ``complete``, ``forever``, or ``idle:30s`` (nothing new for so long)."""
    commit_every_s: float
    """The least time between two commits, in seconds; 0.25 where absent."""
    settle_s: float
    """Time of the trace after which an epoch is answered though messages of it are unread, in seconds; 1 if absent."""
    keep: str | int
    """What stays of answered epochs: ``all``, a number of them, or a time such as ``24h``; all if absent."""
    memory: str | int
    """Bytes of undecided rows that stay in memory, such as ``1GiB``; what is beyond them is read again. About as many
    are worked on at a time."""
    replace: bool
    """Take the place of a store that exists."""
    observers: Sequence[Observer]
    """To be told of each commit."""
    stop: Event | None
    """Set it to stop: what is decided is committed."""
    queries: Sequence[str]
    """Standing queries to add, as for `build`."""
    alerts: str | os.PathLike[str] | Sequence[Rule]
    """Rules of alerts to add, as for `build`."""
    progress: Callable[[Progress], None] | None
    """Called with how far it is."""
    listen: str | None
    """``HOST:PORT`` of this machine: recorders send the trace there, and `source` is where it is kept."""
    token_file: str | os.PathLike[str] | None
    """With `listen`: file of mode 600 with the token that recorders must know."""
    certificate: str | os.PathLike[str] | None
    """With `listen`: file of PEM with the follower's certificate, and those up to the authority that recorders trust.
    What they send is then encrypted, and may come from other machines."""
    key: str | os.PathLike[str] | None
    """With `certificate`: file of PEM, of mode 600, with its key."""
    epochs: str | None
    """For an event log of Spark: what an epoch is, ``batch`` (if absent), ``query`` or ``job``."""
    trace: str | os.PathLike[str] | None
    """For an event log of Spark: where its trace grows; beside the store if absent."""
    units: Callable[[list[dict[str, Any]]], None] | None
    """For an event log of Spark: called now and then with what is under way, as `pag ongoing` shows it."""
    fsync: bool
    """Whether commits shall outlast a loss of power, too, and not only the end of this process; False if absent."""
    refused: Callable[[str], None] | None
    """With `listen`: called, from another thread, with a line about each connection that was refused."""


def follow(
    source: str | os.PathLike[str], store: str | os.PathLike[str], **options: Unpack[FollowOptions]
) -> FollowReport:
    """Build the graph of a trace while the trace is written.

    Parameters
    ----------
    source
        Directory into which a recorder writes, or an event log of Spark, in progress or not; need not be there yet,
        if `epochs` says that it will be an event log.
    store
        Directory; made, or gone on with where a follower of the same run ended.
    options
        Out of `FollowOptions`.

    Returns
    -------
    FollowReport
        Why it ended, and what was committed. Once the source is complete the store holds what `build` makes of it.
    """
    source, store = path_of(source, "source"), path_of(store, "store")
    with _lasting(options), _receiving(source, options), fed(source, store, options) as (trace, feed):
        return _following(trace, store, options, feed).run()


def live(
    source: str | os.PathLike[str], store: str | os.PathLike[str], **options: Unpack[FollowOptions]
) -> Iterator[Committed]:
    """Build the graph of a trace while it is written, commit by commit.

    Parameters
    ----------
    source, store, options
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
    source, store = path_of(source, "source"), path_of(store, "store")
    with _lasting(options), _receiving(source, options), fed(source, store, options) as (trace, feed):
        yield from _following(trace, store, options, feed).commits()


def _lasting(options: FollowOptions) -> AbstractContextManager[None]:
    for name in ("token_file", "certificate", "key"):
        if options.get(name) is not None:
            path_of(options.get(name), name)
    known = list(FollowOptions.__annotations__)
    unknown = [name for name in options if name not in known]
    if unknown:
        message = f"follow has no option {unknown[0]!r}; it has {', '.join(known)}."
        raise InvalidParameterError(message)
    return durable(wanted=options.get("fsync", False))


@contextmanager
def _receiving(source: str | os.PathLike[str], options: FollowOptions) -> Iterator[None]:
    """Receive the trace, where it is to be received, as long as the block runs."""
    address, token_file = options.get("listen"), options.get("token_file")
    if (address is None) != (token_file is None):
        message = "Listening needs a token file, and a token file is only used for listening."
        raise InvalidParameterError(message, "Give both listen and token_file, or neither.")
    certificate, key = options.get("certificate"), options.get("key")
    if (certificate is None) != (key is None) or (certificate is not None and address is None):
        message = "A certificate needs its key, and both are only used for listening."
        raise InvalidParameterError(message, "Give certificate, key and listen, or none of them.")
    address = None if address is None else text_of(address, "listen")
    if address is None or token_file is None:
        yield
        return
    if find_spec("anyio") is None:
        raise MissingExtraError.from_extra(what="`pag follow --listen`", extra="serve")
    from pag_graph.sources.wire.encrypted import server_context
    from pag_graph.sources.wire.listen import listening

    tls = server_context(Path(certificate), Path(key)) if certificate and key else None
    token = read_token(Path(token_file))
    with listening(Path(source).absolute(), address, token, options.get("refused"), tls=tls):
        yield


def _following(
    source: Path, store: str | os.PathLike[str], options: FollowOptions, feed: Callable[[], bool]
) -> Following:
    # What needs compiled kernels is loaded by whom it serves.
    from pag_graph.api.standing import standings
    from pag_graph.builder.frontier import SETTLE_NS
    from pag_graph.builder.rule_choice import rule_parameters
    from pag_graph.engines.following import Following, Until
    from pag_graph.model.units import size_bytes
    from pag_graph.store.retention import Keep
    from pag_graph.store.tail import MEMORY_BYTES

    rules, keep = options.get("rules"), Keep.of(str(options.get("keep", "all")))
    return Following(
        # A process that follows for long may change its working directory.
        source,
        Path(store).absolute(),
        rules=rule_set(rules),
        parameters=rule_parameters(options.get("parameters")),
        until=Until.of(str(options.get("until", "complete"))),
        commit_every_s=options.get("commit_every_s", 0.25),
        settle_s=options.get("settle_s", SETTLE_NS / 1e9),
        keep=keep,
        memory_bytes=size_bytes(str(options.get("memory", MEMORY_BYTES))),
        replace=options.get("replace", False),
        observers=options.get("observers", ()),
        stop=options.get("stop"),
        tell=options.get("progress"),
        feed=feed,
        derive=standings(options.get("queries", ()), options.get("alerts", ()), forgets=keep != Keep()),
    )
