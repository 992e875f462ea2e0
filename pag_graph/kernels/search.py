"""Looking up and sorting integers within kernels; NumPy's own functions take a second each to compile there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from pag_graph.kernels.activations import I64


@kernel
def not_below(values: Any, number: Any) -> int:
    """Find the first of sorted values that is not below a number.

    Parameters
    ----------
    values
        Sorted, ascending.
    number
        To be compared with them.

    Returns
    -------
    int
        Its place; the number of values where all are below. O(log values).

    Examples
    --------
    >>> not_below(np.array([2, 4, 4, 9]), 4)
    1
    """
    low, high = 0, values.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def among(values: I64, number: int) -> bool:
    """Say whether a number is one of sorted values.

    Parameters
    ----------
    values
        Sorted, ascending.
    number
        What is looked for.

    Returns
    -------
    bool
        O(log values).

    Examples
    --------
    >>> among(np.array([2, 4, 9]), 4), among(np.array([2, 4, 9]), 5)
    (True, False)
    """
    place = not_below(values, number)
    return place < values.shape[0] and values[place] == number  # type: ignore[no-any-return]


@kernel
def above(values: I64, number: int) -> int:
    """Find the first of sorted values that is above a number.

    Parameters
    ----------
    values
        Sorted, ascending.
    number
        To be compared with them.

    Returns
    -------
    int
        Its place; the number of values where none is above. O(log values).

    Examples
    --------
    >>> above(np.array([2, 4, 4, 9]), 4)
    3
    """
    low, high = 0, values.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= number:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def sort(values: I64, count: int) -> None:
    """Sort some values in place, by heap.

    Parameters
    ----------
    values
        Changed here.
    count
        How many of them, from the first, are sorted.

    Notes
    -----
    O(count log count), or O(count) where they are in order.

    Examples
    --------
    >>> values = np.array([3, 1, 2, 0])
    >>> sort(values, 3)
    >>> values
    array([1, 2, 3, 0])
    """
    ordered = True
    for index in range(1, count):
        ordered &= values[index - 1] <= values[index]
    if ordered:
        return
    heads, size = count // 2, count
    while size > 1:
        if heads > 0:
            # First every half of the heap gets its largest value to the top, ...
            heads -= 1
            index, moved = heads, values[heads]
        else:
            # ... then the largest of all goes to the end, again and again.
            size -= 1
            index, moved = 0, values[size]
            values[size] = values[0]
        child = 2 * index + 1
        while child < size:
            if child + 1 < size and values[child + 1] > values[child]:
                child += 1
            if values[child] <= moved:
                break
            values[index] = values[child]
            index = child
            child = 2 * index + 1
        values[index] = moved


@kernel
def grown(values: I64, count: int, room: int) -> I64:
    """Make sure that an array has room.

    Parameters
    ----------
    values
        The array; it is returned itself where it has room.
    count
        How many of its values, from the first, are kept.
    room
        How many there must be room for.

    Returns
    -------
    array of int64
        At least twice as long as before where it grows. What lies after `count` is undefined then.

    Examples
    --------
    >>> grown(np.array([7, 8]), 2, 3)[:2]
    array([7, 8])
    """
    if room <= values.shape[0]:
        return values
    wider = np.empty(max(room, 2 * values.shape[0]), np.int64)
    for index in range(count):
        wider[index] = values[index]
    return wider
