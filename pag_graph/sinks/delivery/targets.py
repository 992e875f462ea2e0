"""Where changes and alerts go, as options and arguments name it."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.sinks.delivery.lines import JsonLines, standard_output
from pag_graph.sinks.delivery.webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pag_graph.graph.following import Committed
    from pag_graph.sinks.delivery.lines import Sink
    from pag_graph.store.delta import StoreInfo


def sink_of(store: Path, target: str) -> Sink:
    """Return the sink of a target: ``-`` is standard output, an address a webhook, all else a file.

    Parameters
    ----------
    store
        Directory of the store; how far each target has got is kept there.
    target
        ``-``, something with ``://``, or the path of a file, which is made where it does not exist.

    Returns
    -------
    Sink
        Sends nothing before its first `deliver`.

    Raises
    ------
    InvalidParameterError
        If it is an address to which nothing is sent (`pag_graph.sinks.delivery.webhook.check_address`).
    """
    if target == "-":
        return standard_output(store)
    if "://" in target:
        return Webhook(store, target)
    return JsonLines(store, Path(target))


class Delivery:
    """Several sinks of a store; also an observer of its follower (`pag_graph.graph.following.Observer`)."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = sinks

    def deliver(self, info: StoreInfo) -> int:
        """Hand out what is new, to each of them (`Sink.deliver`)."""
        return sum(sink.deliver(info) for sink in self.sinks)

    def committed(self, commit: Committed) -> None:
        """Hand out what a commit of a follower added."""
        self.deliver(commit.run.info)


@contextmanager
def delivery(store: Path, targets: Sequence[str]) -> Iterator[Delivery]:
    """Hand out to targets as long as the block runs.

    Parameters
    ----------
    store
        Directory of the store.
    targets
        See `sink_of`.

    Yields
    ------
    Delivery
        Threads of webhooks end with the block; they have some seconds for what is left.
    """
    sinks = [sink_of(store, target) for target in targets]
    try:
        yield Delivery(sinks)
    finally:
        for sink in sinks:
            if isinstance(sink, Webhook):
                sink.close()
