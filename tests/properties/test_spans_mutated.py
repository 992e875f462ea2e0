"""Mutated spans: each file is a typed error, or read with every span a span of a request, or counted.

Bytes are flipped and cut off, values made extreme or of other types, spans repeated, parents exchanged. Each file is
read by itself, and nothing that looks like a span may be lost in silence. What can be read must have paths as long as
its roots: most files are looked at fifty at a time, every twentieth alone, and now and then one is converted and built.
With ``PAG_PROVE=1`` a hundred thousand of each form.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pag_graph import api
from pag_graph.diagnosis.spans.aggregates import by_call_path, by_latency, by_operation
from pag_graph.diagnosis.spans.comparison import compared
from pag_graph.diagnosis.spans.sums import summed
from pag_graph.errors import PagGraphError
from pag_graph.sources.spans.convert import convert, convertible
from pag_graph.sources.spans.files import FORMS as READERS
from pag_graph.sources.spans.files import form_of, read_file
from pag_graph.sources.spans.request_parts import request_rows
from pag_graph.sources.spans.span_rows import SpanRows
from pag_graph.testing.span_traces import simulate
from tests.support.mutated import mutate_bytes, mutate_value, tries
from tests.support.simulated_spans import FORMS, read_spans, requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from pag_graph.sources.spans.requests import Requests

TRIES = tries(150)
BATCH, ALONE_EACH, BUILT_EACH, LONGEST_S = 50, 20, 100, 60
SPANS = simulate(8, 2).spans
LOOKS = ({"spanID", "startTime"}, {"id", "timestamp"}, {"spanId", "startTimeUnixNano"})
"""What a span of each form has, wherever in a document it stands."""


def original(name: str, number: int) -> bytes:
    """Return spans in a form; numbers have traces and threads of their own, so that they can be read together."""
    text = FORMS[name](SPANS)
    # As long as what it replaces: protocol buffers state lengths.
    own_thread = b"%05x" % (number % (1 << 20))
    for trace in {span.trace for span in SPANS}:
        own = f"{number:08x}{trace[8:]}"
        text = text.replace(trace.encode(), own.encode()).replace(bytes.fromhex(trace), bytes.fromhex(own))
    return text.replace(b"http-", own_thread).replace(b"main-", own_thread)


def mutated(name: str, number: int) -> bytes:
    chance = random.Random(f"{name}-{number}")
    content = original(name, number)
    if name.endswith(".pb") or chance.random() < 1 / 3:
        return mutate_bytes(content, chance)
    lines = content.splitlines()
    place = chance.randrange(len(lines))
    lines[place] = mutate_value(json.loads(lines[place]), chance)
    return b"\n".join(lines)


def spans_in(content: bytes) -> int:
    """Count what looks like a span anywhere in a document, or in its lines."""
    stack = []
    for text in [content] if content.count(b"\n") <= 1 else content.splitlines():
        try:
            stack.append(json.loads(text))
        except (ValueError, RecursionError):
            continue
    count = 0
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            count += any(looks <= value.keys() for looks in LOOKS)
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    return count


def uncounted(rows: SpanRows) -> int:
    """Count what was left out of which nobody knows how many spans it was to hold."""
    return sum(rows.dropped.get(reason, 0) for reason in ("record_unknown", "group_unreadable"))


def check(table_findings: Sequence[pa.Table], made: Requests) -> None:
    """Check what holds of any spans."""
    lengths = np.zeros(made.count, np.int64)
    number = np.repeat(np.arange(made.count), np.diff(made.begins))
    np.add.at(lengths, number, made.path.end - made.path.begin)
    assert (lengths == made.latency).all()
    assert (made.own >= 0).all()
    told = [row for table in table_findings for row in table.to_pylist()]
    twice = sum(row["observed"] for row in told if row["finding"] == "span_twice")
    assert len(made.row) + twice == made.table.rows
    sums = summed([made])
    for rows in (by_operation(sums), by_call_path(sums)):
        assert sum(row["path_ns"] for row in rows) == int(made.latency[~made.orphan].sum())
    by_latency(sums)
    compared([made.table], "jaeger")
    compared([made.table], "crisp")


def alone(file: Path, place: Path, *, build: bool) -> str:
    """Read a file as people do, make requests, and convert and build them now and then."""
    try:
        made = requests(read_spans([file]))
        check(made.findings, made)
        if build and len(convertible(request_rows(made))):
            convert(file, place / "trace", form=made.table.format)
            report = api.build(place / "trace", place / "pag", engine="local")
            assert "wait_without_ender" not in {row["finding"] for row in report.findings.to_pylist()}
    except PagGraphError as error:
        return type(error).__name__
    return "finding" if made.findings else "read"


def together(name: str, numbers: Sequence[int], place: Path) -> Counter[str]:
    """Read files one by one into tables, one per form, and make requests of what all hold."""
    outcomes: Counter[str] = Counter()
    tables: dict[str, SpanRows] = {}
    for number in numbers:
        file, content = place / name, mutated(name, number)
        file.write_bytes(content)
        form = form_of(file)
        if form is None:
            outcomes["TraceFormatError"] += 1
            continue
        rows = tables.setdefault(form, SpanRows())
        before, unknown = rows.rows + sum(rows.dropped.values()), uncounted(rows)
        try:
            told = read_file(file, form, rows)
        except PagGraphError as error:
            outcomes[type(error).__name__] += 1
            continue
        if not name.endswith(".pb") and not told and uncounted(rows) == unknown:
            assert rows.rows + sum(rows.dropped.values()) - before >= spans_in(content), number
        outcomes["finding" if told else "read"] += 1
    for form, rows in tables.items():
        if rows.rows:
            (whole,) = rows.parts(form, READERS[form].tick_ns, []).tables
            made = requests(whole())
            check(made.findings, made)
    return outcomes


@pytest.mark.parametrize("name", FORMS)
def test_mutated_spans(name: str, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for first in range(0, len(TRIES), BATCH):
        numbers = TRIES[first : first + BATCH]
        began = time.process_time()
        try:
            outcomes += together(name, numbers, tmp_path)
        except PagGraphError:
            # All together last too long, say.
            outcomes += Counter(one_by_one(name, numbers, tmp_path))
        except BaseException as error:
            error.add_note(f"{name} {numbers}")
            raise
        one_by_one(name, [number for number in numbers if number % ALONE_EACH == 0], tmp_path)
        assert time.process_time() - began < LONGEST_S, numbers
    print(f"{name}: {len(TRIES):,} mutations: {dict(outcomes)}")  # noqa: T201
    # Of protocol buffers nearly always something is whole: one of five hundred is refused.
    assert outcomes["TraceFormatError"] > len(TRIES) // (1000 if name.endswith(".pb") else 50), outcomes
    assert outcomes["read"] + outcomes["finding"] > len(TRIES) // 4, outcomes


def one_by_one(name: str, numbers: Sequence[int], folder: Path) -> list[str]:
    outcomes = []
    for number in numbers:
        place = folder / "try"
        place.mkdir()
        (place / name).write_bytes(mutated(name, number))
        try:
            outcomes.append(alone(place / name, place, build=number % BUILT_EACH == 0))
        except BaseException as error:
            error.add_note(f"{name} {number}")
            raise
        shutil.rmtree(place)
    return outcomes


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
