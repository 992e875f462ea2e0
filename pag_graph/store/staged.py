"""A state of a store before it is committed, for those who have to look at it first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from pag_graph.model.tables import STORE_FORMAT_VERSION
from pag_graph.store.contents import GROWING
from pag_graph.store.delta import StoreInfo
from pag_graph.store.delta_log import Base, TableState, latest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pag_graph.store.contents import About
    from pag_graph.store.parts import PartFile


def staged(path: Path, parts: Mapping[str, Sequence[PartFile]], **about: Unpack[About]) -> StoreInfo:
    """Return the state that `commit` would make of the same arguments, so that it can be looked at before.

    Parameters
    ----------
    path, parts, about
        As for `commit`.

    Returns
    -------
    StoreInfo
        Nothing is written. Its version of `epochs` is the one that the commit will have; it has no others.
    """
    previous = about["previous"]
    last_version = -1 if previous is None else previous.versions["epochs"]
    return _Staged(
        path=path,
        run=about["run"],
        versions={"epochs": latest(path / "epochs", since=last_version) + 1},
        closed_epochs=about["closed_epochs"],
        dropped=about["dropped"],
        events=about["events"],
        commit_id="",
        digests=None,
        format_version=previous.format_version if about["keep"] and previous is not None else STORE_FORMAT_VERSION,
        new=parts,
        base=previous,
        keep=about["keep"],
        unchanged=about["unchanged"],
        fresh=None if previous is None else previous.fresh,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged(StoreInfo):
    """A state whose lists of files are made when somebody asks for them."""

    new: Mapping[str, Sequence[PartFile]]
    base: StoreInfo | None
    keep: bool
    unchanged: Collection[str]

    def table(self, name: str) -> TableState:
        """Return what a table will hold."""
        if name not in self._tables:
            files: dict[str, PartFile] = {}
            if self.base is not None and (name in self.unchanged or (self.keep and name in GROWING)):
                # There may be many: those that go are taken out of a copy, which takes no look at each.
                files = dict(self.base.table(name).files)
                if name not in self.unchanged:
                    for part in self.base.provisional(name):
                        del files[part.path]
            files |= {part.path: part for part in self.new.get(name, ())}
            self._tables[name] = TableState(version=-1, base=Base(version=0), files=files)
        return self._tables[name]
