from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from pag_graph import api, sources
from pag_graph.kernels.span_paths import OWN
from pag_graph.sources.spans.convert import convert, convertible
from pag_graph.sources.spans.layout import Measures, lay_end_to_end
from pag_graph.sources.spans.request_parts import request_rows
from pag_graph.sources.spans.requests import NEVER, Requests
from pag_graph.sources.spans.table import CONSUMER
from pag_graph.store.trace import Trace
from pag_graph.testing.span_traces import Settings, Simulation, simulate
from tests.support.simulated_spans import FORMS, path_of, read_spans, requests, requests_of, seen, span

if TYPE_CHECKING:
    from pathlib import Path

PROVE = os.environ.get("PAG_PROVE") == "1"
SIMULATIONS = 1_000 if PROVE else 25
SECOND = 1_000_000_000


def findings_of(made: Requests) -> dict[str, int]:
    return {row["finding"]: row["observed"] for table in made.findings for row in table.to_pylist()}


def test_paths_are_as_long_as_roots_and_certain_sections_are_true(tmp_path: Path) -> None:
    certain = 0
    for seed in range(SIMULATIONS):
        simulation = simulate(seed, 3)
        made = requests_of(simulation.spans, tmp_path)
        lengths = made.path.end - made.path.begin
        number = np.repeat(np.arange(made.count), np.diff(made.begins))
        assert np.bincount(number, lengths, made.count).astype(int).tolist() == made.latency.tolist()
        gapless = made.path.begin[:-1] == made.path.end[1:]
        assert gapless[number[:-1] == number[1:]].all()
        certain += check_certain(simulation, made)
    assert certain > 5 * SIMULATIONS


def check_certain(simulation: Simulation, made: Requests) -> int:
    ids = made.table.spans["id"].gather(made.row).to_list()
    truth = {(section.span, section.start, section.end) for path in simulation.paths.values() for section in path}
    covers: dict[str, list[tuple[int, int]]] = {}
    for name, start, end in truth:
        covers.setdefault(name, []).append((start, end))
    count = 0
    for index, begin, end in zip(made.path.span.tolist(), made.path.begin, made.path.end, strict=True):
        part = np.flatnonzero(made.path.span == index)[0]
        if made.certain[index] and made.path.kind[part] == OWN:
            inside = sum(max(0, min(end, high) - max(begin, low)) for low, high in covers.get(ids[index], []))
            messages = (made.path.kind == 1) & (made.path.span == index) & (made.path.begin == begin)
            assert inside == end - begin or messages.any(), (ids[index], begin, end)
            count += 1
    return count


def test_own_and_waiting_time_tile_every_span(tmp_path: Path) -> None:
    made = requests_of(simulate(5, 20).spans, tmp_path)
    length = made.spans.end - made.spans.start
    waiting = np.bincount(made.waiting.span, made.waiting.end - made.waiting.begin, len(length))
    inner = np.zeros(len(length))
    np.add.at(inner, made.spans.parent[made.nested], length[made.nested])
    assert (made.own + waiting + inner == length).all()
    assert made.nested.any()
    assert waiting.any()


def test_four_forms_in_any_order_and_in_several_files_give_the_same_graph(tmp_path: Path) -> None:
    for seed in range(100 if PROVE else 5):
        spans = simulate(seed, 4, Settings(skew_ns=SECOND)).spans
        expected = seen(requests_of(spans, tmp_path))
        for name in FORMS:
            random.Random(seed).shuffle(spans)
            assert seen(requests_of(spans, tmp_path, name)) == expected, name
        parts = tmp_path / f"parts-{seed}"
        parts.mkdir()
        for place in range(3):
            (parts / f"{place}.json").write_bytes(FORMS["zipkin.json"](spans[place::3]))
        assert seen(requests(read_spans([parts]))) == expected


def test_four_forms_and_three_files_are_converted_to_the_same_trace(tmp_path: Path) -> None:
    for seed in range(30 if PROVE else 2):
        folder = tmp_path / str(seed)
        spans = simulate(seed, 5, Settings(skew_ns=SECOND)).spans
        written = {name: written_trace(form(spans), folder / name, name) for name, form in FORMS.items()}
        (folder / "parts").mkdir()
        for place in range(3):
            (folder / "parts" / f"{place}.jsonl").write_bytes(FORMS["otlp.jsonl"](spans[place::3]))
        convert(folder / "parts", folder / "trace", form="otlp")
        first, *others = [*written.values(), trace_contents(folder / "trace")]
        assert first[0][1].num_rows > 0
        for other in others:
            assert other == first


