"""Kineto traces: simulated jobs, whose truth is known, and files that are damaged."""

from __future__ import annotations

import codecs
import gzip
import json
import os
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.diagnosis.torch.answer import answer
from pag_graph.errors import TraceFormatError
from pag_graph.sources import detect_format
from pag_graph.sources.kineto import event_text
from pag_graph.sources.kineto.convert import Mapped, map_files, write_mapped
from pag_graph.sources.kineto.rank_log import read_rank
from pag_graph.store.trace import Trace
from pag_graph.testing.kineto_traces import Dialect, Job, KinetoRun, Plant, simulate
from tests.support.kineto_ranks import gloo_rank

if TYPE_CHECKING:
    from pathlib import Path

PROVE = os.environ.get("PAG_PROVE") == "1"
_KINDS = {"processing": "kernel", "io": "transfer", "scheduling": "gap"}


def mapped(run: KinetoRun, folder: Path, dialect: Dialect = "plain") -> Mapped:
    return map_files(run.write(folder / "traces", dialect))


def built(run: KinetoRun, folder: Path) -> api.Pag:
    write_mapped(mapped(run, folder), folder / "trace")
    api.build(folder / "trace", folder / "pag", engine="local")
    return api.open(folder / "pag")


def found_path(pag: api.Pag) -> dict[str, int]:
    """Time on the critical path of the whole run, in the words of the simulation."""
    streams = {n for n, name in pag.run.scan("workers").select("worker", "name").collect().rows() if "stream" in name}
    path = dict.fromkeys(("cpu", "kernel", "transfer", "gap", "message"), 0)
    for step in pag.critical_path(between=(0, pag.run.end_ns)).steps.to_pylist():
        of_stream = _KINDS.get(step["type"], "cpu") if step["worker"] in streams else "cpu"
        path["message" if step["type"] == "control_message" else of_stream] += step["duration_ns"]
    return path


def some_job(seed: int) -> Job:
    return Job(seed=seed, ranks=1 + seed % 4, layers=1 + seed % 3, steps=1 + seed % 2, loader=seed % 5 > 0)


