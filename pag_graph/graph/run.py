"""A committed run: its tables, its workers, and the windows that it can be looked at through."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.errors import InvalidParameterError
from pag_graph.graph.columns import integers
from pag_graph.graph.run_tables import RunTables
from pag_graph.graph.snapshot import read_snapshot, read_snapshots
from pag_graph.graph.window import STRETCH, Window, two_instants, whole_number
from pag_graph.kernels import NEVER
from pag_graph.model.enums import EpochRole
from pag_graph.store.delta import REMOVED, Removed
from pag_graph.store.readers import open_held

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.readers import Hold

FEWEST = 100_000
"""Edges for which another task is worth its start."""
_MOST_WINDOWS = 100_000
_ROLES = (EpochRole.STARTUP, EpochRole.SHUTDOWN)
"""Parts of a run that are chosen by their roles; of rounds there are many."""
"""Windows of a series: each costs a look at the edges of all."""


class Run(RunTables):
    """A committed run, for reading.

    Parameters
    ----------
    path
        Directory of the store.

    Raises
    ------
    StoreNotFoundError
        If nothing is committed there.
    FormatVersionError
        If it was written in another version of contract 2.
    StoreError
        If its log is damaged.
    """

    def __init__(self, path: Path) -> None:
        # The hold keeps the version's files from being cleaned away while somebody reads them.
        info, self._hold = open_held(path)
        super().__init__(info)

    @classmethod
    def of(cls, info: StoreInfo, hold: Hold | None = None) -> Run:
        """Return the run of a state that is known: an older one, or one that is about to be committed.

        Parameters
        ----------
        info
            The state.
        hold
            Keeps its files from being cleaned away; None for a state that nobody removes meanwhile.

        Returns
        -------
        Run
            Reads nothing.
        """
        run = cls.__new__(cls)
        run.info, run._hold, run._scans = info, hold, {}  # noqa: SLF001  (its own)
        return run

    _stored: Run | None = None
    """The run as its store has it, where this one leaves out some of its epochs."""

    def until(self, last: int) -> Run:
        """Return the same run without the windows of later epochs.

        Parameters
        ----------
        last
            An epoch.

        Returns
        -------
        Run
            With the windows of epochs up to it; its edges are all there.
        """
        run = self._of_same(self.info)
        run.epochs = self.epochs.filter(pl.col("epoch") <= last)
        return run

    def since(self, epoch: int, instant_ns: int) -> Run:
        """Return the same run as if everything earlier were removed, except its edges, which are all there.

        Parameters
        ----------
        epoch
            Epochs from here on are there.
        instant_ns
            So are those whose windows end at or after this instant, from the run's origin.

        Returns
        -------
        Run
            With these epochs, and with the earlier ones of which something happens in their windows. Only the files of
            `epochs` that can hold them are read, however many there are before.
        """
        kept_rows = self._epochs_reaching(epoch=epoch, end_ns=instant_ns)
        if not kept_rows:
            return self
        # Their windows also show events of epochs that have ended before.
        kept_rows += self._epochs_reaching(exit_ns=min(start_ns for _, start_ns in kept_rows))
        first, start_ns = min(kept_rows)
        if start_ns <= self.begin_ns:
            return self
        removed = Removed(epochs=0, last_epoch=first - 1, end_ns=start_ns)
        run = self._of_same(replace(self.info, run={**self.info.run, REMOVED: removed._asdict()}))
        run.whole = self.whole
        return run

    @cached_property
    def whole(self) -> Run:
        """The run with all its epochs."""
        return self

    def _of_same(self, info: StoreInfo) -> Run:
        run = Run.of(info, self._hold)
        run._scans, run._stored = self._scans, self._stored or self  # noqa: SLF001  (its own)
        return run

    def _epochs_reaching(self, **least: int) -> list[tuple[int, int]]:
        """Return number and start of the epochs in which any of some columns is not less than something."""
        files, rows = ([pl.col(f"{of}{name}") >= value for name, value in least.items()] for of in ("max_", ""))
        reaching = self.scan("epochs", pl.any_horizontal(files)).filter(pl.any_horizontal(rows))
        return reaching.select("epoch", "start_ns").collect().rows()

    def window(
        self,
        *,
        epoch: int | None = None,
        role: EpochRole | str | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
    ) -> Window:
        """Return the window of an epoch, of the startup or shutdown, a free one, or an epoch's latency window.

        Parameters
        ----------
        epoch
            Number of the epoch, as in the `epochs` table.
        role
            ``startup`` or ``shutdown``, instead.
        between
            Start and end in nanoseconds from the run's origin, instead.
        latency
            Number of an epoch, instead: from its first event on any worker to its last. Such windows overlap where
            workers are not in step, so they are never summed.

        Returns
        -------
        Window
            O(epochs).

        Raises
        ------
        InvalidParameterError
            If there is no such window, or it has no length; the message says which there are. If more than one is
            asked for.
        UnsupportedPlanError
            If a free window is asked for and the run's clocks are not aligned.
        """
        choices = {"epoch": epoch, "role": role, "between": between, "latency": latency}
        given = [name for name, value in choices.items() if value is not None]
        if len(given) > 1:
            message = f"Give only one of epoch, role, between and latency; {', '.join(given)} were given."
            raise InvalidParameterError(message)
        if between is not None:
            return self._free(*two_instants(between))
        if latency is not None:
            return self._latency(whole_number(latency, "latency"))
        if epoch is not None:
            whole_number(epoch, "epoch")
        if role is not None and str(role) not in _ROLES:
            message = f"role is {role!r}, and must be {' or '.join(_ROLES)}."
            raise InvalidParameterError(message, "Choose a round by its epoch.")
        row = self._row(epoch, role)
        return self.stretch(
            row["start_ns"],
            row["end_ns"],
            epoch=row["epoch"],
            role=EpochRole(row["role"]),
            end_vertex=row["end_vertex"],
            follows=row["epoch"] != self.epochs["epoch"][0] or self.info.removed is not None,
            alone=self._one_round,
        )

    def choose(self, **choice: Any) -> Window:
        """Return the window that is meant.

        Parameters
        ----------
        **choice
            Arguments of `window`; None says nothing.

        Returns
        -------
        Window
            The slowest round where nothing is chosen.

        Raises
        ------
        InvalidParameterError
            As of `window`.
        """
        return self.window(**choice) if any(value is not None for value in choice.values()) else self.slowest()

    def windows(self, epochs: Collection[int] | None = None) -> list[Window]:
        """Return the windows of epochs.

        Parameters
        ----------
        epochs
            Numbers of epochs; None for all.

        Returns
        -------
        list of Window
            In time order; epochs without a row in the table `epochs` are left out.
        """
        # A follower asks for some hundreds of them at each commit: frames of rows with names take a multiple of that.
        ids = self.epochs["epoch"].to_numpy()
        numbers = np.arange(len(ids)) if epochs is None else np.flatnonzero(np.isin(ids, list(epochs)))
        rows = self.epochs[numbers]
        lowest = self._lowest_epochs(rows["start_ns"].to_numpy()).tolist()
        columns = (rows[name].to_list() for name in ("start_ns", "end_ns", "epoch", "role", "end_vertex"))
        # What was removed may have had no length.
        goes_on, roles = self.info.removed is not None, {str(role): role for role in EpochRole}
        return [
            Window(
                start_ns=start_ns,
                end_ns=end_ns,
                epoch=epoch,
                role=roles[role],
                end_vertex=end_vertex,
                lowest_epoch=low,
                follows=number > 0 or goes_on,
                alone=self._one_round,
            )
            for number, start_ns, end_ns, epoch, role, end_vertex, low in zip(
                numbers.tolist(), *columns, lowest, strict=True
            )
        ]

    def series(
        self, every_ns: int, *, step_ns: int | None = None, between: tuple[int, int] | None = None
    ) -> list[Window]:
        """Return windows of one length, side by side or sliding.

        Parameters
        ----------
        every_ns
            Length of a window.
        step_ns
            From one window's start to the next one's; the length where absent, so that they tile. Shorter, they
            overlap; longer, they are samples.
        between
            Start and end of the stretch to look at, in nanoseconds from the run's origin; the run where absent.

        Returns
        -------
        list of Window
            In time order. The first that would reach beyond the stretch's end is cut there, and is the last.

        Raises
        ------
        InvalidParameterError
            If the stretch does not lie in the run, a length is no whole number from 1, or there would be more than
            100,000 windows.
        UnsupportedPlanError
            If the run's clocks are not aligned.
        """
        every_ns = whole_number(every_ns, "every_ns")
        step = every_ns if step_ns is None else whole_number(step_ns, "step_ns")
        if every_ns < 1 or step < 1:
            message = f"Windows of {every_ns} ns, every {step} ns: both must be at least 1 ns."
            raise InvalidParameterError(message)
        stretch = self._free(*((self.begin_ns, self.end_ns) if between is None else two_instants(between)))
        # The first start whose window reaches the end is the last one.
        starts = range(
            stretch.start_ns, min(stretch.end_ns, max(stretch.end_ns - every_ns, stretch.start_ns) + step), step
        )
        if len(starts) > _MOST_WINDOWS:
            message = f"That makes {len(starts):,} windows; at most {_MOST_WINDOWS:,} are made."
            raise InvalidParameterError(message, "Ask for longer steps, or a shorter stretch.")
        return [self.stretch(start, min(start + every_ns, stretch.end_ns)) for start in starts]

    @property
    def rounds(self) -> list[int]:
        """Epochs that an analysis of the whole run looks at: those of rounds; all where there is no round."""
        rounds = self.epochs.filter(pl.col("role") == str(EpochRole.ROUND))
        return (rounds if rounds.height else self.epochs)["epoch"].to_list()

    @cached_property
    def _one_round(self) -> bool:
        if (self.epochs["role"] == str(EpochRole.ROUND)).any():
            return False
        return self.whole is self or self.whole._one_round  # noqa: SLF001  (its own)

    def slowest(self) -> Window:
        """Return the longest round.

        Returns
        -------
        Window
            Ties: the first one. Startup or shutdown only where the run has no round.
        """
        rounds = self.epochs.filter(pl.col("role") == str(EpochRole.ROUND))
        ranked = (rounds if rounds.height else self.epochs).with_columns(span=pl.col("end_ns") - pl.col("start_ns"))
        return self.window(epoch=ranked.sort("span", "epoch", descending=[True, False])["epoch"][0])

    def _row(self, epoch: int | None, role: EpochRole | str | None) -> dict[str, Any]:
        is_chosen = pl.col("epoch") == epoch if role is None else pl.col("role") == str(role)
        rows = self.epochs.filter(is_chosen).to_dicts()
        if not rows:
            epoch_ids = self.epochs["epoch"].to_list()
            sought = f"epoch {epoch}" if role is None else str(role)
            message = f"{self.info.path} has no {sought}; it has epochs {epoch_ids[0]} to {epoch_ids[-1]}."
            if (removed := self.info.removed) is not None:
                message += f" Those up to {removed.last_epoch} were removed by its follower (`--keep`)."
            raise InvalidParameterError(
                message, f"List them: `pag info {shlex.quote(str(self.info.path))}`.", {"epoch": epoch}
            )
        return rows[0]

    def _latency(self, epoch: int) -> Window:
        row = self._row(epoch, None)
        start, end = row["entry_ns"], row["exit_ns"]
        if start is None or start == end:
            events = "no event" if start is None else "all its events at one instant"
            message = f"Epoch {epoch} has {events}, and so no latency window."
            raise InvalidParameterError(message, f"Ask for its round: `--epoch {epoch}`.", {"epoch": epoch})
        return self.stretch(start, end, epoch=epoch)

    def _free(self, start_ns: int, end_ns: int) -> Window:
        self.require_aligned(
            "Free windows need aligned clocks", "Ask for an epoch, or build the trace with `--rules timely`."
        )
        first, last = self.begin_ns, self.end_ns
        if not first <= start_ns < end_ns <= last:
            message = f"The window {start_ns}..{end_ns} ns does not lie in the run, which goes from {first} to {last}."
            raise InvalidParameterError(message)
        return self.stretch(start_ns, end_ns)

    def stretch(self, start_ns: int, end_ns: int, **more: Any) -> Window:
        """Return the window between two instants of the run.

        Parameters
        ----------
        start_ns, end_ns
            Nanoseconds since the run's origin; the window may have no length.
        **more
            Other fields of `Window`.

        Returns
        -------
        Window
            Nothing is checked.
        """
        lowest = self._lowest_epochs(np.array([start_ns]))
        return Window(start_ns=start_ns, end_ns=end_ns, lowest_epoch=int(lowest[0]), **more)

    def _lowest_epochs(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bound the epochs that events at or after some instants can have, so that files without them are not read."""
        if self.epochs_are_islands:
            return np.zeros(len(starts), np.int64)
        exits, lowest_after = self._lowest_after
        lowest = lowest_after[np.searchsorted(exits, -starts, side="right")]
        removed_epoch, until_ns = (self._stored or self)._left_behind  # noqa: SLF001  (its own)
        return np.where(starts <= until_ns, np.minimum(lowest, removed_epoch), lowest)

    @cached_property
    def _left_behind(self) -> tuple[int, int]:
        """The lowest epoch of edges that stay of removed epochs, as later windows show them; and when the last ends."""
        removed = self.info.removed
        if removed is None:
            return 0, NEVER
        # Nobody knows any more when workers left these epochs: what happened then tells.
        edges = self.scan("edges", pl.col("min_epoch") <= removed.last_epoch)
        end = pl.max_horizontal("start_ns", pl.col("start_ns") + pl.col("duration_ns"))
        stayed = edges.filter(pl.col("epoch") <= removed.last_epoch).select(pl.col("epoch").min(), end=end.max())
        lowest, until_ns = stayed.collect().row(0)
        return (0, NEVER) if lowest is None else (lowest, until_ns)

    @cached_property
    def _lowest_after(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """When epochs are left, negated, ascending; and per number of these the lowest epoch that they stand for."""
        # A row stands for all epochs after the row before it: epochs that no worker ended have no row.
        before = -1 if self.info.removed is None else self.info.removed.last_epoch
        lowest = np.append(before, self.epochs["epoch"].to_numpy()[:-1]) + 1
        exits = integers(self.epochs["exit_ns"], NEVER)
        left = np.flatnonzero(exits != NEVER)
        left = left[np.argsort(-exits[left], kind="stable")]
        return -exits[left], np.append(0, np.minimum.accumulate(lowest[left]))

    def snapshot(self, window: Window) -> Snapshot:
        """Read the part of the graph that a window shows.

        Parameters
        ----------
        window
            One of the run's windows.

        Returns
        -------
        Snapshot
            As `pag_graph.graph.snapshot.read_snapshot` says.
        """
        return read_snapshot(self, window)

    def snapshots(self, windows: Sequence[Window]) -> Iterator[Snapshot]:
        """Read once what many windows show together.

        Parameters
        ----------
        windows
            Any of the run's windows.

        Yields
        ------
        Snapshot
            As `pag_graph.graph.snapshot.read_snapshots` says: one per window, in their order.
        """
        return read_snapshots(self, windows)

    def stretches(
        self, windows: Sequence[Window], edges: int = STRETCH, *, tasks: int = 1
    ) -> Iterator[Sequence[Window]]:
        """Divide windows into lists of neighbours that show about so many edges together.

        Parameters
        ----------
        windows
            In time order, unless epochs are islands, which have none.
        edges
            About how many edges the windows of a list show.
        tasks
            How many lists there are to be, at least; they are shorter then, though not by much where there is little to
            do.

        Yields
        ------
        sequence of Window
            One window at least. Those of a list neither begin nor end before the one before, unless epochs are islands.
        """
        all_edges = int(self.epochs["edges"].sum()) or 1
        edges = min(edges, max(FEWEST, -(-all_edges // tasks)))
        share = max(1, self.end_ns - self.begin_ns) * edges / all_edges
        any_order = self.epochs_are_islands
        begin = 0
        while begin < len(windows):
            end = begin + 1
            while (
                end < len(windows)
                and windows[end].end_ns - windows[begin].start_ns <= share
                and (any_order or windows[end - 1].begins_and_ends_before(windows[end]))
            ):
                end += 1
            yield windows[begin:end]
            begin = end
