"""Operators that somebody names: by number, by address, or by what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.graph.run import Run

_MOST_NAMES = 30


def operators_called(run: Run, wanted: Sequence[int | str]) -> list[int]:
    """Return the numbers of operators.

    Parameters
    ----------
    run
        Any.
    wanted
        Numbers, addresses, or names, which stand for all that are so called. A number is the operator of that number,
        whatever the others are called.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists some.
    """
    if not wanted:
        return []
    known = run.operators.select("operator", "address", "name").rows()
    chosen: list[int] = []
    for name in wanted:
        matches = [number for number, address, called in known if str(name) in {str(number), address, called}]
        matches = [number for number in matches if str(number) == str(name)] or matches
        if not matches:
            there = some_of([f"{number} ({called}, {address})" for number, address, called in sorted(known)])
            message = f"There is no operator {name!r}; there are {there}."
            raise InvalidParameterError(message, None, {"operator": name})
        chosen += matches
    return chosen


def some_of(items: list[Any]) -> str:
    """Return the first of many, for a message."""
    more = f" and {len(items) - _MOST_NAMES} more" if len(items) > _MOST_NAMES else ""
    return (", ".join(map(str, items[:_MOST_NAMES])) or "none") + more