@settings(max_examples=1_000 if PROVE else 4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_paths_skews_and_transfers_are_those_of_the_simulation(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    run = simulate(some_job(seed))
    folder = tmp_path_factory.mktemp("kineto")
    joins = mapped(run, folder).joins
    skews, transfers = {}, {}
    for number, collective in enumerate(joins.collectives):
        for part in collective.parts:
            met = collective.last_before(part).begin
            skews[number, part.rank] = met - part.begin
            transfers[number, part.rank] = part.end - met
    assert (skews, transfers) == (run.skews, run.transfers)
    pag = built(run, folder)
    assert found_path(pag) == run.path
    rounds = pag.run.epochs.filter(pl.col("role") == "round")
    zero = min(event["ts"] for events in run.events for event in events)
    assert rounds["end_ns"].to_list()[-len(run.step_ends) :] == [end - zero for end in run.step_ends]
    assert pag.run.scan("findings").collect().height == 0


def test_every_window_of_a_job_is_tiled_and_its_path_as_long(tmp_path: Path) -> None:
    pag = built(simulate(Job(ranks=3)), tmp_path)
    for window in pag.run.windows():
        if window.span_ns:
            path = pag.critical_path(between=(window.start_ns, window.end_ns))
            assert path.length_ns == window.span_ns
            # Ranks begin to record within 5 us; what one did before that nobody knows.
            assert (1 - path.explained) * window.span_ns <= (5_000 if window.start_ns == 0 else 0)


@pytest.mark.parametrize("seed", range(200 if PROVE else 2))
def test_clocks_are_found_within_their_uncertainty_and_who_is_late_stays_late(tmp_path: Path, seed: int) -> None:
    late = Plant(cause="late_rank", rank=1, by_ns=400_000)
    offsets = (0, 5_000_000, -5_000_000)
    job = Job(seed=seed, ranks=3, steps=4, layers=4, plants=(late,), offsets_ns=offsets, hosts=False)
    run = simulate(job)
    found = mapped(run, tmp_path)
    for worker in found.workers.to_pylist():
        rank = int(worker["name"].split()[1])
        assert abs(worker["offset_ns"] + job.offsets_ns[rank]) <= worker["uncertainty_ns"]
    last = [max(collective.parts, key=lambda part: part.begin) for collective in found.joins.collectives]
    assert {part.rank for part in last[:: job.layers]} == {1}
    names = found.findings["finding"].to_pylist()
    assert names == ["clock_estimated"] * 2
    (cause,) = answer(run.write(tmp_path / "again")).causes
    assert (cause.cause, cause.signal["rank"]) == ("late_rank", 1)


def test_without_numbers_collectives_are_joined_by_their_order(tmp_path: Path) -> None:
    job = Job(ranks=2, steps=2)
    numbered, counted = (mapped(simulate(Job(ranks=2, steps=2, numbered=n)), tmp_path / str(n)) for n in (True, False))
    parts = [[c.parts for c in found.joins.collectives] for found in (numbered, counted)]
    assert parts[0] == parts[1]
    assert len(parts[0]) == job.layers * job.steps
    assert [{c.inferred for c in found.joins.collectives} for found in (numbered, counted)] == [{False}, {True}]


@pytest.mark.parametrize("numbered", [True, False])
def test_a_collective_that_one_rank_lacks_is_not_joined(tmp_path: Path, *, numbered: bool) -> None:
    run = simulate(Job(ranks=2, steps=2, numbered=numbered))
    files = run.write(tmp_path)
    document = json.loads(files[1].read_text())
    lost = [place for place, event in enumerate(document["traceEvents"]) if event["name"].startswith("nccl")][1]
    text = files[1].read_text().split("\n")
    del text[1 + lost]
    files[1].write_text("\n".join(text))
    found = map_files(files)
    assert len(found.joins.collectives) == (5 if numbered else 3)
    rows = found.findings.filter(pl.DataFrame(found.findings)["finding"].eq("collective_unjoined").to_arrow())
    assert rows["observed"].to_pylist() == ([1] if numbered else [3, 2])


def test_a_rank_without_a_trace_is_a_finding(tmp_path: Path) -> None:
    files = simulate(Job(ranks=3, steps=1)).write(tmp_path)
    found = map_files(files[:2])
    assert not found.joins.collectives
    assert found.findings.select(["finding", "observed"]).to_pylist() == [{"finding": "rank_missing", "observed": 3}]


@pytest.mark.parametrize("dialect", ["gzip", "texts", "hex", "old", "rows", "fronted"])
@pytest.mark.parametrize("seed", range(10 if PROVE else 1))
def test_all_dialects_give_one_trace(tmp_path: Path, dialect: Dialect, seed: int) -> None:
    run = simulate(some_job(seed))
    plain, other = (mapped(run, tmp_path / name, name) for name in ("plain", dialect))
    assert [t for _, t in plain.events()] == [t for _, t in other.events()]
    assert plain.operators.rows() == other.operators.rows()


def test_times_count_from_the_base_that_is_stated(tmp_path: Path) -> None:
    run = simulate(Job(ranks=1, steps=2))
    plain, based = (mapped(run, tmp_path / name, name) for name in ("plain", "base"))
    assert [t for _, t in plain.events()] == [t for _, t in based.events()]


def test_a_bare_array_says_no_rank_but_all_else(tmp_path: Path) -> None:
    run = simulate(Job(ranks=1, steps=2))
    plain, bare = (mapped(run, tmp_path / name, name) for name in ("plain", "array"))
    assert [t for _, t in plain.events()] == [t for _, t in bare.events()]


@pytest.mark.parametrize("dialect", ["plain", "base", "array", "gzip"])
def test_a_mark_of_the_encoding_changes_nothing(tmp_path: Path, dialect: Dialect) -> None:
    """With it what stands around the events was lost: rank, host and the time from which times count."""
    run = simulate(Job(ranks=2, steps=1))
    plain = mapped(run, tmp_path / "plain", dialect)
    files = run.write(tmp_path / "marked", dialect)
    for file in files:
        text = file.read_bytes()
        marked = codecs.BOM_UTF8 + (gzip.decompress(text) if dialect == "gzip" else text)
        file.write_bytes(gzip.compress(marked) if dialect == "gzip" else marked)
    found = map_files([tmp_path / "marked"])
    assert [t for _, t in found.events()] == [t for _, t in plain.events()]
    assert found.workers == plain.workers
    assert found.findings == plain.findings
    assert detect_format(files[0]) == "kineto"


def test_the_format_is_found_out_and_converted_by_anybody(tmp_path: Path) -> None:
    (file,) = simulate(Job(ranks=1, steps=2)).write(tmp_path / "one", "gzip")
    assert detect_format(file) == detect_format(file.parent) == "kineto"
    api.convert(file.parent, tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    assert trace.meta.source.system == "pytorch"
    assert trace.workers["name"].to_pylist() == ["rank 0 main thread", "rank 0 GPU 0 stream 7"]


def test_two_traces_of_one_rank_are_refused(tmp_path: Path) -> None:
    files = simulate(Job(ranks=1, steps=1)).write(tmp_path / "a")
    with pytest.raises(TraceFormatError, match="both of rank 0"):
        map_files([*files, *simulate(Job(ranks=1, steps=1)).write(tmp_path / "b")])


def test_traces_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    job = Job(ranks=2, steps=1, hosts=False, offsets_ns=(0, 10**12), layers=0)
    with pytest.raises(TraceFormatError, match="neither a collective nor time in common"):
        map_files(simulate(job).write(tmp_path))


def test_clocks_that_nothing_bounds_are_taken_as_they_are(tmp_path: Path) -> None:
    (first,) = simulate(Job(ranks=1, steps=2, hosts=False)).write(tmp_path / "a")
    other = tmp_path / "rank-1.json"
    other.write_text(first.read_text().replace('"rank": 0', '"rank": 1'))
    found = map_files([first, other])
    assert found.findings["finding"].to_pylist() == ["clock_not_bounded"]
    assert found.workers["uncertainty_ns"].to_pylist() == [0, 0, None, None]
    write_mapped(found, tmp_path / "trace")


def small_text(tmp_path: Path) -> bytes:
    (file,) = simulate(Job(ranks=1, steps=1, layers=1)).write(tmp_path / "small")
    return file.read_bytes()


def whole_lines(text: bytes) -> int:
    """How many events stand whole in a text: one per line."""
    return sum(line.rstrip(b",").endswith(b"}}") for line in text.split(b"\n")[1:])


def test_a_trace_that_is_cut_anywhere_keeps_its_whole_events_and_says_so(tmp_path: Path) -> None:
    text = small_text(tmp_path)
    file = tmp_path / "cut.json"
    first = text.index(b"}}") + 2
    for place in range(first, len(text), 1 if PROVE else 37):
        file.write_bytes(text[:place])
        log = read_rank(file)
        assert len(log.kind) == whole_lines(text[: min(place, text.rindex(b"]"))])
        assert any(name == "trace_truncated" for name, *_ in log.found) == (place < len(text.rstrip()))


def test_a_compressed_trace_that_is_cut_keeps_its_whole_events_and_says_so(tmp_path: Path) -> None:
    zipped = gzip.compress(small_text(tmp_path))
    file = tmp_path / "cut.json.gz"
    kept = []
    for place in range(len(zipped) // 2, len(zipped), 1 if PROVE else 97):
        file.write_bytes(zipped[:place])
        log = read_rank(file)
        assert [name for name, *_ in log.found][:1] == ["trace_truncated"]
        kept.append(len(log.kind))
    assert kept == sorted(kept)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"traceEvents": [%s, 7, "x", {"ph": "X", "ts": "a", "dur": 1}]}', 3),
        ('[%s, {"ph": "X", "ts": 1e30, "dur": 1, "name": "n"}, {"ph": "X", "ts": 1, "name": "n"}]', 2),
        # An array inside is one event that makes no sense, and does not end those around it.
        ('[[1, 2], ["]", [{"ph": "X", "ts": 1, "dur": 1}]], [], %s, {"ph": "X", "ts": 1}]', 4),
        ('{"traceEvents": [[1, {"]": "["}, 2], %s, [[], []]]}', 2),
        ('[%s, {"ph": "X", "ts": 99999999999999999999, "dur": 1}, {"ph": "X", "ts": 3, "dur": -1}]', 2),
        ('[%s, {"ph": "X", "cat": "cpu_op", "name": "n", "pid": [], "tid": {}, "ts": 3, "dur": 1}]', 1),
    ],
)
def test_events_that_make_no_sense_are_counted(tmp_path: Path, text: str, told: int) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text % '{"ph": "X", "cat": "cpu_op", "name": "n", "pid": 1, "tid": 1, "ts": 0.5, "dur": 2}')
    log = read_rank(file)
    assert [(name, count) for name, _, count in log.found] == [("event_damaged", told)]
    assert (log.t.tolist(), log.end.tolist()) == ([500], [2500])


