"""How long epochs took, and which phase of which operation each belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.analyses.rescaling.settled import LEAST, settling
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import WARM_UP_ROUNDS, EpochRole, EventKind
from pag_graph.model.units import FARTHEST_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.analyses.rescaling.operations import Operation
    from pag_graph.graph.run import Run

    I64 = NDArray[np.int64]

RESPONSE, SERVICE = "response", "service"
BEFORE, BOOTSTRAP, SETTLING, AFTER, START = "before", "bootstrap", "settling", "after", "start"
PHASES = (BEFORE, BOOTSTRAP, SETTLING, AFTER)


class Period(NamedTuple):
    """When the input of epochs is due, by the clock."""

    period_ns: int
    """From one epoch to the next."""
    first_ns: int
    """When that of epoch 0 is due, from the run's origin."""

    def due_ns(self, epoch: I64) -> I64:
        """Return when the input of epochs was due.

        Parameters
        ----------
        epoch
            Numbers of epochs.

        Returns
        -------
        array of int64
            Per epoch: nanoseconds since the run's origin.

        Raises
        ------
        InvalidParameterError
            If the period is not positive, or input would be due at a time that no trace can have.
        """
        if self.period_ns < 1:
            message = f"The period is {self.period_ns} ns; it must be at least 1."
            raise InvalidParameterError(message)
        for number in (0, int(epoch.max(initial=0))):
            due_ns = self.first_ns + self.period_ns * number
            if abs(due_ns) > FARTHEST_NS:
                message = f"The input of epoch {number} would be due at {due_ns} ns; times lie within 2^62 ns."
                raise InvalidParameterError(message, "Times count from the run's origin; `--first` is that of epoch 0.")
        return self.first_ns + self.period_ns * epoch


class DueTimes(NamedTuple):
    """When the input of each epoch was due, as the program said."""

    by_number: Mapping[int, int]
    """Per number of an input, which is that of its epoch: when it was due, from the run's origin."""

    def due_ns(self, epoch: I64) -> I64:
        """Return when the input of epochs was due.

        Parameters
        ----------
        epoch
            Numbers of epochs.

        Returns
        -------
        array of int64
            Per epoch: nanoseconds since the run's origin.

        Raises
        ------
        InvalidParameterError
            If the trace does not say it of one of them.
        """
        silent = [number for number in epoch.tolist() if number not in self.by_number]
        if silent:
            message = f"The trace does not say when the input of epoch {silent[0]} was due."
            raise InvalidParameterError(message, "Input n must be that of epoch n; else give --period and --first.")
        return np.array([self.by_number[number] for number in epoch.tolist()], np.int64)


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """The rounds of a run, in time order: one element each. Times are nanoseconds since the run's origin."""

    epoch: I64
    """Its number."""
    begin_ns: I64
    """First event on any worker."""
    end_ns: I64
    """When the last worker had completed it."""
    due_ns: I64 | None
    """When its input was due; None where nobody says."""
    run_end_ns: int
    """The run's end."""

    @property
    def latency_ns(self) -> I64:
        """From when an epoch was due, or else from its first event, to its end."""
        return self.end_ns - (self.begin_ns if self.due_ns is None else self.due_ns)

    @property
    def kind(self) -> str:
        """What the latencies are."""
        return SERVICE if self.due_ns is None else RESPONSE

    @property
    def warm_ns(self) -> int:
        """When the third round was complete; where there is none, the run's origin."""
        return int(self.end_ns[:WARM_UP_ROUNDS].max(initial=0))

    @property
    def last_ns(self) -> int:
        """When the last round was complete; where there is none, the run's end."""
        return int(self.end_ns[-1]) if len(self.end_ns) else self.run_end_ns

    def inside(self, start_ns: int, end_ns: int) -> I64:
        """Return the rounds that were complete in a stretch.

        Parameters
        ----------
        start_ns, end_ns
            The stretch, which is open at its start.

        Returns
        -------
        array of int
            Places of the rounds.
        """
        return np.flatnonzero((self.end_ns > start_ns) & (self.end_ns <= end_ns))

    def across(self, start_ns: int, end_ns: int) -> I64:
        """Return the rounds that were under way in a stretch.

        Parameters
        ----------
        start_ns, end_ns
            The stretch; the same instant twice stands for that instant.

        Returns
        -------
        array of int
            Places of the rounds.
        """
        return np.flatnonzero((self.end_ns > start_ns) & (self.begin_ns < max(end_ns, start_ns + 1)))


