"""What a committed run says of itself: its tables, its workers, and what its rules promise."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.errors import UnsupportedPlanError
from pag_graph.graph import needs
from pag_graph.graph.membership import epochs_between
from pag_graph.graph.peers import peers_of, time_in_operators
from pag_graph.model.enums import RuleSet
from pag_graph.model.units import printable
from pag_graph.store.delta import COMPLETE
from pag_graph.store.remembered import Remembered, ran_before
from pag_graph.store.traffic import TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.store.delta import StoreInfo

_LAST = 2**63 - 1
"""No epoch comes after it."""


class RunTables:
    """A committed run without its windows; `pag_graph.graph.run.Run` has them as well.

    Parameters
    ----------
    info
        The state of the store.
    """

    def __init__(self, info: StoreInfo) -> None:
        self.info = info
        self._scans: dict[str, pl.LazyFrame] = {}

    @property
    def rules(self) -> RuleSet:
        """Rule set that the run was built with: a name, for people. What follows from it, the properties below say."""
        return RuleSet(self.info.run["rules"])

    @property
    def aligned(self) -> bool:
        """Whether all instants are of one clock, so that times of different workers can be compared."""
        return needs.aligned(self.rules)

    @property
    def epochs_are_islands(self) -> bool:
        """Whether no edge leads from one epoch into another, so that an epoch is the whole window."""
        return needs.epochs_are_islands(self.rules)

    @property
    def one_dataflow(self) -> bool:
        """Whether all workers run the same: else the source stated what each did, and they can be anything."""
        return needs.one_dataflow(self.rules)

    @property
    def has_traffic(self) -> bool:
        """Whether there is the table `traffic`, which stores of earlier releases lack."""
        return TRAFFIC in self.info.tables

    def require_aligned(self, what: str, hint: str = "Build the trace with `--rules timely`.") -> None:
        """Refuse what compares times of different workers, where that means nothing.

        Parameters
        ----------
        what
            What needs aligned clocks, as the beginning of a sentence.
        hint
            What to do instead.

        Raises
        ------
        UnsupportedPlanError
            If every worker keeps its own clock.
        """
        if not self.aligned:
            message = f"{what}, and runs of the rule set {self.rules} keep every worker's own."
            raise UnsupportedPlanError(message, hint)

    def require_whole(self, what: str) -> None:
        """Refuse what needs all epochs, where a follower has removed some.

        Parameters
        ----------
        what
            What needs them, as the beginning of a sentence.

        Raises
        ------
        UnsupportedPlanError
            If epochs were removed.
        """
        if (removed := self.info.removed) is not None:
            message = f"{what}, and its epochs up to {removed.last_epoch} were removed by its follower (`--keep`)."
            raise UnsupportedPlanError(message, "Build the trace into a store of its own: `pag build`.")

    def scan(self, table: str, near: pl.Expr | None = None) -> pl.LazyFrame:
        """Return a lazy frame over one of the store's tables, as committed.

        Parameters
        ----------
        table
            Out of `ALL_TABLES`.
        near
            A condition that leaves out files, as for `StoreInfo.scan`; rows are to be filtered.

        Returns
        -------
        LazyFrame
            Rows of the table.

        Raises
        ------
        StoreError
            If a file is missing or damaged.
        UnsupportedPlanError
            If the store is of a version that lacks the table.
        """
        # If a whole table was asked for, all of its files are checked.
        if table in self._scans:
            return self._scans[table]
        frame = self.info.scan(table, near)
        if near is None:
            self._scans[table] = frame
        return frame

    def between(self, table: str, low: int, high: int) -> pl.LazyFrame:
        """Return the rows of some epochs.

        Parameters
        ----------
        table
            Has a column `epoch`.
        low, high
            The first and the last epoch.

        Returns
        -------
        LazyFrame
            Rows whose epoch lies between them, both included.
        """
        return self.scan(table, epochs_between(low, high)).filter(pl.col("epoch").is_between(low, high))

    @cached_property
    def epochs(self) -> pl.DataFrame:
        """Rows of `PAG_EPOCHS`, in time order."""
        removed = self.info.removed
        rows = self.scan("epochs") if removed is None else self.between("epochs", removed.last_epoch + 1, _LAST)
        return rows.sort("epoch").collect()

    @cached_property
    def operators(self) -> pl.DataFrame:
        """Rows of `TRACE_OPERATORS`."""
        return self.scan("operators").collect()

    @cached_property
    def channels(self) -> pl.DataFrame:
        """Rows of `TRACE_CHANNELS`."""
        return self.scan("channels").collect()

    @cached_property
    def workers(self) -> list[int]:
        """Numbers of all workers, ascending."""
        return sorted(self.scan("workers").collect()["worker"].to_list())

    @cached_property
    def worker_names(self) -> dict[int, str]:
        """What people call the workers that have a name, as it can be printed."""
        rows = self.scan("workers").collect()
        name_rows = rows.drop_nulls("name").select("worker", "name").iter_rows() if "name" in rows.columns else ()
        return {worker: printable(name) for worker, name in name_rows if name}

    def worker_label(self, worker: int) -> str:
        """Return how to speak of a worker.

        Parameters
        ----------
        worker
            Number of the worker.

        Returns
        -------
        str
            Such as ``window-0 (worker 3)``; ``worker 3`` of one that has no name.
        """
        name = self.worker_names.get(worker)
        return f"worker {worker}" if name is None else f"{name} (worker {worker})"

    @cached_property
    def peers(self) -> dict[int, int]:
        """Per worker: the lowest of those that it can be compared with, because they run the same (see `peers_of`).

        Where the source does not state what its workers do, they all run one dataflow.
        """
        if self.one_dataflow:
            return dict.fromkeys(self.workers, self.workers[0])
        return peers_of(self.workers, time_in_operators(self.info))

    def peer_group(self, worker: int) -> list[int]:
        """Return the workers that a worker can be compared with.

        Parameters
        ----------
        worker
            Number of the worker.

        Returns
        -------
        list of int
            Ascending, the worker included.
        """
        return [peer for peer, group in self.peers.items() if group == self.peers[worker]]

    @property
    def unlike(self) -> bool:
        """Whether there are workers that cannot be compared with each other."""
        return len(set(self.peers.values())) > 1

    @property
    def complete(self) -> bool:
        """Whether the log had ended; of earlier releases, which did not say, it is taken for granted."""
        return bool(self.info.run.get(COMPLETE, True))

    @property
    def exchanged_before(self) -> Sequence[int]:
        """Channels on which a worker sent data to another one in epochs that were removed, of a dataflow."""
        return Remembered.of(self.info).exchanged

    @property
    def outermost_before(self) -> frozenset[int]:
        """Operators that were started with nothing around in epochs that were removed, where the source states that."""
        return frozenset(ran_before(self.info).filter("outermost")["operator"])

    @property
    def begin_ns(self) -> int:
        """Where the first window opens: the run's origin, or where what a follower has removed of it ends."""
        return 0 if self.info.removed is None else self.info.removed.end_ns

    @property
    def end_ns(self) -> int:
        """The run's end."""
        return int(self.info.run["end_ns"])
