"""What tables hold after a commit: new files, and those of the state before that stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pag_graph.model.live_tables import LIVE_TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.parts import PartFile

GROWING = ("vertices", "edges", "findings", "epochs")
"""Tables to which an append adds; it leaves what it finds there, but for provisional files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a commit adds beside the graph."""

    parts: Mapping[str, Sequence[PartFile]]
    """Per table of `LIVE_TABLES`: new files; provisional ones of the commit before go."""
    content: Mapping[str, Any]
    """As in `StoreInfo.live`."""
    kept: StoreInfo | None
    """The state whose files stay; None where nothing does."""


def kept_of(name: str, kept: StoreInfo | None, live: Live | None) -> StoreInfo | None:
    """Return the state whose files of a table stay."""
    if name in LIVE_TABLES:
        return None if live is None else live.kept
    return kept if name in GROWING else None


def files_of(name: str, new: Sequence[PartFile], kept: StoreInfo | None) -> dict[str, PartFile]:
    """Return what a table holds: new files, and those of a state that stay, which are not provisional."""
    stay = {} if kept is None else kept.table(name).files
    return {path: part for path, part in stay.items() if not part.provisional} | {part.path: part for part in new}
