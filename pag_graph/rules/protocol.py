"""What a rule set owes the builder. Modules implement this: `timely`, `stated`, `st2` (`pag_graph.rules.registry`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.model.enums import Severity
    from pag_graph.rules.graph_columns import GraphColumns
    from pag_graph.rules.rows import Graph, Judged, Open, RuleParameters, Survey, WorkerRows

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]
    Wanted = Callable[[I8, I8, I8], NDArray[np.bool_]]
    """Says of each row whether a slice may begin with it; asked with the kinds of the rows before, of the rows
    themselves, and of the rows after them."""

__all__ = ["Before", "IslandRules", "Life", "Logged", "Remark", "Rules", "Setting", "WaitRules"]


class Setting(NamedTuple):
    """What of a run the rules need to judge the waits of any worker."""

    processes: I64
    """Per worker: its process."""
    uncertainty: I64
    """Per worker: how far its clock may be off, in ns."""
    parameters: RuleParameters
    """Those of the build."""
    idle_inferred: bool
    """Whether it has to be found out when workers had nothing to do, because the log does not say it."""


class Before(NamedTuple):
    """What a worker's rows go on from."""

    pos: int
    """Position of the worker's last vertex; -1 where there is none."""
    t: int
    """Time of it."""
    segment: int
    """Position of the vertex that starts the open segment; -1 where there is none."""
    activities: Sequence[Open]
    """What is open, outermost first, under rules that carry it."""


class Life(NamedTuple):
    """How a worker comes and goes."""

    born: bool
    """Whether its life begins with its first event."""
    exits: bool
    """Whether it ends with its last one."""
    run_end_ns: int
    """The run's end: that of the lives of all others."""


class Logged(NamedTuple):
    """How far the logs of a run go that goes on, from where one worker stands."""

    all_ns: int
    """The last instant that all logs have reached."""
    others_ns: int
    """What the other workers log from now on happens at this instant or later."""
    unread_ns: int
    """When the first message was sent to the worker that it has not read; later than all if there is none."""


class Remark(NamedTuple):
    """What is odd about some rows of a worker: a finding per row."""

    name: str
    """Name of the finding."""
    severity: Severity
    """Its severity."""
    action: str
    """What was made of it."""
    rows: I64
    """Places of the rows, ascending."""


class _Facts(Protocol):
    """What a rule set says of itself."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of events that only these rules ask for."""
        ...

    @property
    def aligned(self) -> bool:
        """Whether all times of a run are on one clock."""
        ...

    @property
    def epochs_are_islands(self) -> bool:
        """Whether nothing leads from one epoch to another: then these are `IslandRules`."""
        ...

    @property
    def states_activities(self) -> bool:
        """Whether the source says itself what workers did, when they waited and when messages arrived."""
        ...

    @property
    def reads_prepared(self) -> bool:
        """Whether a trace that SnailTrail 2 prepared holds all that the rules need."""
        ...

    @property
    def reads_idleness(self) -> bool:
        """Whether waits are looked for where workers had nothing to do."""
        ...

    @property
    def no_place_to_cut(self) -> str:
        """Why a log cannot be cut somewhere, for a message."""
        ...


_Survey = TypeVar("_Survey", bound="Survey")
_Judged = TypeVar("_Judged", bound="Judged")