def test_ids_of_otlp_are_the_same_in_capitals(tmp_path: Path, run_pag: Any) -> None:
    spans = simulate(10, 3).spans
    text = FORMS["otlp.jsonl"](spans)
    expected = written_trace(text, tmp_path / "small", "otlp.jsonl")
    # Of spans the ids, but not where they stand as parents.
    for each in spans[::2]:
        text = text.replace(f'"spanId": "{each.id}"'.encode(), f'"spanId": "{each.id.upper()}"'.encode())
    trace = spans[0].trace
    text = text.replace(trace.encode(), trace.upper().encode())
    assert text.lower() == FORMS["otlp.jsonl"](spans).lower() != text
    assert any(f'"spanId": "{each.id.upper()}"'.encode() in text and each.id != each.id.upper() for each in spans)
    assert written_trace(text, tmp_path / "capitals", "otlp.jsonl") == expected
    code, said, _ = run_pag("spans", tmp_path / "capitals" / "otlp.jsonl", "--request", trace.upper())
    assert (code, "Asked for" in said) == (0, True)


def written_trace(text: bytes, folder: Path, name: str) -> list[Any]:
    folder.mkdir(parents=True)
    (folder / name).write_bytes(text)
    convert(folder / name, folder / "trace", form=name.partition(".")[0])
    return trace_contents(folder / "trace")


def trace_contents(folder: Path) -> list[Any]:
    """Return all that a trace says, but for the name of the format."""
    trace = Trace.open(folder)
    tables = [trace.events(), trace.operators, trace.workers, trace.channels, trace.findings]
    requests_table = pl.read_parquet(folder / "requests.parquet").to_arrow()
    names = ("events", "operators", "workers", "channels", "findings", "requests")
    facts = (trace.meta.trace_id, trace.meta.workers, trace.meta.dropped)
    return [*zip(names, [*tables, requests_table], strict=True), facts]


def test_clocks_a_second_apart_are_found_and_clocks_that_agree_stay(tmp_path: Path) -> None:
    for seed in range(100 if PROVE else 5):
        settings = Settings(skew_ns=SECOND)
        skewed, even = simulate(seed, 5, settings), simulate(seed, 5, replace(settings, skew_ns=0))
        made, plain = requests_of(skewed.spans, tmp_path), requests_of(even.spans, tmp_path)
        recorded = plain.table.spans["start"].gather(plain.row).to_list()
        assert plain.spans.start.tolist() == recorded
        assert "clock_estimated" not in findings_of(plain)
        if any(skewed.offsets.values()):
            moved = [row for table in made.findings for row in table.to_pylist() if row["finding"] == "clock_estimated"]
            assert moved
            off = max(row["limit"] for row in moved)
            recorded = made.table.spans["start"].gather(made.row).to_list()
            truth = [start - skewed.offsets[made.table.processes[code].host]
                     for start, code in zip(recorded, made.process.tolist(), strict=True)]  # fmt: skip
            error = np.abs(made.spans.start - np.array(truth))
            right = error <= off * np.maximum(made.depth, 1)
            # What only messages in a queue led to has a clock that nothing bounds, and so has what it calls.
            assert right.all() or "clock_not_bounded" in findings_of(made)
            wrong_by_itself = np.flatnonzero(~right & right[np.maximum(made.spans.parent, 0)])
            assert (made.kind[wrong_by_itself] == CONSUMER).all()


def test_formats_are_found_out_and_converted(tmp_path: Path) -> None:
    for name, form in FORMS.items():
        file = tmp_path / name
        file.write_bytes(form(simulate(1).spans))
        assert sources.detect_format(file) == name.partition(".")[0]
        meta = sources.convert(file, tmp_path / f"{name}.trace")
        assert (meta.source.format, meta.rules) == (name.partition(".")[0], "stated")


# Of jaeger-ui issue 2371: one thread, and foo1's coroutine starts foo3, which foo2's end did not.
COROUTINES = [
    span("1", None, 0, 100, thread="main"),
    span("2", "1", 10, 40, thread="main"),
    span("3", "1", 10, 60, thread="main"),
    span("4", "1", 60, 90, thread="main"),
]