@pytest.mark.parametrize("rest", ["]", ", {}]", "[%s]", "}"])
def test_what_follows_a_bare_array_is_not_read_and_said(tmp_path: Path, rest: str) -> None:
    event, file = '{"ph": "X", "cat": "cpu_op", "name": "n", "pid": 1, "tid": 1, "ts": 0.5, "dur": 2}', tmp_path / "odd"
    file.write_text(f"\n[{event}]{rest.replace('%s', event)}\n")
    log = read_rank(file)
    assert (log.t.tolist(), log.end.tolist()) == ([500], [2500])
    assert [name for name, *_ in log.found] == ["trace_truncated"]
    file.write_text(f"\n[{event}]\n \n")
    assert not read_rank(file).found


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"traceEvents": []}', "nonsense", '{"traceEvents": {}}'])
def test_a_file_without_events_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "empty.json"
    file.write_text(text)
    with pytest.raises(TraceFormatError, match="holds no event"):
        read_rank(file)


def trace_of(tmp_path: Path, events: list[dict[str, Any]]) -> Mapped:
    file = tmp_path / "small.json"
    common = {"ph": "X", "pid": 1, "tid": 1}
    file.write_text(json.dumps({"traceEvents": [common | event for event in events]}))
    return map_files([file])


def test_a_launch_that_waits_in_a_queue_arrives_before_it_is_read(tmp_path: Path) -> None:
    def kernel(correlation: int, ts: float, dur: float) -> list[dict[str, Any]]:
        args = {"correlation": correlation, "stream": 7, "device": 0}
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10 * correlation, "dur": 2}
        return [call | {"args": args}, {"cat": "kernel", "name": "k", "ts": ts, "dur": dur, "args": args}]

    found = trace_of(tmp_path, [*kernel(1, 15, 50), *kernel(2, 66, 5)])
    ((_, table),) = found.events()
    reads = [row for row in table.to_pylist() if row["kind"] == "receive"]
    # The second was launched at 22, and the shortest launch took 3.
    assert [(row["t_ns"], row["arrived_ns"]) for row in reads] == [(15_000, 15_000), (66_000, 25_000)]


