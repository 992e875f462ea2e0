"""A JSON document of spans in slices: the elements of its array, so that a file may be larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from pag_graph.kernels.json_arrays import begin_of_array, whole_elements
from pag_graph.sources.spans import jaeger_json, otlp_json, zipkin_json

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SLICE", "filled", "following", "is_slice", "records"]

SLICE: Final = 1 << 20
"""Bytes of text that are parsed at a time: as objects they take some ten times as much."""
_MEMBERS: Final = {jaeger_json.FORMAT: "data", otlp_json.FORMAT: "resourceSpans", zipkin_json.FORMAT: ""}
"""Where the array is that a document is made of; nowhere in a bare one."""


def records(form: str, text: bytes, pieces: Iterator[bytes], *, slice_bytes: int = SLICE) -> Iterator[Any]:
    """Yield the parts of a document, each as if it were a document of its own.

    Parameters
    ----------
    form
        Name of the format.
    text, pieces
        The beginning of the document, and the rest.
    slice_bytes
        About how much text is parsed at a time.

    Yields
    ------
    object
        A record of the format: an array's elements in the same order, some at a time. A document without such an array
        is one record.

    Raises
    ------
    orjson.JSONDecodeError
        If it is no JSON; records may have been yielded before.
    """
    member = _MEMBERS[form]
    array_begin = begin_of_array(np.frombuffer(text, np.uint8), np.frombuffer(member.encode(), np.uint8))
    bare = text.lstrip()[:1] == b"["
    if array_begin < 0 or bare != (not member):
        yield orjson.loads(text + b"".join(pieces))
        return
    # Of what stands around the elements nothing is needed but that it is JSON.
    around, text = text[:array_begin], text[array_begin:]
    is_begun = is_ended = False
    while not is_ended:
        place, is_ended = whole_elements(np.frombuffer(text, np.uint8))
        body = text[:place].strip()
        if body:
            yield _record(member, _elements(body, is_begun=is_begun))
            is_begun = True
        text = text[place:]
        if not is_ended:
            appended = filled(b"", pieces, following(text, slice_bytes))
            if not appended:
                break
            text += appended
    orjson.loads(around + text + b"".join(pieces))


def is_slice(form: str, record: Any) -> bool:
    """Tell whether a part of a document, as `records` yields it, holds elements of its array, whatever these are."""
    member = _MEMBERS[form]
    elements = record.get(member) if member and isinstance(record, dict) else record
    return isinstance(elements, list) and bool(member) == isinstance(record, dict)


def following(text: bytes, slice_bytes: int) -> int:
    """Return how many bytes to read next behind an element that has not ended.

    Parameters
    ----------
    text
        What is there of the element.
    slice_bytes
        How many bytes it is at least.

    Returns
    -------
    int
        An ever longer element is looked through anew each time: an eighth of it at least keeps that linear.
    """
    return max(slice_bytes, len(text) // 8)


def filled(text: bytes, pieces: Iterator[bytes], size: int) -> bytes:
    """Return text with pieces behind it, until it is long enough.

    Parameters
    ----------
    text
        What is there.
    pieces
        What follows; as many as are needed are taken.
    size
        Bytes to have at least.

    Returns
    -------
    bytes
        Whole pieces, so that it may be longer; shorter only where the pieces end, or one of them is empty.
    """
    texts, length = [text], len(text)
    while length < size and (piece := next(pieces, b"")):
        texts.append(piece)
        length += len(piece)
    return b"".join(texts)


def _elements(body: bytes, *, is_begun: bool) -> Any:
    """Return the elements that a text holds; of all but the first slice it begins with a comma."""
    if not is_begun:
        return orjson.loads(b"[" + body + b"]")
    # With a value in place of what was read before, a comma that is missing or too many is no JSON here either.
    return orjson.loads(b"[0" + body + b"]")[1:]


def _record(member: str, elements: Any) -> Any:
    return {member: elements} if member else elements
