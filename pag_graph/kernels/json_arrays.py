"""Where an array of a JSON document begins in its text, and its elements: documents that are read piece by piece.

What is inside of the elements is left to a parser of JSON.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.compiling import kernel

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

QUOTE, BACKSLASH, COLON, COMMA = 34, 92, 58, 44
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 123, 125, 91, 93
SPACE = 32


@kernel
def after_string(text: U8, place: int) -> int:
    """Find where a string ends.

    Parameters
    ----------
    text
        Characters of a JSON document.
    place
        Where the first character of the string stands, right after its quote.

    Returns
    -------
    int
        The place after the closing quote; -1 if the text ends first. A raw line break ends the string too, and its
        place is returned: JSON has none in strings, so a quote is missing, and the next line is sound again.

    Notes
    -----
    O(characters of the string).

    Examples
    --------
    >>> after_string(np.frombuffer(b'"a": 1', np.uint8), 1)
    3
    """
    while place < text.shape[0]:
        char = text[place]
        if char == QUOTE:
            return place + 1
        if char == 10:  # noqa: PLR2004 a line break
            return place
        place += 2 if char == BACKSLASH else 1
    return -1


@kernel
def begin_of_array(text: U8, name: U8) -> int:
    """Return the place after the bracket that opens an array: the document's member of some name, or the document.

    Parameters
    ----------
    text
        A JSON document from its first character on.
    name
        Of the member, as it stands between quotes.

    Returns
    -------
    int
        -1 if the text ends before it.

    Examples
    --------
    >>> name = np.frombuffer(b"data", np.uint8)
    >>> begin_of_array(np.frombuffer(b'{"a": [1], "data": [{}]}', np.uint8), name)
    20
    >>> begin_of_array(np.frombuffer(b" [{}]", np.uint8), name), begin_of_array(np.frombuffer(b'{"a"', np.uint8), name)
    (2, -1)
    """
    depth, place, last = 0, 0, text.shape[0]
    while place < last:
        char = text[place]
        if char == QUOTE:
            begin, place = place + 1, after_string(text, place + 1)
            if place < 0:
                return -1
            is_name = depth == 1 and place - 1 - begin == len(name)
            for i in range(len(name)):
                is_name = is_name and text[begin + i] == name[i]
            if not is_name:
                continue
            while place < last and (text[place] <= SPACE or text[place] == COLON):
                place += 1
            if place < last and text[place] == OPEN_LIST:
                return place + 1
            continue
        if char == OPEN_LIST and depth == 0:
            return place + 1
        if char in (OPEN, OPEN_LIST):
            depth += 1
        elif char in (CLOSE, CLOSE_LIST):
            depth -= 1
        place += 1
    return -1


@kernel
def whole_elements(text: U8) -> tuple[int, bool]:
    """Return how far the text of an array has whole elements, and whether the array ends there.

    Parameters
    ----------
    text
        What follows the bracket that opens the array, or an element of it.

    Returns
    -------
    place : int
        Where the last whole element ends; of an array that ends, where its bracket stands.
    ended : bool
        Whether the array ended.

    Notes
    -----
    O(characters). Commas and values are not looked at: a parser does that.

    Examples
    --------
    >>> whole_elements(np.frombuffer(b'{"a": "]"}, [3], {"b', np.uint8))
    (15, False)
    >>> whole_elements(np.frombuffer(b", 7, 8 ], 9", np.uint8))
    (7, True)
    """
    depth, place, end_of_last, last = 0, 0, 0, text.shape[0]
    while place < last:
        char = text[place]
        if char == QUOTE:
            place = after_string(text, place + 1)
            if place < 0:
                return end_of_last, False
            if depth == 0:
                end_of_last = place
            continue
        if char in (OPEN, OPEN_LIST):
            depth += 1
        elif depth == 0 and char == CLOSE_LIST:
            return place, True
        elif char in (CLOSE, CLOSE_LIST):
            depth -= 1
            if depth == 0:
                end_of_last = place + 1
        elif depth == 0 and char == COMMA:
            # Numbers end where the comma stands.
            end_of_last = place
        place += 1
    return end_of_last, False