ENGINE = "<built-in method run_backward of torch._C._EngineBase object at 0x7f0000000000>"


@pytest.mark.parametrize("framed", [True, False])
def test_a_call_of_the_engine_waits_for_all_its_threads_and_else_two_at_once_say_nothing(
    tmp_path: Path, *, framed: bool
) -> None:
    def event(name: str, tid: int, ts: int, dur: int, cat: str = "cpu_op") -> dict[str, Any]:
        return {"cat": cat, "name": name, "tid": tid, "ts": ts, "dur": dur}

    function = "autograd::engine::evaluate_function: MulBackward0"
    events = [event("ProfilerStep#1", 1, 0, 120, "user_annotation"), event("aten::mul", 1, 1, 8)]
    events += [event(function, 2, 20, 40), event(function, 3, 40, 50), event("aten::add", 1, 101, 9)]
    events += [event(ENGINE, 1, 10, 90, "python_function")] if framed else []
    ((_, table),) = trace_of(tmp_path, events).events()
    waits = [
        (row["t_ns"], row["inferred"])
        for row in table.to_pylist()
        if row["worker"] == 0 and row["kind"] == "start" and row["activity"] == "waiting"
    ]
    assert waits == ([(20_000, False)] if framed else [])
    ends = [row["t_ns"] for row in table.to_pylist() if row["worker"] == 0 and row["kind"] == "receive"]
    assert ends == ([90_000] if framed else [])


def test_who_calls_autograd_runs_functions_of_its_own_and_waits_between_them(tmp_path: Path) -> None:
    def event(name: str, tid: int, ts: int, dur: int, cat: str = "cpu_op") -> dict[str, Any]:
        return {"cat": cat, "name": name, "tid": tid, "ts": ts, "dur": dur}

    function = "autograd::engine::evaluate_function: "
    events = [event("ProfilerStep#1", 1, 0, 120, "user_annotation"), event("aten::mul", 1, 1, 8)]
    events += [event(f"{function}MulBackward0", 2, start, 18) for start in (20, 40, 70)]
    events += [event(f"{function}torch::autograd::AccumulateGrad", 1, 50, 10), event("aten::add_", 1, 52, 5)]
    events += [event("aten::add", 1, 101, 9)]
    ((_, table),) = trace_of(tmp_path, events).events()
    of_main = [row for row in table.to_pylist() if row["worker"] == 0]
    waits = [row["t_ns"] for row in of_main if row["kind"] == "start" and row["activity"] == "waiting"]
    assert waits == [20_000, 60_000]
    assert [row["t_ns"] for row in of_main if row["kind"] == "receive"] == [50_000, 88_000]
    assert [row["t_ns"] for row in of_main if row["kind"] == "send"] == [20_000]


def test_of_steps_that_begin_together_the_outer_one_is_the_step(tmp_path: Path) -> None:
    steps = [("train step", 0, 100), ("forward step", 0, 40), ("forward step", 100, 20), ("train step", 100, 50)]
    events = [{"cat": "user_annotation", "name": name, "ts": ts, "dur": dur} for name, ts, dur in steps]
    events.append({"cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 130})
    file = tmp_path / "rank-0.json"
    file.write_text(json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]}))
    (rank,) = map_files([file], steps="step$").ranks
    zero = rank.origin
    assert [(number, start - zero, end - zero) for number, start, end in rank.steps] == [
        (1, 0, 100_000),
        (2, 100_000, 150_000),
    ]


def test_a_step_that_begins_before_the_one_before_it_has_ended_is_a_step(tmp_path: Path) -> None:
    """It was lost, and all steps after it were taken for others than those of the other ranks."""
    steps = [("train step", 0, 100), ("train step", 99, 51), ("inner step", 120, 30), ("train step", 150, 0.5)]
    events = [{"cat": "user_annotation", "name": name, "ts": ts, "dur": dur} for name, ts, dur in steps]
    events.append({"cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 130})
    file = tmp_path / "rank-0.json"
    file.write_text(json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]}))
    found = map_files([file], steps="step$")
    (rank,) = found.ranks
    spans = [(number, start - rank.origin, end - rank.origin) for number, start, end in rank.steps]
    assert spans == [(1, 0, 100_000), (2, 99_000, 150_000), (3, 150_000, 150_500)]
    assert [(epoch, t - rank.origin) for epoch, t, _ in found.steps.ends] == [
        (0, 0),
        (1, 100_000),
        (2, 150_000),
        (3, 150_500),
    ]