def test_what_coroutines_of_one_thread_do_is_possible_and_the_root_is_certain(tmp_path: Path) -> None:
    made = requests_of(COROUTINES, tmp_path)
    assert not made.nested.any()
    assert made.certain.tolist() == [True, False, False, False]
    assert path_of(made) == [("1", 90_000, 100_000), ("4", 60_000, 90_000), ("3", 10_000, 60_000), ("1", 0, 10_000)]


EDGES = {
    "a tie: the lowest lane returned last": (
        [span("1", None, 0, 30), span("2", "1", 5, 20), span("3", "1", 5, 20)],
        [("1", 20, 30), ("2", 5, 20), ("1", 0, 5)],
    ),
    "back to back": (
        [span("1", None, 0, 30), span("2", "1", 5, 10), span("3", "1", 10, 20)],
        [("1", 20, 30), ("3", 10, 20), ("2", 5, 10), ("1", 0, 5)],
    ),
    "who starts a child was not waiting just before": (
        [span("1", None, 0, 30), span("2", "1", 5, 15), span("3", "1", 10, 20)],
        [("1", 20, 30), ("3", 10, 20), ("1", 5, 10), ("1", 0, 5)],
    ),
    "a child that outlives its parent": (
        [span("1", None, 0, 30), span("2", "1", 5, 50)],
        [("1", 5, 30), ("1", 0, 5)],
    ),
    "a child that encloses its parent": ([span("1", None, 10, 30), span("2", "1", 5, 50)], [("1", 10, 30)]),
    "out by a microsecond is inside": (
        [span("1", None, 10, 30), span("2", "1", 9, 31)],
        [("2", 10, 30)],
    ),
    "no duration": ([span("1", None, 0, 30), span("2", "1", 7, 7)], [("1", 7, 30), ("1", 0, 7)]),
    "a root without duration": ([span("1", None, 5, 5), span("2", "1", 5, 5)], []),
    "a server within its client": (
        [span("1", None, 0, 30, kind="client"), span("2", "1", 5, 20, kind="server", host="k", service="t")],
        [("2", 20, 30), ("2", 5, 20), ("2", 0, 5)],
    ),
    "a consumer is not waited for": (
        [span("1", None, 0, 30, kind="producer"), span("2", "1", 5, 20, kind="consumer")],
        [("1", 5, 30), ("1", 0, 5)],
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_of_the_definition(name: str, tmp_path: Path) -> None:
    spans, expected = EDGES[name]
    made = requests_of(spans, tmp_path)
    assert path_of(made) == [(own, begin * 1_000, end * 1_000) for own, begin, end in expected]


def test_double_ids_circles_and_orphans_are_findings(tmp_path: Path) -> None:
    twice = requests_of([span("1", None, 0, 30), span("2", "1", 5, 10), span("2", "1", 5, 12)], tmp_path)
    assert findings_of(twice)["span_twice"] == 1
    assert path_of(twice)[1] == ("2", 5_000, 12_000)
    circle = requests_of([span("1", "2", 0, 30), span("2", "1", 5, 10), span("3", "3", 1, 2)], tmp_path)
    assert findings_of(circle)["cycle"] == 2
    assert circle.orphan.all()
    orphan = requests_of([span("1", None, 0, 30), span("2", "9", 5, 10), span("3", "2", 6, 7)], tmp_path)
    assert findings_of(orphan)["parent_missing"] == 1
    assert orphan.orphan.tolist() == [False, True]
    zeros = requests_of([span("1", "0000000000000000", 0, 30), span("2", "1", 5, 10)], tmp_path)
    assert "parent_missing" not in findings_of(zeros)
    assert zeros.orphan.tolist() == [False]
    roots = requests_of([span("1", None, 0, 30), span("2", None, 5, 10)], tmp_path)
    assert findings_of(roots)["many_roots"] == 1
    assert roots.count == 2


def test_halves_of_a_call_that_share_an_id_become_client_and_server(tmp_path: Path) -> None:
    spans = [
        span("1", None, 0, 100, service="a"),
        span("2", "1", 10, 60, service="a", kind="client"),
        span("2", "1", 20, 50, service="b", kind="server", host="k"),
        span("3", "2", 30, 40, service="b", host="k"),
    ]
    made = requests_of(spans, tmp_path, "zipkin.json")
    names = [made.table.operations[code].service for code in made.operation]
    assert made.spans.parent.tolist() == [-1, 0, 1, 2]
    assert names == ["a", "a", "b", "b"]
    assert "span_twice" not in findings_of(made)
    assert made.certain.tolist() == [True, False, False, False]
    declared = requests_of(spans, tmp_path, "zipkin.json", sync=["a", "b"])
    assert declared.certain.all()


def test_a_child_on_its_parents_thread_runs_inside_it(tmp_path: Path) -> None:
    spans = [span("1", None, 0, 30, thread="x"), span("2", "1", 5, 20, thread="x"), span("3", "1", 8, 12, thread="y")]
    made = requests_of(spans, tmp_path)
    assert made.nested.tolist() == [False, True, False]
    # The thread was in span 2 when span 3 returned, and can have called it before only.
    assert made.returned.tolist() == [NEVER, NEVER, NEVER]
    assert made.spans.called.tolist() == [0, 5_000, 5_000]
    assert path_of(made) == [("1", 20_000, 30_000), ("2", 5_000, 20_000), ("1", 0, 5_000)]


def test_the_store_has_the_paths_of_the_kernel(tmp_path: Path) -> None:
    spans = [one for seed in range(40 if PROVE else 6) for one in simulate(seed, 3).spans]
    spans += [replace(one, trace=f"e{place}") for place, (case, _) in enumerate(EDGES.values()) for one in case]
    spans += COROUTINES
    made = requests_of(spans, tmp_path / "spans")
    written = convertible(request_rows(made))
    convert(tmp_path / "spans", tmp_path / "trace", form="jaeger")
    report = api.build(tmp_path / "trace", tmp_path / "pag", engine="local")
    pag = api.open(tmp_path / "pag")
    assert "wait_without_ender" not in {row["finding"] for row in report.findings.to_pylist()}
    # Lanes are tiled: every one has an activity at every instant of the run.
    local = pag.run.scan("edges").filter(pl.col("read").is_null()).collect()
    assert local["duration_ns"].sum() == pag.run.scan("workers").collect().height * pag.run.end_ns
    for place, number in enumerate(written.tolist()):
        steps = pl.from_arrow(pag.critical_path(epoch=2 * (place + 1)).steps)
        assert isinstance(steps, pl.DataFrame)
        assert steps["duration_ns"].sum() == made.latency[number]
        sums: dict[int | None, int] = {}
        for operation, length in steps.select("operator", "duration_ns").iter_rows():
            sums[operation] = sums.get(operation, 0) + length
        low, high = made.begins[number], made.begins[number + 1]
        expected: dict[int | None, int] = {}
        for index in range(low, high):
            own = made.path.kind[index] == OWN
            key = int(made.operation[made.path.span[index]]) if own else None
            expected[key] = expected.get(key, 0) + int(made.path.end[index] - made.path.begin[index])
        assert {key: value for key, value in sums.items() if value} == expected, number
    rows = pl.read_parquet(tmp_path / "trace" / "requests.parquet")
    assert rows["latency_ns"].to_list() == made.latency[written].tolist()


def test_each_stay_ends_with_its_own_request_when_requests_are_laid_end_to_end() -> None:
    """With about as many lanes as stays, the join gave them another order, and each the move of another request."""
    count = 10
    low = [1_000_000 * number for number in range(count)]
    high = [begin + 100 * (number + 1) for number, begin in enumerate(low)]
    lanes = [(7 * number) % count for number in range(count)]
    requests = pl.DataFrame(
        {"low": low, "high": high, "begin": low, "end": high, "process": lanes, "lane": [0] * count}
    ).with_columns(size=pl.lit(1), digest=pl.lit(b""))
    stays = pl.DataFrame({"request": range(count), "process": lanes, "lane": [0] * count, "end": high}).with_columns(
        called=pl.lit(value=False), below=pl.lit(value=False)
    )
    layout = lay_end_to_end([Measures(requests, stays)])
    ends = dict(layout.stays.select("request", "end").iter_rows())
    assert [ends[number] for number in range(count)] == layout.end.tolist()
