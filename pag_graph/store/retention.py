"""What a follower keeps of a run that goes on for ever: the latest epochs, and all that their windows show.

Which rows go is decided row by row. A file in which some stay is written anew, so this is done when there is a quarter
more than is to be kept: a row is then written again a few times at most. A thread writes such files while the follower
goes on; a commit then takes them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from pag_graph.errors import InvalidParameterError, PagGraphError
from pag_graph.model.enums import RuleSet
from pag_graph.model.units import count_of, nanoseconds
from pag_graph.store.capacity import enough_memory
from pag_graph.store.compaction import Swap
from pag_graph.store.cut_segments import cut_segments
from pag_graph.store.delta import Removed
from pag_graph.store.fresh import rows_of_files
from pag_graph.store.needed import first_needed
from pag_graph.store.parts import discard, write_part
from pag_graph.store.remembered import Remembered, remember, segments_before
from pag_graph.store.state_files import discard_sends
from pag_graph.store.traffic import TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from pag_graph.store.compaction import Compaction
    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.parts import PartFile
    from pag_graph.store.remembered import Nesting

    Nests = Callable[[StoreInfo, int, int], Nesting]
    """Says, of a state, the first epoch that stays and when its window opens, how activities nest that go."""
    Unread = Callable[[], pl.DataFrame]
    """Returns the sends that may still be read, as of the latest state: ``id`` and ``epoch``."""

_SLACK = 4
"""A part of what is kept may be there beside it before anything is removed: one such part."""
_NEEDED_TIMES = 2
"""How many times as much as is to be kept stays at most, for a process that still has to read it."""


class Keep(NamedTuple):
    """How much of a run to keep; all of it where neither is given."""

    epochs: int | None = None
    """So many epochs that are answered, and all that are not."""
    span_ns: int | None = None
    """Epochs that ended at most so long before the last answered one, by the time of the run."""

    @classmethod
    def of(cls, text: str) -> Keep:
        """Read what `pag follow --keep` takes.

        Parameters
        ----------
        text
            ``all``, a number of epochs, or a time with its unit, such as ``24h``.

        Returns
        -------
        Keep
            What it says.

        Raises
        ------
        InvalidParameterError
            If it says nothing of that, or to keep nothing.

        Examples
        --------
        >>> Keep.of("500"), Keep.of("2s").span_ns
        (Keep(epochs=500, span_ns=None), 2000000000)
        """
        if text == "all":
            return cls()
        epochs = count_of(text)
        if epochs is None and text.isdigit():
            message = f"{text[:20]}... is more than any run has."
            raise InvalidParameterError(message, "Give a number of epochs, or a time such as 24h.")
        keep = cls(span_ns=nanoseconds(text)) if epochs is None else cls(epochs=epochs)
        if not (keep.epochs or keep.span_ns):
            message = f"{text!r} would keep nothing."
            raise InvalidParameterError(message, "Give a number of epochs, or a time such as 24h.")
        return keep

    def first(self, info: StoreInfo, *, exactly: bool = False) -> int | None:
        """Return the first epoch of a store that stays.

        Parameters
        ----------
        info
            A state of the store.
        exactly
            Whether to remove also a few epochs.

        Returns
        -------
        int or None
            None where nothing is to go. Reads a row per epoch, but only if that can be. What another process still has
            to read (`pag_graph.store.needed`) stays, up to as much again as is kept.
        """
        if not (self.epochs or self.span_ns) or not (exactly or self._exceeded(info)):
            return None
        rows = info.scan("epochs").filter(pl.col("epoch") <= int(info.run["last_answered_epoch"])).sort("epoch")
        epochs = rows.select("epoch", "end_ns").collect()
        kept_epochs = self._latest(epochs, info)
        needed = first_needed(info.path)
        if needed is not None and kept_epochs.height and needed < kept_epochs["epoch"][0]:
            least = kept_epochs.height
            kept_epochs = self._latest(epochs, info, times=_NEEDED_TIMES).filter(pl.col("epoch") >= needed)
            if not exactly and (epochs.height - kept_epochs.height) * _SLACK < least:
                return None
        return (
            int(kept_epochs["epoch"][0])
            if kept_epochs.height < epochs.height or (kept_epochs.height and _late(info))
            else None
        )

    def _latest(self, epochs: pl.DataFrame, info: StoreInfo, times: int = 1) -> pl.DataFrame:
        """Return the epochs that stay, of all in order, where so many times as much is to be kept."""
        recent = 0
        if self.span_ns is not None:
            recent = epochs.filter(pl.col("end_ns") >= pl.col("end_ns").last() - times * self.span_ns).height
        return epochs.tail(max(recent, times * self._least(info)))

    def _exceeded(self, info: StoreInfo) -> bool:
        """Say, by what is known of files, whether a store may hold so much more that it is worth while."""
        least = self._least(info)
        rows = sum(part.rows for part in info.table("epochs").files.values())
        if rows < least + max(least // _SLACK, 1):
            return False
        if self.epochs is not None:
            return True
        bounds, span_ns = info.bounds("epochs"), self.span_ns or 0
        if not bounds.height:
            return False
        span_held: Any = bounds.select(pl.col("max_end_ns").max() - pl.col("min_end_ns").min()).item()
        return int(span_held) > span_ns + span_ns // _SLACK

    def _least(self, info: StoreInfo) -> int:
        """Return how many epochs stay in any case: standing queries look back that far."""
        return max(self.epochs or 0, int((info.live or {}).get("last", 0)))


def _late(info: StoreInfo) -> bool:
    """Say whether rows of an epoch came when it was gone: a message counts as traffic of the epoch that sent it."""
    if info.removed is None or TRAFFIC not in info.versions:
        return False
    return bool((info.bounds(TRAFFIC)["min_epoch"] <= info.removed.last_epoch).any())


class Removal(NamedTuple):
    """What is to be taken out of a store with the next commit."""

    swaps: dict[str, Swap]
    """Per table: files that go, and those with what stays of them."""
    removed: Removed
    """All that is gone then."""
    remembered: Remembered
    """What stays known of it."""


def removal(info: StoreInfo, first: int, nests: Nests | None = None, unread: pl.DataFrame | None = None) -> Removal:
    """Write what stays of files that hold older rows.

    Parameters
    ----------
    info
        The latest state of a store.
    first
        The first epoch that stays.
    nests
        Says how activities nest, where the source states them.
    unread
        Sends that may still be read, ``id`` and ``epoch``: an edge that comes later begins there.

    Returns
    -------
    Removal
        What stays are rows that carry `first` or a later epoch; edges that end, or begin, after the instant at which
        the window of `first` opens; vertices after it, those at which such edges begin or end, those that say which
        stated activities are open there, and sends that may still be read; findings and alerts.

    Raises
    ------
    StoreError
        If a file is damaged, the file system refuses, or memory runs out.
    """
    before = info.scan("epochs").filter(pl.col("epoch") < first).select("epoch", "end_ns").sort("epoch").collect()
    removed, older = info.removed or Removed(0, -1, 0), pl.col("epoch") < first
    if before.height:
        removed = Removed(removed.epochs + before.height, int(before["epoch"][-1]), int(before["end_ns"][-1]))
    opens_ns = removed.end_ns
    end_ns = pl.max_horizontal("start_ns", pl.col("start_ns") + pl.col("duration_ns"))
    all_older = pl.col("max_epoch") < first
    last_end_ns = pl.col("max_start_ns") + pl.max_horizontal("max_duration_ns", pl.lit(0))
    cuts, remembered, stays = _Cuts(info, first), Remembered(), ~older | (end_ns > opens_ns)
    try:
        with enough_memory(f"To remove the epochs before {first} from {info.path}"):
            nesting = nests(info, first, opens_ns) if nests and info.run["rules"] == str(RuleSet.STATED) else None
            remembered = remember(info, first, ~stays, nesting)
            more = [] if nesting is None else [nesting.stay]
            more += [] if unread is None else [unread.filter(older)]
            cuts.cut("edges", stays, all_older & (last_end_ns <= opens_ns))
            which = {"edges": stays, "vertices": cuts.cut_vertices(opens_ns, more)}
            cut = cut_segments(info, cuts.swaps, which, opens_ns, segments_before(info))
            remembered = remembered.and_segments(info, cut)
            for name in (TRAFFIC, "changes", "epochs"):
                if name in info.versions:
                    cuts.cut(name, ~older, all_older)
    except BaseException:
        _withdraw(info, cuts.swaps, remembered)
        raise
    return Removal(cuts.swaps, removed, remembered)


def _withdraw(info: StoreInfo, swaps: Mapping[str, Swap], remembered: Remembered) -> None:
    """Delete what was written for a removal that no commit takes."""
    for name, swap in swaps.items():
        discard(info.path, name, swap.added)
    discard_sends(info.path, remembered.files)


class _Begun(NamedTuple):
    """A removal that is being written."""

    base: StoreInfo
    """The state that it is for."""
    first: int
    work: Future[Removal]

    def holds(self, gone: Removal, info: StoreInfo) -> bool:
        """Say whether a later state still has all files that are to go."""
        return all(part.path in info.table(name).files for name, swap in gone.swaps.items() for part in swap.removed)


class Retention:
    """Writes removals for a store that one process commits to, beside its commits.

    Parameters
    ----------
    compaction
        Joins files of this store. Nothing is joined from when a removal is due until it is over, for it may go.
    nests
        As for `removal`.
    unread
        Returns what `removal` is to know of sends.
    """

    def __init__(self, compaction: Compaction, nests: Nests | None = None, unread: Unread | None = None) -> None:
        self._compaction, self._nests, self._unread = compaction, nests, unread
        self._begun: _Begun | None = None

    def ready(self, info: StoreInfo, keep: Keep, *, exactly: bool = False) -> Removal | None:
        """Return what the next commit is to remove: nothing while it is being written, unless `exactly`.

        Parameters
        ----------
        info
            The latest state of the store.
        keep
            What stays.
        exactly
            Whether to remove also a few epochs, and at once.

        Raises
        ------
        StoreError
            If a file is damaged, the file system refuses, or memory runs out.
        """
        if exactly:
            self.give_up()
            self._compaction.give_up()
            first = keep.first(info, exactly=True)
            return None if first is None else self._removal(info, first)()
        if self._begun is None:
            if (first := keep.first(info)) is not None:
                work = self._compaction.instead(self._removal(info, first))
                self._begun = None if work is None else _Begun(info, first, work)
            return None
        if not self._begun.work.done():
            return None
        begun, self._begun = self._begun, None
        self._compaction.go_on()
        gone = begun.work.result()
        if begun.holds(gone, info):
            return gone
        _withdraw(info, gone.swaps, gone.remembered)
        return self._removal(info, begun.first)()

    def _removal(self, info: StoreInfo, first: int) -> Callable[[], Removal]:
        """Return what writes a removal; which sends are unread is asked for now."""
        return partial(removal, info, first, self._nests, self._unread() if self._unread else None)

    def give_up(self) -> None:
        """Wait for what is being written, and remove it: no commit takes it."""
        begun, self._begun = self._begun, None
        self._compaction.go_on()
        if begun is not None:
            # What could not be written has been removed.
            with suppress(PagGraphError):
                gone = begun.work.result()
                _withdraw(begun.base, gone.swaps, gone.remembered)


class _Cuts:
    """Files of a store that are replaced by what stays of them."""

    def __init__(self, info: StoreInfo, first: int) -> None:
        self._info, self._first = info, first
        self.swaps: dict[str, Swap] = {}

    def cut(self, table: str, stays: pl.Expr, gone: pl.Expr) -> None:
        """Leave some rows of the files that can hold others, and none, unread, of those whose bounds are `gone`."""
        added: list[PartFile] = []
        removed: list[PartFile] = []
        # Known from here on, so that what is written is removed if the rest cannot be.
        self.swaps[table] = Swap((), (), same_rows=False)
        empty = {part.path for part in self._info.parts(table, gone.fill_null(value=False))}
        for part in self._info.parts(table, pl.col("min_epoch") < self._first):
            if part.path in empty:
                removed.append(part)
            else:
                rows = self._read(table, part)
                kept_rows = rows.filter(stays)
                if kept_rows.height < rows.height:
                    removed.append(part)
                    new_part = write_part(self._info.path, table, kept_rows.to_arrow(), provisional=part.provisional)
                    added += [new_part] if new_part else []
            self.swaps[table] = Swap(tuple(added), tuple(removed), same_rows=False)

    def cut_vertices(self, opens_ns: int, more: Sequence[pl.DataFrame]) -> pl.Expr:
        """Leave the vertices that are shown, and some more, when edges are cut; say which of them stay."""
        ends = pl.concat([self.ends_of_edges(), *more])
        in_view = pl.col("id").is_in(ends["id"].implode()) | (pl.col("t_ns") > opens_ns)
        # Ids say nothing of time; the epochs of those few vertices do.
        epochs = pl.lit(ends["epoch"].sort())
        up_to_last = epochs.search_sorted(pl.col("max_epoch"), side="right")
        without_ends = up_to_last == epochs.search_sorted(pl.col("min_epoch"), side="left")
        all_older = pl.col("max_epoch") < self._first
        stays = (pl.col("epoch") >= self._first) | in_view
        self.cut("vertices", stays, all_older & (pl.col("max_t_ns") <= opens_ns) & without_ends)
        return stays

    def ends_of_edges(self) -> pl.DataFrame:
        """Return the vertices before the first epoch at which edges that stay begin or end: ``id`` and ``epoch``."""
        first = self._first
        near = (pl.col("min_epoch") < first) | (pl.col("min_src_epoch") < first)
        swap = self.swaps["edges"]
        removed = {part.path for part in swap.removed}
        stay = [part for part in self._info.parts("edges", near) if part.path not in removed]
        vertices = [pl.DataFrame(schema={"id": pl.Int64, "epoch": pl.Int64})]
        for part in (*stay, *swap.added):
            rows = self._read("edges", part)
            for end, epoch in (("src", "src_epoch"), ("dst", "epoch")):
                vertices.append(rows.filter(pl.col(epoch) < first).select(id=end, epoch=epoch))
        return pl.concat(vertices).unique()

    def _read(self, table: str, part: PartFile) -> pl.DataFrame:
        return rows_of_files(self._info.path.absolute() / table, [part], self._info.fresh).collect()
