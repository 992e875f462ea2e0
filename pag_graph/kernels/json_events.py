"""Where the events of a Chrome trace begin and end in its text, and their times to the nanosecond.

`ts` and `dur` are microseconds with decimals. No double holds 1712195495519689.047, so they are read digit by digit;
everything else of an event is left to a parser of JSON.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.compiling import kernel
from pag_graph.kernels.json_arrays import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    OPEN,
    OPEN_LIST,
    QUOTE,
    SPACE,
    after_string,
)

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

BEGIN, END, TIME, DURATION, PHASE, FLAGS = range(6)
"""Columns of `find_events`: where an event begins and ends in the text, `ts` and `dur` in ns, the letter of `ph`."""
COLUMNS = 6

HAS_TIME, HAS_DURATION, BAD_NUMBER, NO_OBJECT = 1, 2, 4, 8
"""Bits of `FLAGS`."""

_MOST_US = 1 << 52
"""No clock shows so many microseconds: nanoseconds stay far below 2^63."""

_MINUS, _DOT = 45, 46
_ZERO, _NINE, _SMALL_E, _LARGE_E = 48, 57, 101, 69


@kernel
def _nanoseconds(text: U8, place: int) -> tuple[int, bool]:
    """Read microseconds from their digits, also where they stand in quotes; say whether they are a number."""
    last = text.shape[0]
    while place < last and (text[place] <= SPACE or text[place] == QUOTE):
        place += 1
    negative = place < last and text[place] == _MINUS
    place += 1 if negative else 0
    integer_us: Any = np.int64(0)
    digits = 0
    while place < last and _ZERO <= text[place] <= _NINE:
        if integer_us < _MOST_US:
            integer_us = integer_us * 10 + np.int64(text[place] - _ZERO)
        digits += 1
        place += 1
    part_ns: Any = np.int64(0)
    scale: Any = np.int64(100)
    if place < last and text[place] == _DOT:
        place += 1
        while place < last and _ZERO <= text[place] <= _NINE:
            part_ns += scale * np.int64(text[place] - _ZERO)
            scale //= 10
            place += 1
    exponent = place < last and (text[place] == _SMALL_E or text[place] == _LARGE_E)
    if digits == 0 or integer_us >= _MOST_US or exponent:
        return 0, False
    value = integer_us * 1000 + part_ns
    return (-value if negative else value), True


@kernel
def _read_event(text: U8, begin: int, row: I64) -> int:
    """Read an object that begins at a place; return where it ends, or -1 if the text ends first."""
    depth, last = 0, text.shape[0]
    place = begin
    is_key = False
    flags, row[TIME], row[DURATION], row[PHASE] = 0, 0, 0, 0
    while place < last:
        char = text[place]
        if char == QUOTE:
            first, place = place + 1, after_string(text, place + 1)
            if place < 0:
                return -1
            length = place - 1 - first
            if depth != 1 or not is_key or not 2 <= length <= 3:  # noqa: PLR2004 lengths of keys
                continue
            value = place
            while value < last and (text[value] <= SPACE or text[value] == COLON):
                value += 1
            if value >= last:
                return -1
            char_1, char_2, char_3 = text[first], text[first + 1], text[first + 2]
            if length == 2 and char_1 == 116 and char_2 == 115:  # noqa: PLR2004 "ts"
                row[TIME], sound = _nanoseconds(text, value)
                flags |= HAS_TIME if sound else BAD_NUMBER
            elif length == 3 and char_1 == 100 and char_2 == 117 and char_3 == 114:  # noqa: PLR2004 "dur"
                row[DURATION], sound = _nanoseconds(text, value)
                flags |= HAS_DURATION if sound else BAD_NUMBER
            elif length == 2 and char_1 == 112 and char_2 == 104 and value + 1 < last:  # noqa: PLR2004 "ph"
                row[PHASE] = text[value + 1]
            continue
        if char in (OPEN, OPEN_LIST):
            depth += 1
            is_key = True
        elif char in (CLOSE, CLOSE_LIST):
            depth -= 1
            if depth == 0:
                row[BEGIN], row[END], row[FLAGS] = begin, place + 1, flags
                return place + 1
        elif char == COMMA:
            is_key = True
        elif char == COLON:
            is_key = False
        place += 1
    return -1


@kernel
def find_events(text: U8, first: int, table: I64) -> tuple[int, int, bool]:
    """Find the events of an array, as far as the text has them whole.

    Parameters
    ----------
    text
        JSON.
    first
        A place inside the array and between events.
    table
        A row per event to be found, columns `BEGIN` to `FLAGS`.

    Returns
    -------
    events
        Rows that were filled.
    place
        Where the first event begins that was not found, or what follows the array.
    ended
        Whether the array ended.

    Notes
    -----
    O(characters). Something else than an object is a row with `NO_OBJECT`; an array is one, whatever it holds.

    Examples
    --------
    >>> text = np.frombuffer(b'{"ph": "X", "ts": 7.5, "dur": 2}, 3, {"ts": 4}]', np.uint8)
    >>> table = np.zeros((5, COLUMNS), np.int64)
    >>> find_events(text, 0, table)
    (3, 47, True)
    >>> table[0, [TIME, DURATION]], chr(table[0, PHASE]), table[:3, FLAGS]
    (array([7500, 2000]), 'X', array([3, 8, 1]))
    """
    place, events, last = first, 0, text.shape[0]
    while place < last and events < table.shape[0]:
        char = text[place]
        if char == CLOSE_LIST:
            return events, place + 1, True
        if char <= SPACE or char == COMMA:
            place += 1
            continue
        if char == OPEN:
            end = _read_event(text, place, table[events])
            if end < 0:
                return events, place, False
            place = end
        else:
            begin, depth = place, 0
            while place < last and (depth > 0 or text[place] not in (COMMA, CLOSE_LIST, OPEN)):
                inner = text[place]
                depth += 1 if inner in (OPEN, OPEN_LIST) else -1 if depth and inner in (CLOSE, CLOSE_LIST) else 0
                place = after_string(text, place + 1) if inner == QUOTE else place + 1
                if place < 0:
                    return events, begin, False
            if place == last:
                return events, begin, False
            table[events, BEGIN], table[events, END], table[events, FLAGS] = begin, place, NO_OBJECT
        events += 1
    return events, place, False