def epochs_of(run: Run, schedule: Period | DueTimes | None) -> Epochs:
    """Return the rounds of a run.

    A round's window closes when the first worker sees it complete; here the last one counts. Where no log says when
    epochs end, the window does.

    Parameters
    ----------
    run
        A committed run; it may have no rounds.
    schedule
        When their input was due; None where nobody says.

    Returns
    -------
    Epochs
        By completion, then number.
    """
    rounds = run.epochs.filter(pl.col("role") == str(EpochRole.ROUND)).lazy()
    ends = run.scan("vertices").filter(pl.col("kind") == str(EventKind.EPOCH_END))
    last = ends.group_by("epoch").agg(last_ns=pl.col("t_ns").max())
    rows = (
        rounds.join(last, on="epoch", how="left")
        .with_columns(end_ns=pl.max_horizontal("end_ns", "last_ns"))
        .sort("end_ns", "epoch")
        .collect()
    )
    epoch, end = rows["epoch"].to_numpy(), rows["end_ns"].to_numpy()
    # An epoch without a logged event took the time of its window.
    begin = rows["entry_ns"].fill_null(rows["start_ns"]).to_numpy()
    due_ns = None if schedule is None else schedule.due_ns(epoch)
    return Epochs(epoch=epoch, begin_ns=np.minimum(begin, end), end_ns=end, due_ns=due_ns, run_end_ns=run.end_ns)


@dataclass(frozen=True, kw_only=True)
class Course:
    """An operation, and how latencies went on after it."""

    operation: Operation
    before_ns: int
    """When what it is compared with begins."""
    until_ns: int
    """The next request, or the end of the last round."""
    status: str
    """As of `Settling`."""
    settled_ns: int | None
    """When latencies had settled; None where they never did."""

    def bounds(self, phase: str) -> tuple[int, int] | None:
        """Return where a phase begins and ends.

        Parameters
        ----------
        phase
            One of the phases of this module.

        Returns
        -------
        tuple or None
            Nanoseconds since the run's origin; None where there is no such phase.
        """
        request_ns, ready_ns = self.operation.request_ns, self.operation.ready_ns
        settled = self.until_ns if self.settled_ns is None else self.settled_ns
        phase_bounds = {
            BEFORE: (self.before_ns, request_ns),
            BOOTSTRAP: (request_ns, ready_ns),
            SETTLING: (ready_ns, settled),
            AFTER: (settled, self.until_ns),
        }[phase]
        if phase == AFTER and self.settled_ns is None:
            return None
        return phase_bounds[0], max(phase_bounds)

    def places(self, epochs: Epochs, phase: str) -> I64:
        """Return the rounds of a phase.

        Parameters
        ----------
        epochs
            The rounds of the run.
        phase
            One of the phases of this module.

        Returns
        -------
        array of int
            Places of the rounds; what overlaps the bootstrap belongs to that alone.
        """
        across = epochs.across(self.operation.request_ns, self.operation.ready_ns)
        if phase == BOOTSTRAP:
            return across
        bounds = self.bounds(phase)
        if bounds is None:
            return np.empty(0, np.int64)
        return np.setdiff1d(epochs.inside(*bounds), across)

    def latencies(self, epochs: Epochs, phase: str) -> I64:
        """Return the latencies of the rounds of a phase.

        Parameters
        ----------
        epochs
            The rounds of the run.
        phase
            One of the phases of this module.

        Returns
        -------
        array of int64
            Nanoseconds, one per round of the phase.
        """
        return epochs.latency_ns[self.places(epochs, phase)]


def courses(operations: Sequence[Operation], epochs: Epochs) -> list[Course]:
    """Say how latencies went on after each operation.

    In a run of too few rounds they can never settle, so that its operations are listed each for itself.

    Parameters
    ----------
    operations
        In time order.
    epochs
        The rounds of the run.

    Returns
    -------
    list of Course
        In time order. What is asked for before latencies settled is part of the operation before it.
    """
    comparable = len(epochs.epoch) >= LEAST
    finished: list[Course] = []
    todo = list(operations)
    while todo:
        operation = todo.pop(0)
        before = finished[-1].settled_ns if finished else None
        course = _course(operation, todo[0].request_ns if todo else None, epochs, before)
        if comparable and todo and (course.settled_ns is None or course.settled_ns >= todo[0].request_ns):
            todo[0] = operation.and_also(todo[0])
            continue
        finished.append(course)
    return finished


def _course(operation: Operation, following_ns: int | None, epochs: Epochs, before_ns: int | None) -> Course:
    until_ns = epochs.last_ns if following_ns is None else following_ns
    across = epochs.across(operation.request_ns, operation.ready_ns)
    after = np.setdiff1d(epochs.inside(operation.ready_ns, until_ns), across)
    status, first = settling(epochs.latency_ns[after])
    return Course(
        operation=operation,
        before_ns=epochs.warm_ns if before_ns is None else before_ns,
        until_ns=until_ns,
        status=status,
        settled_ns=None if first is None else int(epochs.end_ns[after[first]]),
    )