@pytest.mark.parametrize(("name", "pattern"), [("train step", "step$"), ("ProfilerStep#{}", None)])
def test_a_rank_that_lacks_steps_of_others_is_named(tmp_path: Path, name: str, pattern: str | None) -> None:
    """Its steps were compared with others of the other ranks, without a word."""
    for rank, first in enumerate((0, 1, 0)):
        events: list[dict[str, Any]] = [{"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 290}]
        steps = [{"name": name.format(step), "ts": 100 * step, "dur": 100} for step in range(first, 3)]
        events += [{"cat": "user_annotation", **step} for step in steps]
        content = {"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]}
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(content))
    found = map_files([tmp_path], steps=pattern).findings.to_pylist()
    lacking = [(row["file"], row["observed"]) for row in found if row["finding"] == "steps_missing"]
    assert lacking == [("rank-1.json", 1)]


def test_messages_between_two_ranks_have_numbers_of_their_own(tmp_path: Path) -> None:
    def kernel(rank: int, name: str, ts: int, dur: int) -> dict[str, Any]:
        facts = {"Collective name": name, "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": 1}
        facts |= {"Src Rank": 0, "Dst Rank": 1} if name in {"send", "recv"} else {}
        args = {"stream": 7, "device": rank, **facts}
        return {
            "ph": "X",
            "cat": "kernel",
            "name": f"nccl {name}",
            "pid": rank,
            "tid": 7,
            "ts": ts,
            "dur": dur,
            "args": args,
        }

    files = []
    for rank, name in enumerate(("send", "recv")):
        events = [kernel(rank, "allreduce", 10 + rank, 50 - rank), kernel(rank, name, 100 + 5 * rank, 40 - 5 * rank)]
        events.append({"ph": "X", "cat": "cpu_op", "name": "n", "pid": 1, "tid": 1, "ts": 0, "dur": 200})
        files.append(tmp_path / f"rank-{rank}.json")
        files[-1].write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": rank}, "host_name": "h"}))
    joins = map_files(files).joins
    assert [(one.name, len(one.parts)) for one in joins.collectives] == [("allreduce", 2), ("send/recv", 2)]


def test_messages_of_collectives_carry_the_bytes_of_their_tensors(tmp_path: Path) -> None:
    (first, _) = files = simulate(Job(ranks=2, steps=1, layers=1)).write(tmp_path)
    for file in files:
        more = '"Out msg nelems": 3000, "dtype": "BFloat16", "In msg nelems"'
        file.write_text(file.read_text().replace('"In msg nelems"', more))
    assert '"In msg nelems": 1000' in first.read_text()
    rows = [row for _, table in map_files(files).events() for row in table.to_pylist() if row["channel"] == 4]
    assert sorted((row["kind"], row["bytes"]) for row in rows) == [
        ("receive", 2_000),
        ("receive", 6_000),
        ("send", 2_000),
        ("send", 6_000),
    ]


def test_other_chrome_traces_have_slices_without_waits(tmp_path: Path) -> None:
    found = trace_of(tmp_path, [{"name": "a", "ts": 0, "dur": 4}, {"name": "b", "ts": 1, "dur": 2}])
    ((_, table),) = found.events()
    starts = [row["activity"] for row in table.to_pylist() if row["kind"] == "start"]
    assert "processing" in starts
    assert "waiting" not in starts


def rows_of(found: Mapped) -> tuple[list[dict[str, Any]], ...]:
    ((_, events),) = found.events()
    return found.workers.to_pylist(), found.operators.rows(), events.to_pylist()


@pytest.mark.parametrize("order", [reversed, lambda events: sorted(events, key=lambda event: str(event["name"]))])
def test_workers_and_operators_do_not_depend_on_the_order_of_the_file(tmp_path: Path, order: Any) -> None:
    slices = [
        {"name": name, "pid": pid, "tid": tid, "ts": ts, "dur": 30}
        for name, pid, tid, ts in [("d", 7, 10, 0), ("c", 7, 9, 0), ("a", "gpu", 9, 0), ("b", 7, 9, 40)]
    ]
    # All that runs as long as another could be the main thread.
    slices += [{"name": "e", "pid": 7, "tid": tid, "ts": 80, "dur": dur} for tid, dur in ((10, 40), (11, 5))]
    slices += [{"name": "thread_name", "ph": "M", "pid": 7, "tid": 11, "args": {"name": "eleven"}}]
    slices += [
        {"name": "f", "ph": phase, "id": 1, "pid": 7, "tid": tid, "ts": ts}
        for phase, tid, ts in [("s", 9, 5), ("f", 10, 81)]
    ]
    slices += [{"name": "g", "ph": "s", "id": 2, "pid": 7, "tid": [], "ts": 6}]
    expected = rows_of(trace_of(tmp_path, slices))
    names = ["process 7 main thread", "process 7 thread 9", "process 7 eleven", "process gpu thread 9"]
    assert sorted(row["name"] for row in expected[0]) == sorted(f"rank 0 {name}" for name in names)
    assert rows_of(trace_of(tmp_path, list(order(slices)))) == expected


def test_flows_of_other_chrome_traces_are_messages(tmp_path: Path) -> None:
    slices = [{"name": "a", "ts": 0, "dur": 4}, {"name": "b", "tid": 2, "ts": 6, "dur": 2}]
    flows = [{"ph": "s", "id": 1, "ts": 3}, {"ph": "f", "id": 1, "tid": 2, "ts": 7}, {"ph": "f", "id": 2, "ts": 3}]
    found = trace_of(tmp_path, [*slices, *({"name": "f", **flow} for flow in flows)])
    ((_, table),) = found.events()
    ends = [(row["kind"], row["worker"], row["t_ns"]) for row in table.to_pylist() if row["channel"] is not None]
    assert sorted(ends) == [("receive", 1, 7_000), ("send", 0, 3_000)]
    assert found.meta.dropped["flows with one end"] == 1


def test_flows_and_halves_of_slices_without_a_time_are_damaged(tmp_path: Path) -> None:
    slices = [{"name": "a", "tid": tid, "ts": 10, "dur": 90} for tid in (1, 2)]
    timeless = [{"ph": phase, "id": 1} for phase in "sBE"]
    found = trace_of(tmp_path, [*slices, *timeless, {"ph": "f", "id": 1, "tid": 2, "ts": 20}])
    ((_, table),) = found.events()
    assert {row["kind"] for row in table.to_pylist()} == {"start", "stop", "epoch_end"}
    assert [(row["finding"], row["observed"]) for row in found.findings.to_pylist()] == [("event_damaged", 3)]
    assert found.meta.dropped == {"flows with one end": 1}


def test_flows_whose_long_names_begin_alike_stay_apart(tmp_path: Path) -> None:
    slices = [{"name": "a", "tid": tid, "ts": 0, "dur": 90} for tid in (1, 2)]
    ends = [("s", 1, "one", 1), ("s", 1, "two", 2), ("f", 2, "two", 11), ("f", 2, "one", 12)]
    flows = [
        {"ph": phase, "tid": tid, "ts": ts, "cat": cat * 80, "id": stem * 80 + which}
        for cat, stem in (("c", ""), ("", "i"))
        for phase, tid, which, ts in ends
    ]
    found = trace_of(tmp_path, [*slices, *flows])
    ((_, table),) = found.events()
    messages = [row for row in table.to_pylist() if row["channel"] is not None]
    sent = {row["message_seq"]: row["t_ns"] for row in messages if row["kind"] == "send"}
    read = {row["message_seq"]: row["t_ns"] for row in messages if row["kind"] == "receive"}
    assert sorted((sent[seq], read[seq]) for seq in sent) == [*2 * [(1_000, 12_000)], *2 * [(2_000, 11_000)]]
    assert found.meta.dropped == {}


def test_flows_of_one_id_whose_names_differ_are_two_flows(tmp_path: Path) -> None:
    """As the format's own readers take them: category, name and id are what the events of a flow have in common."""
    slices = [{"name": "a", "tid": tid, "ts": 0, "dur": 90} for tid in (1, 2, 3)]
    ends = [("s", "x", 1, 1), ("s", "y z", 1, 2), ("f", "x", 2, 11), ("f", "y z", 3, 12)]
    flows = [{"ph": phase, "cat": "c", "id": 1, "name": name, "tid": tid, "ts": ts} for phase, name, tid, ts in ends]
    found = trace_of(tmp_path, [*slices, *flows])
    ((_, table),) = found.events()
    messages = [row for row in table.to_pylist() if row["channel"] is not None]
    places = {row["worker"]: row for row in messages if row["kind"] == "receive"}
    sent = {row["peer"]: row["t_ns"] for row in messages if row["kind"] == "send"}
    assert {worker: (sent[worker], row["t_ns"]) for worker, row in places.items()} == {
        1: (1_000, 11_000),
        2: (2_000, 12_000),
    }
    assert found.meta.dropped == {}


def test_flows_of_other_chrome_traces_that_are_no_messages_are_counted(tmp_path: Path) -> None:
    slices = [{"name": "a", "tid": tid, "ts": 0, "dur": 90} for tid in (1, 2)]
    # Per flow: letters, threads and times. Thread 9 does nothing.
    flows = {
        "message": [("s", 1, 1), ("t", 2, 2), ("f", 1, 3)],
        "began twice": [("s", 1, 4), ("s", 1, 5), ("f", 2, 6)],
        "never read": [("s", 1, 7)],
        "never sent": [("f", 2, 8)],
        "from nobody": [("s", 9, 9), ("f", 2, 10)],
        "to itself": [("s", 1, 11), ("f", 1, 12)],
        "back in time": [("f", 2, 13), ("s", 1, 14)],
        "back in time twice": [("f", 2, 15), ("f", 2, 16), ("s", 1, 17)],
    }
    events = [
        {"ph": phase, "id": name, "tid": tid, "ts": ts} for name, ends in flows.items() for phase, tid, ts in ends
    ]
    found = trace_of(tmp_path, [*slices, *events])
    ((_, table),) = found.events()
    assert sum(row["kind"] == "send" for row in table.to_pylist()) == 3
    assert found.meta.dropped == {
        "flows with one end": 6,
        "flows that end before they begin": 4,
        "flows within a thread": 1,
    }


def test_processes_of_other_chrome_traces_stay_apart(tmp_path: Path) -> None:
    threads = ((10, 1, 9), (20, 1, 5), (30, 1, 4), (10, 2, 3))
    found = trace_of(tmp_path, [{"pid": pid, "tid": tid, "ts": 0, "dur": dur} for pid, tid, dur in threads])
    workers = [(row["process"], row["name"]) for row in found.workers.to_pylist()]
    assert workers == [
        (0, "rank 0 process 10 main thread"),
        (0, "rank 0 process 10 thread 2"),
        (1, "rank 0 process 20 thread 1"),
        (2, "rank 0 process 30 thread 1"),
    ]


def test_activities_that_take_no_time_are_counted(tmp_path: Path) -> None:
    instant, lasting = {"name": "a", "ts": 2, "dur": 0}, {"name": "b", "ts": 1, "dur": 5}
    for kind in ({}, {"cat": "cpu_op"}):
        found = trace_of(tmp_path, [lasting | kind, instant | kind, instant | kind])
        assert found.meta.dropped == {"activities that take no time": 2}
        with pytest.raises(TraceFormatError, match="no event that takes time"):
            trace_of(tmp_path, [instant | kind])


def test_files_of_a_folder_that_are_not_read_are_findings(tmp_path: Path) -> None:
    event = {"ph": "X", "name": "f", "pid": 1, "tid": 1, "ts": 0, "dur": 4}
    trace = json.dumps({"traceEvents": [event] * 50}).encode()
    files = {
        "rank-0.json": trace,
        "rank-1.json": b"",
        "rank-2.json.gz": gzip.compress(trace)[:-9],
        "rank-3.json.gz": b"\x1f\x8b no gzip",
        "config.json": b'{"steps": 3}',
        "notes.txt": b"",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    found = map_files([tmp_path])
    assert [rank.number for rank in found.ranks] == [0, 2]
    told = [(row["finding"], row["file"], row["action"]) for row in found.findings.to_pylist()]
    assert [row for row in told if row[0] == "file_left_out"] == [
        ("file_left_out", "config.json", "not read: it is JSON without `traceEvents`"),
        ("file_left_out", "rank-1.json", "not read: it is no JSON"),
        (
            "file_left_out",
            "rank-3.json.gz",
            "not read: it cannot be read, or is damaged from its beginning on",
        ),
    ]
    assert ("trace_truncated", "rank-2.json.gz") in [row[:2] for row in told]
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceFormatError, match=r"There is no trace at .*empty"):
        map_files([tmp_path / "empty"])


def test_begins_and_ends_of_other_chrome_traces_are_slices(tmp_path: Path) -> None:
    halves = [("B", 1, "outer"), ("B", 2, "inner"), ("E", 5, None), ("E", 9, None), ("E", 11, None), ("B", 12, "open")]
    found = trace_of(tmp_path, [{"ph": phase, "ts": ts, "name": name} for phase, ts, name in halves])
    log = found.ranks[0].log
    assert sorted((log.names[name], t, end) for name, t, end in zip(log.name, log.t, log.end, strict=True)) == [
        ("inner", 2_000, 5_000),
        ("outer", 1_000, 9_000),
    ]
    assert found.meta.dropped == {"begins without an end": 1, "ends of slices": 2, "ends without a begin": 1}


def test_without_correlations_flows_lead_from_calls_to_activities(tmp_path: Path) -> None:
    (file,) = simulate(Job(ranks=1, steps=2)).write(tmp_path / "one")
    document = json.loads(file.read_text())
    expected = [table for _, table in map_files([file]).events()]
    flows = []
    for event in document["traceEvents"]:
        number = event["args"].get("correlation")
        if event["cat"] == "cuda_sync" or number is None:
            continue
        start = {"ph": "s", "id": number, "cat": "ac2g", "name": "ac2g"}
        place = {key: event[key] for key in ("pid", "tid", "ts")}
        # Kineto draws an end at calls too, and flows between forward and backward with ids of their own.
        flows.append({**start, **place, "ph": "f" if event["cat"] == "kernel" else "s"})
        flows.append({**start, **place, "ph": "f", "cat": "fwdbwd"})
    for event in document["traceEvents"]:
        if event["cat"] != "cuda_sync":
            event["args"].pop("correlation", None)
    document["traceEvents"] += flows
    file.write_text(json.dumps(document))
    found = map_files([file])
    # Which waits for streams belong to which calls only correlations say.
    kinds = [[row["kind"] for row in table.to_pylist() if row["channel"] == 0] for _, table in found.events()]
    assert kinds == [[row["kind"] for row in table.to_pylist() if row["channel"] == 0] for table in expected]
    assert found.meta.dropped["flows that lead to no activity"] > 0
    assert "flows with one end" not in found.meta.dropped


def test_collectives_of_processors_are_joined_and_waited_for(tmp_path: Path) -> None:
    found = map_files([gloo_rank(tmp_path, 0, asked=100, ended=640), gloo_rank(tmp_path, 1, asked=500, ended=650)])
    (collective,) = found.joins.collectives
    assert [(part.begin, part.end) for part in collective.parts] == [(110_000, 640_000), (510_000, 650_000)]
    assert (collective.inferred, collective.everybody_waits) == (True, True)
    write_mapped(found, tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "pag", engine="local")
    pag = api.open(tmp_path / "pag")
    path = pl.from_arrow(pag.critical_path(epoch=1).steps)
    assert isinstance(path, pl.DataFrame)
    names = dict(pag.run.scan("workers").select("worker", "name").collect().iter_rows())
    taken = [(names[worker], kind, ns) for worker, kind, ns in path.select("worker", "type", "duration_ns").iter_rows()]
    # Back from the end: rank 1 works after its collective, which began when it was asked for, as late as it was.
    assert [(name, kind, ns) for name, kind, ns in taken if ns > 1] == [
        ("rank 1 main thread", "processing", 489_999),
        ("rank 1 main thread", "busy", 5_000),
        ("rank 1 main thread", "processing", 10_000),
        ("rank 1 main thread", "control_message", 5_000),
        ("rank 1 thread 2", "io", 140_000),
        ("rank 1 main thread", "busy", 20_000),
        ("rank 1 main thread", "processing", 30_000),
        ("rank 1 main thread", "busy", 10_000),
    ]
    waits = pag.run.scan("edges").filter(pl.col("type").cast(pl.String) == "waiting").collect()["duration_ns"]
    # Rank 0: its thread for the call and for rank 1, and who called; of rank 1 the thread and who called.
    assert sorted(waits) == [110_000 - 5_000 + 5_000, 145_000, 400_000, 510_000, 535_000]


def test_of_several_groups_nobody_knows_which_one_a_processor_served(tmp_path: Path) -> None:
    files = [gloo_rank(tmp_path, rank, asked=100, ended=200) for rank in (0, 1)]
    for file in files:
        document = json.loads(file.read_text())
        groups = [{"pg_name": name, "ranks": ranks} for name, ranks in (("0", [0, 1]), ("1", [0]))]
        document["distributedInfo"]["pg_config"] = groups
        file.write_text(json.dumps(document))
    found = map_files(files)
    assert not found.joins.collectives
    assert found.findings["finding"].to_pylist() == ["collective_without_group"] * 2


def test_more_ranks_than_there_can_be_are_not_believed(tmp_path: Path) -> None:
    file = gloo_rank(tmp_path, 0, asked=100, ended=200)
    file.write_text(file.read_text().replace('"world_size": 2', '"world_size": 9007199254740991'))
    found = map_files([file])
    assert found.findings["finding"].to_pylist() == ["collective_without_group"]


@pytest.mark.parametrize("value", ["9223372036854775808", "[]", '"x"', "1e300", "null"])
def test_odd_correlations_and_phases_are_no_correlations_and_phases(tmp_path: Path, value: str) -> None:
    event = '{"ph": "X", "cat": "cuda_runtime", "name": "n", "pid": 1, "tid": 1, "ts": 3, "dur": 1, "args": {%s}}'
    file = tmp_path / "odd.json"
    file.write_text('[%s, {"ph": %s, "ts": 1}]' % (event % f'"correlation": {value}', value))  # noqa: UP031
    log = read_rank(file)
    assert log.correlation.tolist() == [-1]
    assert log.dropped["other phases"] == 1


def test_a_trace_that_memory_does_not_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = simulate(Job(ranks=1, steps=1)).write(tmp_path, "gzip")
    monkeypatch.setattr(event_text, "_CHECKED_EACH", 1)
    monkeypatch.setattr(event_text, "_NEEDED", 1 << 60)
    with pytest.raises(TraceFormatError, match=r"takes about .* of memory"):
        read_rank(file)
