"""What a commit adds to a store, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.parts import PartFile

SLICED = ("vertices", "edges", "traffic")
"""Tables whose rows are written slice by slice."""
GROWING = (*SLICED, "findings", "epochs")
"""Tables to which an append adds; it leaves what it finds there, but for provisional files."""


class About(TypedDict):
    """What a commit says of itself and of the state before it.

    They are arguments of `pag_graph.store.commit.commit`, which explains them.
    """

    run: Mapping[str, Any]
    closed_epochs: int
    dropped: Mapping[str, int]
    events: int
    previous: StoreInfo | None
    keep: bool
    unchanged: Collection[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a commit adds beside the graph."""

    parts: Mapping[str, Sequence[PartFile]]
    """Per table of `LIVE_TABLES`: new files; provisional ones of the commit before go."""
    content: Mapping[str, Any]
    """As in `StoreInfo.live`."""
    base: StoreInfo | None
    """The state whose files stay; None where nothing does."""
