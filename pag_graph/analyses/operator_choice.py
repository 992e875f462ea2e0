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

    Returns
    -------
    list of int
        Their numbers, in the order of `wanted`; one that is meant twice comes twice.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists some.
    """
    if not wanted:
        return []
    operators = run.operators.select("operator", "address", "name").rows()
    chosen: list[int] = []
    for name in wanted:
        matches = [
            number for number, address, operator_name in operators if str(name) in {str(number), address, operator_name}
        ]
        matches = [number for number in matches if str(number) == str(name)] or matches
        if not matches:
            examples = some_of(
                [f"{number} ({operator_name}, {address})" for number, address, operator_name in sorted(operators)]
            )
            message = f"There is no operator {name!r}; there are {examples}."
            raise InvalidParameterError(message, None, {"operator": name})
        chosen += matches
    return chosen


def some_of(items: list[Any]) -> str:
    """Return the first of many, for a message.

    Parameters
    ----------
    items
        In the order in which they are named.

    Returns
    -------
    str
        With how many more there are; ``none`` of none.
    """
    suffix = f" and {len(items) - _MOST_NAMES} more" if len(items) > _MOST_NAMES else ""
    return (", ".join(map(str, items[:_MOST_NAMES])) or "none") + suffix
