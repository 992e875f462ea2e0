"""Commits: what a build or a follower has finished becomes a state of a store, with what is derived from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pag_graph.builder import saved
from pag_graph.builder.append import FOLLOWED
from pag_graph.builder.saved import Saved
from pag_graph.errors import UnsupportedPlanError
from pag_graph.model.live_tables import LIVE_TABLES
from pag_graph.model.tables import STORE_TABLES
from pag_graph.store.commit import commit
from pag_graph.store.contents import GROWING, SLICED, Live
from pag_graph.store.delta import COMPLETE, REMOVED
from pag_graph.store.fresh import write_and_keep
from pag_graph.store.parts import discard, write_part
from pag_graph.store.remembered import REMEMBERED, Remembered
from pag_graph.store.staged import staged
from pag_graph.store.state_files import with_sends, write_state
from pag_graph.store.trace_files import written_sums
from pag_graph.store.traffic import TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pag_graph.builder.finish import Finished
    from pag_graph.builder.plan import RunPlan
    from pag_graph.store.compaction import Swap
    from pag_graph.store.contents import About
    from pag_graph.store.delta import Removed, StoreInfo
    from pag_graph.store.parts import PartFile
    from pag_graph.store.retention import Removal
    from pag_graph.store.trace import Trace

    Held = Mapping[str, Any] | None
    """A row of `pag_graph.model.live_tables.HELD`; None where that is not asked."""


class Derive(Protocol):
    """Makes what is committed beside a graph, out of the graph."""

    def __call__(
        self, state: StoreInfo, base: StoreInfo | None, answered: int, *, only_new: bool = False, held: Held = None
    ) -> Live | None:
        """Look at a state before it is committed.

        Parameters
        ----------
        state
            What is about to be committed.
        base
            The state that it adds to.
        answered
            The last epoch whose answers hold, or -1.
        only_new
            Whether the graph is that of `base`, so that only what was not asked before is to be answered.
        held
            What holds the frontier now, a row of `HELD`; absent where that is not asked.

        Returns
        -------
        Live or None
            None where nothing is to be added.
        """


def nothing_more(
    state: StoreInfo, base: StoreInfo | None, answered: int, *, only_new: bool = False, held: Held = None
) -> Live | None:
    """Derive nothing from a state that is to be committed.

    Parameters
    ----------
    state, base, answered, only_new, held
        As for `Derive`; only `base` and `only_new` are looked at.

    Returns
    -------
    None
        Always.

    Raises
    ------
    UnsupportedPlanError
        If there are standing queries, which would fall behind.
    """
    del state, answered, held
    if base is not None and base.live is not None and not only_new:
        message = f"{base.path} has standing queries, which this way of appending would leave behind."
        raise UnsupportedPlanError(message, "Append with `pag_graph.build`, or build with `--replace`.")
    return None


def last_to_answer(built: Finished, trace: Trace) -> int:
    """Return the last epoch that standing queries answer.

    Parameters
    ----------
    built
        What there is to commit.
    trace
        The trace as it is now.

    Returns
    -------
    int
        As `pag_graph.builder.frontier.answered` says; of a log that has ended, the last epoch of all; -1 where there is
        none.
    """
    last: int | None = pc.max(built.open_epochs["epoch"]).as_py() if trace.meta.complete else None
    if last is None:
        return built.last_closed if trace.meta.complete else built.last_answered
    return last


def small_tables(trace: Trace) -> dict[str, pa.Table]:
    """Return the tables of a trace that a store holds as they are.

    Parameters
    ----------
    trace
        An opened trace.

    Returns
    -------
    dict
        `operators`, `channels` and `workers`: rows of `TRACE_OPERATORS`, `TRACE_CHANNELS` and `TRACE_WORKERS`.
    """
    return {"operators": trace.operators, "channels": trace.channels, "workers": trace.workers}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a commit will make visible: all of it is written, but for what is derived from it."""

    target: Path
    """Directory of the store."""
    parts: Mapping[str, Sequence[PartFile]]
    """Per table: files that are new in it."""
    about: About
    """What the commit says of itself."""
    state: Mapping[str, Any] | None
    """The file from which an append goes on; None where none can."""
    swaps: Mapping[str, Swap]
    """Files in the place of others."""
    source: Mapping[str, Any]
    """As for `pag_graph.store.commit.commit`."""

    def publish(self, derive: Callable[[StoreInfo], Live | None]) -> tuple[StoreInfo, dict[str, Sequence[PartFile]]]:
        """Derive what is to be committed beside the graph, and commit; may run beside the next step of a follower.

        Parameters
        ----------
        derive
            Makes what is committed beside the graph.

        Returns
        -------
        info
            The new state of the store.
        parts
            Per table: files that are new in it.

        Raises
        ------
        StoreConflictError
            If somebody else committed in between.
        StoreError
            If the file system refuses; nothing is visible then.
        """
        # `derive` compares files, so it sees swapped files as they were before.
        live = derive(staged(self.target, self.parts, **self.about))
        committed = commit(
            self.target,
            self.parts,
            **self.about,
            state=self.state,
            live=live,
            swaps=self.swaps,
            source=self.source,
        )
        return committed, {**self.parts, **({} if live is None else live.parts)}


