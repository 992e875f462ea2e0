"""A window: a stretch of a run's time that analyses look at."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import EpochRole

if TYPE_CHECKING:
    from collections.abc import Iterable

CHOICES = ("epoch", "role", "between", "latency")
"""Arguments that choose a window."""
STRETCH = 1_000_000
"""About how many edges are read at once where many windows are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of a run's time, open at its start: ``(start_ns, end_ns]``; only at the run's origin it is closed.

    Where the first round has no length, the origin is all that it holds, and the one after it is open there as well.
    """

    start_ns: int
    """Nanoseconds since the run's origin, as `end_ns`."""
    end_ns: int
    """The last instant of the window."""
    epoch: int | None = None
    """Epoch that the window is the round (or startup, or shutdown) of; without a role, its latency window."""
    role: EpochRole | None = None
    """Which window of the epoch it is, if it is one."""
    end_vertex: int | None = None
    """Vertex that closes the window, where one is defined."""
    lowest_epoch: int = 0
    """No event at or after the window's start has a lower epoch."""
    follows: bool = False
    """Whether an epoch's window lies before this one: the first may have no length, and then holds just the origin."""
    alone: bool = False
    """Whether the run has no round but its startup, which then is known by its epoch."""

    @property
    def after_ns(self) -> int:
        """All instants of the window, and no earlier ones, are later than this one."""
        return self.start_ns - (self.start_ns == 0 and not self.follows)

    def holds(self, t_ns: Any) -> Any:
        """Return the condition that an instant lies in the window.

        Parameters
        ----------
        t_ns
            Nanoseconds since the run's origin: a number, or an expression of any engine.

        Returns
        -------
        bool or expression
            As `t_ns` is.
        """
        return (t_ns > self.after_ns) & (t_ns <= self.end_ns)

    def begins_and_ends_before(self, other: Window) -> bool:
        """Say whether another window neither begins nor ends earlier.

        Parameters
        ----------
        other
            It may overlap this one.

        Returns
        -------
        bool
            Also true of the same window.
        """
        return self.after_ns <= other.after_ns and self.end_ns <= other.end_ns

    @property
    def span_ns(self) -> int:
        """Length of the window."""
        return self.end_ns - self.start_ns

    @property
    def facts(self) -> dict[str, Any]:
        """What answers say of the window, as plain values."""
        return {
            "window": self.name,
            "epoch": self.epoch,
            "role": str(self.role) if self.role else None,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "span_ns": self.span_ns,
        }

    @property
    def name(self) -> str:
        """What people call the window."""
        if self.epoch is None:
            return f"{self.start_ns}..{self.end_ns} ns"
        if self.role is None:
            return f"latency of epoch {self.epoch}"
        if self.role is EpochRole.SHUTDOWN or (self.role is EpochRole.STARTUP and not self.alone):
            return str(self.role)
        return f"epoch {self.epoch}"


def whole_number(value: Any, name: str) -> int:
    """Return a whole number that somebody gave, such as an epoch.

    Parameters
    ----------
    value
        What was given; numbers of NumPy and Arrow are whole numbers too, truth values are not.
    name
        What it is called, for the message.

    Returns
    -------
    int
        The same number.

    Raises
    ------
    InvalidParameterError
        If it is none.
    """
    # Numbers of NumPy and Arrow are whole numbers too; a truth value is not meant to be one.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        message = f"{name} is {value!r}, and must be a whole number."
        raise InvalidParameterError(message, None, {name: value})
    return index(value)


def check_choices(names: Iterable[str]) -> None:
    """Refuse options that choose no window.

    Parameters
    ----------
    names
        What somebody gave values for.

    Raises
    ------
    InvalidParameterError
        If one of them is not among `CHOICES`.
    """
    unknown = [name for name in names if name not in CHOICES]
    if unknown:
        message = f"There is no option {unknown[0]!r}; a window is chosen by {', '.join(CHOICES)}."
        raise InvalidParameterError(message)


def two_instants(between: Any) -> tuple[int, int]:
    """Return the ends of a free window.

    Parameters
    ----------
    between
        What was given.

    Returns
    -------
    start, end
        Nanoseconds; their order is not checked.

    Raises
    ------
    InvalidParameterError
        If they are not two whole numbers.
    """
    ordered = hasattr(between, "__len__") and hasattr(between, "__getitem__") and not isinstance(between, str | bytes)
    if not ordered or len(between) != 2:  # noqa: PLR2004
        message = f"between is {between!r}, and must be two instants in nanoseconds from the run's origin."
        raise InvalidParameterError(message, "Such as between=(5_000_000, 7_500_000).")
    return whole_number(between[0], "between"), whole_number(between[1], "between")