class WaitRules(_Facts, Protocol[_Survey, _Judged]):
    """Rules that find out who waited for whom, over the borders of slices and epochs."""

    def safe_cut(self, parks: Callable[[], bool], /) -> Wanted:
        """Say which rows of a worker may begin a slice.

        Parameters
        ----------
        parks
            Tells whether the worker ever parks.

        Returns
        -------
        Wanted
            Neither side of such a row needs more of the other than `Before`.
        """
        ...

    def survey(self, rows: WorkerRows, /) -> _Survey:
        """Say what the rows of one worker tell by themselves.

        Parameters
        ----------
        rows
            Rows of the worker; messages are not matched yet.

        Returns
        -------
        Survey
            O(rows) in time and memory.
        """
        ...

    def settle(self, rows: WorkerRows, surveyed: _Survey, setting: Setting, /) -> _Survey:
        """Add to the survey of one worker what can only be said when its messages are matched.

        Parameters
        ----------
        rows, surveyed
            The worker's rows, `sent` filled in, and their survey.
        setting
            Of the run.

        Returns
        -------
        Survey
            The same, where nothing needs to be added.
        """
        ...

    def judge(self, rows: WorkerRows, surveyed: _Survey, setting: Setting, before: Sequence[Open], /) -> _Judged:
        """Judge the waits of one worker, whose received messages are matched.

        Parameters
        ----------
        rows, surveyed
            The worker's rows, `sent` filled in, and their survey.
        setting
            Of the run.
        before
            Activities that are open before these rows.

        Returns
        -------
        Judged
            O(rows) in time and memory.
        """
        ...

    def last_wait(self, rows: WorkerRows, surveyed: _Survey, setting: Setting, /) -> int | None:
        """Return the position of the vertex that ends the last wait of one worker.

        Parameters
        ----------
        rows, surveyed, setting
            As for `judge`; messages are matched as far as their sends are known.

        Returns
        -------
        int or None
            -1 if there is no wait; None if what other slices know may tell otherwise.
        """
        ...

    def certain(self, rows: WorkerRows, surveyed: _Survey, setting: Setting, logged: Logged, /) -> int:
        """Return how many rows of one worker mean what they mean, whatever the logs of a run go on with.

        Parameters
        ----------
        rows, surveyed, setting
            As for `judge`; messages are matched as far as their sends are known.
        logged
            How far the logs go.

        Returns
        -------
        int
            Rows from the first one on; the row after them may begin a slice. 0 where only `safe_cut` tells.
        """
        ...

    def worker_graph(
        self, rows: WorkerRows, surveyed: _Survey, judged: _Judged, before: Before, life: Life, /
    ) -> Graph:
        """Chain the rows of one worker to vertices and local edges that tile its life.

        Parameters
        ----------
        rows, surveyed, judged
            The worker's rows and what the rules say of them.
        before
            What they go on from.
        life
            How the worker comes and goes.

        Returns
        -------
        tuple
            As `pag_graph.kernels.assembly.local_graph`, in O(rows).
        """
        ...

    def extra_findings(self, rows: WorkerRows, surveyed: _Survey, judged: _Judged, /) -> list[Remark]:
        """Say what is odd about the rows of one worker under these rules alone.

        Parameters
        ----------
        rows, surveyed, judged
            The worker's rows and what the rules say of them.

        Returns
        -------
        list of Remark
            One per kind of finding; those without rows do not count.
        """
        ...


class IslandRules(_Facts, Protocol):
    """Rules to which nothing leads from one epoch to another: any epochs can be built without the others."""

    def build_columns(
        self, rows: Sequence[WorkerRows], *, workers: int, prepared: bool, operators: pa.Table
    ) -> tuple[GraphColumns, pa.Table]:
        """Build the graph of some epochs.

        Parameters
        ----------
        rows
            Per worker, ascending: all events of these epochs, times on its own clock.
        workers
            How many workers the trace has.
        prepared
            Whether SnailTrail 2 removed and moved rows already.
        operators
            Rows of `TRACE_OPERATORS`.

        Returns
        -------
        columns
            Vertices and edges in the order of the store.
        ends
            Ends of messages that lack the other one in their epoch, for `message_findings`.
        """
        ...

    def message_findings(self, ends: pa.Table, /) -> pa.Table:
        """Say what became of messages that lack an end in their epoch.

        Parameters
        ----------
        ends
            As from `build_columns`, of all slices.

        Returns
        -------
        Table
            Rows of `PAG_FINDINGS`, one per such end.
        """
        ...


Rules = WaitRules[Any, Any] | IslandRules