def prepare(
    target: Path,
    plan: RunPlan,
    built: Finished,
    begin: Saved | None,
    forced: pa.Table,
    previous: StoreInfo | None,
    *,
    work: Mapping[str, Any],
    followed: bool = False,
    swaps: Mapping[str, Swap] | None = None,
) -> Prepared:
    """Write the small tables and the state of what is to be committed.

    Parameters
    ----------
    target
        Directory of the store.
    plan, built
        The build, and what there is to commit.
    begin
        Where it began; without it, the commit replaces everything in the store.
    forced
        Findings about the choice of the rules.
    previous
        The state that the store is in.
    work
        What is to be remembered of the build itself: ``engine``, which ran its tasks, and ``seconds``, its duration up
        to the commit.
    followed
        Whether the commit is one of a follower.
    swaps
        As for `pag_graph.store.commit.commit`.

    Returns
    -------
    Prepared
        Nobody sees it before it is published.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    keep, begin = begin is not None, begin or Saved()
    trace = plan.trace
    small = small_tables(trace)
    checksums = {name: saved.checksum(content) for name, content in small.items()}
    unchanged = {name for name in small if keep and begin.tables.get(name) == checksums[name]}
    provisional = {"findings": pa.concat_tables([forced, built.open_findings]), "epochs": built.open_epochs}
    final = {"findings": built.findings, "epochs": built.epochs}
    parts: dict[str, list[PartFile]] = {name: list(built.parts.get(name, ())) for name in SLICED}
    for name, content in small.items():
        part = None if name in unchanged else write_part(target, name, content)
        parts[name] = [part] if part else []
    fresh = None if previous is None else previous.fresh
    if keep and previous is not None and TRAFFIC not in previous.tables:
        discard(target, TRAFFIC, parts.pop(TRAFFIC))
    for name in ("findings", "epochs"):
        written_parts = (
            write_and_keep(target, name, provisional[name], fresh, provisional=True),
            write_and_keep(target, name, final[name], fresh),
        )
        parts[name] = [part for part in written_parts if part is not None]
    before = previous if keep else None
    remembered = Remembered() if before is None else Remembered.of(before)
    state = None
    if built.saved is not None:
        saved_state = built.saved(checksums, trace.meta.complete)
        spilled = [file.name for file in saved_state.state.sends.spilled.files]
        state = write_state(target, saved_state.content(), [*spilled, *remembered.files])
    removal = {} if before is None or before.removed is None else _of_removed(before.removed, remembered)
    run = {
        **plan.metadata(),
        **removal,
        "last_closed_epoch": built.last_closed,
        "last_answered_epoch": built.last_answered,
        "closed_fingerprint": built.fingerprint,
        COMPLETE: trace.meta.complete,
    }
    about: About = {
        "run": {**run, FOLLOWED: True} if followed else run,
        "closed_epochs": built.closed_epochs,
        "dropped": built.dropped,
        "events": trace.rows,
        "previous": previous,
        "keep": keep,
        "unchanged": unchanged,
    }
    # A follower commits several times a second, before the files of the trace are whole.
    source = {"trace": str(trace.path.absolute()), "files": {} if followed else written_sums(trace.path), **work}
    return Prepared(target=target, parts=parts, about=about, state=state, swaps=swaps or {}, source=source)


def commit_derived(base: StoreInfo, derive: Derive, held: Held = None) -> StoreInfo | None:
    """Commit a state again, with what is derived from it; do nothing, and return None, if that is nothing new.

    Parameters
    ----------
    base
        The latest state of a store.
    derive
        As for `build`.
    held
        What holds the frontier now, a row of `HELD`, if that is asked.

    Returns
    -------
    StoreInfo or None
        The new state; its graph is the same, down to the files.
    """
    provisional, about = _provisional(base, GROWING), _about_same_graph(base)
    last_answered = _last_of(base) if base.live is None else int(base.live["answered"])
    live = derive(staged(base.path, provisional, **about), base, last_answered, only_new=True, held=held)
    return None if live is None else commit(base.path, provisional, **about, state=base.state, live=live)


def commit_removal(base: StoreInfo, removal: Removal) -> StoreInfo:
    """Commit a state again, without the rows that are to be removed.

    Parameters
    ----------
    base
        The latest state of a store.
    removal
        Which files go, and which files take their place.

    Returns
    -------
    StoreInfo
        The new state. It says what was removed.

    Raises
    ------
    StoreConflictError
        If somebody else committed in between.
    StoreError
        If the file system refuses.
    """
    live = None
    if base.live is not None:
        live = Live(parts=_provisional(base, LIVE_TABLES), content=base.live, base=base)
    about = _about_same_graph(base)
    about["run"] = {**base.run, **_of_removed(removal.removed, removal.remembered)}
    about["unchanged"] = set(about["unchanged"]) - set(removal.swaps)
    parts = _provisional(base, GROWING)
    for name, swap in removal.swaps.items():
        parts[name] = [part for part in parts.get(name, ()) if part not in swap.removed]
    state = with_sends(base.state, removal.remembered.files, instead=Remembered.of(base).files)
    return commit(base.path, parts, **about, state=state, live=live, swaps=removal.swaps)


def _of_removed(removed: Removed, remembered: Remembered) -> dict[str, Any]:
    """Return the entries of a run that say what is gone of it, and what stays known of that."""
    return {REMOVED: removed._asdict(), REMEMBERED: remembered._asdict()}


def _provisional(base: StoreInfo, tables: Iterable[str]) -> dict[str, list[PartFile]]:
    return {name: base.provisional(name) for name in tables}


def _about_same_graph(base: StoreInfo) -> About:
    """Return what a commit says of itself if its graph is the one of the state before it."""
    return {
        "run": base.run,
        "closed_epochs": base.closed_epochs,
        "dropped": base.dropped,
        "events": base.events,
        "previous": base,
        "keep": True,
        "unchanged": set(STORE_TABLES) - {"epochs"},
    }


def _last_of(info: StoreInfo) -> int:
    """Return the last epoch of a state to be answered (see `last_to_answer`)."""
    begin = saved.load(info)
    complete = begin is not None and begin.complete
    last = info.scan("epochs").select(pl.col("epoch").max()).collect().item() if complete else None
    if last is not None:
        return int(last)
    # Older releases did not distinguish closed from answered epochs: all closed ones were answered.
    return int(info.run.get("last_answered_epoch", info.run["last_closed_epoch"]))
