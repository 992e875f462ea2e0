"""Mutated spans: each file is a typed error, or read with every span a span of a request, or counted.

Bytes are flipped and cut off, values made extreme or of other types, spans repeated, parents exchanged. What can be
read must have paths as long as its roots; now and then it is converted and built. With ``PAG_PROVE=1`` a hundred
thousand of each form.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pag_graph import api
from pag_graph.diagnosis.spans.aggregates import by_call_path, by_latency, by_operation, counted
from pag_graph.diagnosis.spans.comparison import compared
from pag_graph.errors import PagGraphError
from pag_graph.sources.spans.convert import convertible, write_requests
from pag_graph.sources.spans.files import read_spans
from pag_graph.sources.spans.requests import requests
from pag_graph.testing.span_traces import simulate
from tests.support.simulated_spans import FORMS

if TYPE_CHECKING:
    from pathlib import Path

PROVE = os.environ.get("PAG_PROVE") == "1"
TRIES = int(os.environ.get("PAG_SPAN_TRIES", "0")) or (100_000 if PROVE else 150)
BUILT_EACH = 75
EXTREMES: list[Any] = [
    None, True, -1, 0, 2**63, -(2**63), 2**64, 1e300, 0.5, "", "0", "x", "9" * 30, [], {}, [[]], {"key": None},
    [1, None], "\u202e\x1b[31m", "é" * 40, 1 << 61,
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place of a JSON value: a container and a key of it."""
    found, stack = [], [value]
    while stack:
        container = stack.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                stack.append(container[key])
    return found


def mutate_value(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines()
    number = chance.randrange(len(lines))
    record = json.loads(lines[number])
    for _ in range(chance.choice((1, 1, 2, 5))):
        known = places(record)
        if not known:
            break
        container, key = chance.choice(known)
        other_container, other_key = chance.choice(known)
        match chance.choice(("extreme", "extreme", "exchange", "copy", "delete")):
            case "extreme":
                container[key] = chance.choice(EXTREMES)
            case "exchange" if type(container[key]) is type(other_container[other_key]) is str:
                container[key], other_container[other_key] = other_container[other_key], container[key]
            case "copy" if not isinstance(other_container[other_key], dict | list):
                container[key] = other_container[other_key]
            case _:
                del container[key]
    lines[number] = json.dumps(record).encode()
    return b"\n".join(lines)


def mutate_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 3))):
        place = chance.randrange(len(changed))
        match chance.choice(("flip", "cut", "insert", "zero")):
            case "flip":
                changed[place] ^= 1 << chance.randrange(8)
            case "cut":
                del changed[place : place + chance.randint(1, 40)]
            case "insert":
                changed[place:place] = changed[place : place + chance.randint(1, 40)]
            case _:
                changed[place] = chance.choice((0, 255, 0x80))
        if not changed:
            break
    return bytes(changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.1 else changed)


def attempt(file: Path, place: Path, *, build: bool) -> str:
    try:
        made = requests(read_spans([file]))
        lengths = np.zeros(made.count, np.int64)
        number = np.repeat(np.arange(made.count), np.diff(made.begins))
        np.add.at(lengths, number, made.path.end - made.path.begin)
        assert (lengths == made.latency).all()
        assert (made.own >= 0).all()
        assert (
            made.spans.start.size
            + sum(
                row["observed"]
                for table in made.findings
                for row in table.to_pylist()
                if row["finding"] == "span_twice"
            )
            == made.table.rows
        )
        chosen = counted(made)
        paths = [by_operation(made, chosen), by_call_path(made, chosen)]
        assert {sum(row["path_ns"] for row in rows) for rows in paths} <= {int(made.latency[chosen].sum())}
        by_latency(made, chosen)
        compared(made.table, "jaeger")
        compared(made.table, "crisp")
        if build and len(convertible(made)):
            write_requests(made, convertible(made), place / "trace")
            report = api.build(place / "trace", place / "pag", engine="local")
            assert "wait_without_ender" not in {row["finding"] for row in report.findings.to_pylist()}
    except PagGraphError as error:
        return type(error).__name__
    return "finding" if made.findings else "read"


@pytest.mark.parametrize("name", FORMS)
def test_mutated_spans(name: str, tmp_path: Path) -> None:
    original = FORMS[name](simulate(8, 2).spans)
    outcomes: dict[str, int] = {}
    for number in range(TRIES):
        chance = random.Random(f"{name}-{number}")
        ways = [mutate_bytes] if name.endswith(".pb") else [mutate_value, mutate_value, mutate_bytes]
        content = chance.choice(ways)(original, chance)
        place = tmp_path / "try"
        place.mkdir()
        (place / name).write_bytes(content)
        began = time.process_time()
        try:
            outcome = attempt(place / name, place, build=number % BUILT_EACH == 0)
        except BaseException as error:
            error.add_note(f"{name} {number}")
            raise
        assert time.process_time() - began < 60, number
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        shutil.rmtree(place)
    assert outcomes.get("TraceFormatError", 0) > TRIES // 50, outcomes
    assert outcomes.get("read", 0) + outcomes.get("finding", 0) > TRIES // 4, outcomes


HOSTILE = {
    "deep": b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep lines": b'{"resourceSpans": ' + b'{"a":' * 50_000 + b"\n",
    "nothing": b"",
    "empty list": b"[]",
    "a protobuf that claims more than there is": b"\x0a\xff\xff\xff\xff\x0f\x0a\x00",
    "a varint without an end": b"\x0a" + b"\xff" * 40,
    "two formats": b'{"resourceSpans":[]}\n[{"traceId":"1","id":"2","timestamp":1,"duration":1}]\n',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_their_names(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(HOSTILE[name])
    with pytest.raises(PagGraphError, match="file"):
        read_spans([tmp_path / "file"])
