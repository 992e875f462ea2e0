"""Small documents with something done to them: bytes flipped and cut, values of JSON made extreme and exchanged."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

PROVE = os.environ.get("PAG_PROVE") == "1"
EXTREMES: list[Any] = [
    None, True, -1, 0, 2**63, -(2**63), 2**64, 1e300, 0.5, "", "0", "x", "9" * 30, [], {}, [[]], {"key": None},
    [1, None], "\u202e\x1b[31m", "é" * 40, 1 << 61, "\ud800", [[[[[[]]]]]],
]  # fmt: skip
WORDS = (
    *(b"NaN", b"Infinity", b"1e400", b"-0", b'"\xff"', b'"\\ud800"', b"9" * 5_000, b"[" * 3_000, b'{"a":' * 3_000),
    *(b"null", b"{}", b"[]", b'""', b",", b":", b'"', b"\x00", b"\n", b"\\"),
)


def tries(few: int, full: int = 100_000) -> range:
    """Return the numbers of the mutations to try: few, all with ``PAG_PROVE=1``, or those that ``PAG_MUTATIONS`` says.

    ``PAG_MUTATIONS=1000`` are the first thousand, ``PAG_MUTATIONS=1000:3000`` the two thousand behind them.
    """
    first, _, end = os.environ.get("PAG_MUTATIONS", f"{full if PROVE else few}").rpartition(":")
    return range(int(first or 0), int(end))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place of a JSON value: a container and a key of it."""
    listed, stack = [], [value]
    while stack:
        container = stack.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            listed.append((container, key))
            if isinstance(container[key], dict | list):
                stack.append(container[key])
    return listed


def mutate_value(record: Any, chance: random.Random) -> bytes:
    """Change some values of a JSON document, which is spoilt, and return its text."""
    for _ in range(chance.choice((1, 1, 2, 5))):
        all_places = places(record)
        if not all_places:
            break
        container, key = chance.choice(all_places)
        other_container, other_key = chance.choice(all_places)
        match chance.choice(("extreme", "extreme", "exchange", "copy", "delete")):
            case "extreme":
                # A copy: what a list gets inside it must not stay in that of the next mutation, nor be itself.
                container[key] = deepcopy(chance.choice(EXTREMES))
            case "exchange" if type(container[key]) is type(other_container[other_key]) is str:
                container[key], other_container[other_key] = other_container[other_key], container[key]
            case "copy" if not isinstance(other_container[other_key], dict | list):
                container[key] = other_container[other_key]
            case _:
                del container[key]
    return json.dumps(record).encode()


def mutate_bytes(content: bytes, chance: random.Random) -> bytes:
    """Change some bytes of a document."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 3))):
        place = chance.randrange(len(changed))
        match chance.choice(("flip", "cut", "insert", "zero", "word")):
            case "flip":
                changed[place] ^= 1 << chance.randrange(8)
            case "cut":
                del changed[place : place + chance.randint(1, 40)]
            case "insert":
                changed[place:place] = changed[place : place + chance.randint(1, 40)]
            case "word":
                changed[place : place + chance.choice((0, 1, 8))] = chance.choice(WORDS)
            case _:
                changed[place] = chance.choice((0, 255, 0x80))
        if not changed:
            break
    return bytes(changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.1 else changed)
