"""What was committed to a store before: one entry per build, append, or commit of a follower."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pag_graph.store.delta import read_content
from pag_graph.store.delta_log import commit_file
from pag_graph.store.maker import written_out
from pag_graph.store.state_files import files_of_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pag_graph.store.delta import StoreInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A build in the history of a store."""

    id: str
    """Name of the commit."""
    version: int
    """Of the table `epochs`."""
    run: Mapping[str, Any]
    """As in `StoreInfo`."""
    versions: Mapping[str, int]
    """As in `StoreInfo`."""
    closed_epochs: int
    """As in `StoreInfo`."""
    events: int
    """As in `StoreInfo`."""
    committed: str
    """When, as ISO 8601."""
    state: Sequence[str] = ()
    """Names of the files from which an append goes on."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """As `pag_graph.store.maker.maker` says, with the ``trace`` and its ``files``; empty of earlier releases."""


def commits(info: StoreInfo, after: int = -1) -> list[Commit]:
    """Return the commits of a store up to a state of it.

    Parameters
    ----------
    info
        A committed state.
    after
        Only commits of versions behind this one, for who knows the others.

    Returns
    -------
    list of Commit
        Oldest first, as far as Delta's log still knows them. Reads a file per commit.

    Raises
    ------
    StoreError
        If one of them is damaged.
    """
    return [*_backwards(info, after)][::-1]


def latest_commit(info: StoreInfo) -> Commit:
    """Return the commit that made a state of a store: the last of `commits`, without reading the others.

    Parameters
    ----------
    info
        A committed state.

    Raises
    ------
    StoreError
        If it is damaged.
    """
    return next(_backwards(info, -1))


def _backwards(info: StoreInfo, after: int) -> Iterator[Commit]:
    """Read commits behind a version, the latest first."""
    directory = info.path / "epochs"
    for version in range(info.versions["epochs"], after, -1):
        if not commit_file(directory, version).exists():
            return
        content = read_content(directory, version)
        if content is not None:
            yield Commit(
                id=content["commit_id"],
                version=version,
                run=content["run"],
                versions={**content["versions"], "epochs": version},
                closed_epochs=content["closed_epochs"],
                events=content["events"],
                committed=content["committed"],
                state=files_of_state(content.get("state")),
                made=_as_text(content.get("made") or {}),
            )


def _as_text(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return who made a commit: earlier releases have put commands there as they were."""
    return {name: written_out(value) if isinstance(value, str) else value for name, value in made.items()}
