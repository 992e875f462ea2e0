"""Spans that are read in parts, most of them on disk: what is said and written does not depend on the parts."""

from __future__ import annotations

import json
import os
import random
import tempfile
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph.diagnosis.spans.answer import answer
from pag_graph.diagnosis.spans.comparison import compared
from pag_graph.errors import StoreError
from pag_graph.sources.spans import convert, span_rows, spilled
from pag_graph.sources.spans.event_rows import LINKS
from pag_graph.sources.spans.files import read_parts
from pag_graph.store.trace import Trace
from pag_graph.testing.span_traces import Settings, simulate
from tests.support.simulated_spans import FORMS, read_spans, span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pag_graph.testing.span_traces import SimulatedSpan

SEEDS = range(100 if os.environ.get("PAG_PROVE") == "1" else 2)
SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few spans be many."""
    monkeypatch.setattr(span_rows, "_CHUNK", 7)
    monkeypatch.setattr(convert, "_FILE_ROWS", 300)


def drawn(seed: int) -> list[SimulatedSpan]:
    """Return requests with threads that coroutines of several requests share, odd clocks, and what is left out."""
    spans = simulate(seed, 12, Settings(skew_ns=SECOND if seed % 2 else 0)).spans
    for number in range(4):
        trace = f"{seed:08x}{number:08x}"
        # Two requests at a time on one thread of one process: only both together say so.
        begin = 1_700_000_000_000_000 + 3 * number
        # Two digits are a byte, as protocol buffers have ids.
        spans += [
            span("01", None, begin, begin + 9, trace=trace, thread="shared"),
            span("02", "01", begin + 1, begin + 5, trace=trace, thread="shared"),
            span("03", "09", begin + 2, begin + 3, trace=trace),
            span("04", None, begin + 20, begin + 20, trace=trace),
            span("02", "01", begin + 1, begin + 4, trace=trace),
        ]
    random.Random(seed).shuffle(spans)
    return spans


def said(folder: Path, held: int, trace: str) -> dict[str, Any]:
    with answer([folder], request=trace, against=[folder], held=held) as told:
        return told.facts()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_and_traces_do_not_depend_on_parts(seed: int, tmp_path: Path) -> None:
    spans, folder = drawn(seed), tmp_path / "spans"
    folder.mkdir()
    name = list(FORMS)[seed % len(FORMS)]
    for place in range(2):
        (folder / f"{place}-{name}").write_bytes(FORMS[name](spans[place::2]))
    asked = read_spans([folder]).traces[3]
    expected = said(folder, len(spans), asked)
    assert any(part["certain"] for part in expected["shown"][0]["path"])
    written = {}
    for held in (len(spans), 40, 1):
        with read_parts([folder], held=held) as parts:
            assert (len(parts.tables) > 1) == (held < len(spans))
            assert sum(read().rows for read in parts.tables) == len(spans)
            policies = [compared((read() for read in parts.tables), policy) for policy in ("jaeger", "crisp")]
        assert policies == [compared([read_spans([folder])], policy) for policy in ("jaeger", "crisp")]
        assert said(folder, held, asked) == expected
        with answer([folder], held=held) as told:
            told.write(tmp_path / f"slow-{held}", slowest=3)
            told.write(tmp_path / f"one-{held}", request=asked)
            told.write(tmp_path / f"all-{held}")
        written[held] = [contents(tmp_path / f"{what}-{held}") for what in ("slow", "one", "all")]
    assert written[1] == written[40] == written[len(spans)]


def contents(folder: Path) -> list[Any]:
    trace = Trace.open(folder)
    tables = [trace.events(), trace.operators, trace.workers, trace.findings]
    return [trace.meta, *(rows.to_pylist() for rows in tables), pl.read_parquet(folder / "requests.parquet").rows()]


def test_a_thread_that_requests_share_proves_nothing_whatever_part_they_are_in(tmp_path: Path) -> None:
    (tmp_path / "spans.json").write_bytes(FORMS["jaeger.json"](drawn(0)[:]))
    shared = {f"{0:08x}{number:08x}" for number in range(4)}
    for held in (1_000, 1):
        with answer([tmp_path / "spans.json"], held=held) as told:
            for made in told.requests:
                ids = made.table.spans["trace"].gather(made.row).to_list()
                of_shared = [made.table.traces[code] in shared for code in ids]
                assert not (made.nested & of_shared).any()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(spilled.pa, "OSFile", refuse)
        yield


@pytest.mark.usefixtures("full_disk")
def test_a_disk_without_room_is_a_typed_error_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spans.json").write_bytes(FORMS["jaeger.json"](drawn(1)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(StoreError, match="No space left"), answer([tmp_path / "spans.json"], held=5):
        pass
    assert not list((tmp_path / "temporary").iterdir())


def test_a_folder_for_temporary_files_that_is_not_there_is_no_damage_of_the_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spans.json").write_bytes(FORMS["jaeger.json"](drawn(1)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StoreError, match=r"cannot hold the spans .*gone"), answer([tmp_path / "spans.json"], held=5):
        pass


def test_links_are_messages_whatever_part_they_are_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans 2 to 4 are on lanes of their own; 4 follows from 3 and from 2, which state nothing."""
    monkeypatch.setattr(convert, "_FILE_ROWS", 30)
    spans = []
    for trace in range(5):
        stated = {"traceId": f"{trace + 1:032x}", "name": "work"}
        for number, above, times in ((1, "", (0, 90)), (2, "1", (10, 30)), (3, "1", (15, 25)), (4, "1", (20, 70))):
            begin, end = (str(SECOND * (trace + 1) + time) for time in times)
            spans.append(
                {
                    **stated,
                    "spanId": f"{number:016x}",
                    "parentSpanId": above.rjust(16, "0") if above else "",
                    "startTimeUnixNano": begin,
                    "endTimeUnixNano": end,
                    "links": [{**stated, "spanId": f"{other:016x}"} for other in (3, 2) if number == 4],
                }
            )
    (tmp_path / "spans.json").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    for held in (len(spans), 1):
        with answer([tmp_path / "spans.json"], held=held) as told:
            told.write(tmp_path / f"{held}")
    few, many = (contents(tmp_path / f"{held}") for held in (1, len(spans)))
    assert few == many
    rows = Trace.open(tmp_path / "1").events().to_pylist()
    links = [(row["kind"], row["message_seq"]) for row in rows if row["channel"] == LINKS]
    expected = list(range(len(spans), len(spans) + 10))
    assert sorted(number for kind, number in links if kind == "send") == expected
    assert sorted(number for kind, number in links if kind == "receive") == expected
