"""Analyses of random small traces against plain loops over the edges."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.diff import diff
from pag_graph.analyses.invariants import InvariantsParameters, invariants
from pag_graph.analyses.k_hops_st2 import KHopsSt2Parameters, k_hops_st2
from pag_graph.analyses.profile import ProfileParameters
from pag_graph.analyses.profile_rounds import profile_rounds
from pag_graph.analyses.runner import with_epochs
from pag_graph.analyses.stragglers import StragglersParameters
from pag_graph.analyses.view import view_of
from pag_graph.analyses.why import WhyParameters, why
from pag_graph.testing.strategies import small_traces

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

    Row = dict[str, Any]
    Fixture = Callable[..., Any]

blame = find_analysis("blame")
imbalance = find_analysis("imbalance")
matrix = find_analysis("matrix")
metrics = find_analysis("metrics")
profile = find_analysis("profile")
skew = find_analysis("skew")
stragglers = find_analysis("stragglers")
traffic = find_analysis("traffic")
waits = find_analysis("waits")

MESSAGES = {"data_message", "progress_message", "control_message", "spawn"}
traces = small_traces(skewed=True, max_steps=50)


def windows_of(run: Run, data: st.DataObject) -> list[Window]:
    chosen = run.windows()
    if run.end_ns:
        start = data.draw(st.integers(0, run.end_ns - 1))
        chosen.append(run.window(between=(start, data.draw(st.integers(start + 1, run.end_ns)))))
    return [window for window in chosen if window.span_ns > 0]


def end(edge: Row) -> int:
    return int(edge["start_ns"] + edge["duration_ns"])


def inside(edge: Row, window: Window) -> int:
    return max(0, min(end(edge), window.end_ns) - max(edge["start_ns"], window.start_ns))


def is_local(edge: Row) -> bool:
    return edge["type"] not in MESSAGES


def worker(vertex: int) -> int:
    return vertex >> 40


def holds(window: Window, t_ns: int) -> bool:
    origin = t_ns == window.start_ns == 0 and not window.follows
    return window.start_ns < t_ns <= window.end_ns or origin


def ends_in(edge: Row, window: Window) -> bool:
    return holds(window, end(edge))


def workers_there(edges: list[Row], window: Window) -> list[int]:
    """Return who lives or does anything in a window, and is not `unknown` all the time."""
    local = list(filter(is_local, edges))
    lives = lives_of(edges)
    acting = {worker(edge["dst"]) for edge in local if ends_in(edge, window)}
    alive = {n for n, (born, gone) in lives.items() if gone > window.start_ns and born < window.end_ns}
    times: dict[int, Counter[bool]] = defaultdict(Counter)
    for edge in local:
        times[worker(edge["dst"])][edge["type"] == "unknown"] += inside(edge, window)
    return sorted(n for n in acting | alive if times[n][False] or not times[n][True])


def labelled(edges: list[Row], run: Run, window: Window) -> list[Row]:
    if window.epoch is None:
        return [edge for edge in edges if ends_in(edge, window)]
    known = run.epochs["epoch"].to_list()
    last = window.epoch == known[-1]
    before = max((epoch for epoch in known if epoch < window.epoch), default=-1)
    return [edge for edge in edges if edge["epoch"] > before and (last or edge["epoch"] <= window.epoch)]


def delivered(edge: Row) -> int:
    buffered = edge["receive_buffer_ns"] or 0
    return int(edge["duration_ns"] + (buffered if edge["read"] not in {None, edge["dst"]} else 0))


def charged(edges: list[Row], window: Window) -> Counter[tuple[Any, ...]]:
    """Walk back from the end of every wait, edge by edge."""
    into = {edge["dst"]: edge for edge in edges if is_local(edge)}
    waits = [edge for edge in into.values() if edge["type"] == "waiting" and inside(edge, window)]
    enders = {}
    for edge in edges:
        # Nothing but its start leads into the first vertex of a worker that another one started.
        if not is_local(edge) and into.get(edge["dst"], {"type": "waiting"})["type"] == "waiting":
            enders.setdefault(edge["dst"], edge)
    found: Counter[tuple[Any, ...]] = Counter()
    for wait in waits:
        low, high = max(wait["start_ns"], window.start_ns), min(end(wait), window.end_ns)
        edge = enders[wait["dst"]]
        while True:
            took = min(end(edge), high) - max(edge["start_ns"], low)
            if took > 0:
                who = (worker(wait["dst"]), worker(edge["src"]), worker(edge["dst"]))
                found[*who, edge["type"], edge["operator"], edge["channel"]] += took
            if edge["start_ns"] <= low:
                break
            at = edge["src"]
            edge = into.get(at, enders.get(at))
            if edge["type"] == "waiting":
                edge = enders[at]
    return found


@given(traces, st.data())
def test_blame_is_the_waiting_and_what_the_paths_say(
    in_memory: Fixture, whole_run: Fixture, trace: Any, data: st.DataObject
) -> None:
    drawn = in_memory(trace)
    run = whole_run(drawn)
    for window in windows_of(run, data):
        rows = blame(run.snapshot(window)).to_pylist()
        waited = sum(inside(edge, window) for edge in drawn.edges if edge["type"] == "waiting")
        assert sum(row["blamed_ns"] for row in rows) == waited
        names = ("worker", "by_worker", "to_worker", "type", "operator", "channel")
        assert {tuple(row[name] for name in names): row["blamed_ns"] for row in rows} == charged(drawn.edges, window)
        assert all(row["type"] != "waiting" for row in rows)


@given(traces, st.data())
def test_imbalances_add_up_to_the_mean_waiting(
    in_memory: Fixture, whole_run: Fixture, trace: Any, data: st.DataObject
) -> None:
    drawn = in_memory(trace)
    run = whole_run(drawn)
    for window in windows_of(run, data):
        snapshot = run.snapshot(window)
        path = critical_path(snapshot)
        rows = imbalance(snapshot).to_pylist()
        local = [edge for edge in drawn.edges if is_local(edge)]
        # Workers that come or go count for as long as they are there.
        count = sum(inside(edge, window) for edge in local) / window.span_ns
        waited = sum(inside(edge, window) for edge in local if edge["type"] == "waiting")
        assert sum(row["imbalance_ns"] for row in rows) == pytest.approx(waited / count, abs=1e-6)
        for row in rows:
            of_type = sum(inside(edge, window) for edge in local if edge["type"] == row["type"])
            assert row["path_ns"] == path.by_type.get(row["type"], 0)
            assert row["mean_ns"] == pytest.approx(of_type / count)
            assert row["excess_ns"] == max(0, row["imbalance_ns"])


@given(traces, st.data(), st.integers(0, 3))
def test_profiles_cover_the_path(
    in_memory: Fixture, whole_run: Fixture, trace: Any, data: st.DataObject, n: int
) -> None:
    run = whole_run(in_memory(trace), {0: ("0", "Dataflow"), 1: ("0.1", "Map")})
    for window in windows_of(run, data):
        snapshot = run.snapshot(window)
        steps = critical_path(snapshot).steps.to_pylist()
        keys: dict[str, Counter[str]] = defaultdict(Counter)
        for step in steps:
            message = step["type"] in MESSAGES
            names = {0: "Dataflow (0)", 1: "Map (0.1)", None: "(no operator)"}
            operator = names.get(step["operator"], f"operator {step['operator']}")
            for by, key in (
                ("type", step["type"]),
                ("operator", "(messages)" if message else operator),
                ("worker", "(messages)" if message else f"worker {step['worker']}"),
                ("pair", f"{step['worker']} -> {step['to_worker']}" if message else "(local)"),
            ):
                keys[by][key] += step["duration_ns"]
        rows = profile(snapshot, ProfileParameters(n=n)).to_pylist()
        for by, times in keys.items():
            ranked = sorted(times.items(), key=lambda item: (-item[1], item[0]))
            expected = ranked[: n or None]
            if n and len(ranked) > n:
                expected.append(("(other)", sum(ns for _, ns in ranked[n:])))
            found = [row for row in rows if row["by"] == by]
            assert [(row["key"], row["path_ns"]) for row in found] == expected
            assert [row["rank"] for row in found] == list(range(1, len(found) + 1))
            assert sum(row["keys"] for row in found) == len(ranked)
            assert sum(row["steps"] for row in found) == len(steps)
            assert sum(row["path_ns"] for row in found) == window.span_ns


def rounds_of(run: Run) -> list[Window]:
    windows = run.windows()
    return [window for window in windows if str(window.role) == "round"] or windows


def parts_of(run: Run, name: str, parameters: Any, rounds: list[Window]) -> Any:
    import pyarrow as pa

    part = find_analysis(name).table
    return pa.concat_tables([with_epochs(part(view_of(run.snapshot(w)), parameters), [w]) for w in rounds])


@given(traces, st.integers(0, 2))
def test_profiles_of_all_rounds_are_those_of_each(in_memory: Fixture, whole_run: Fixture, trace: Any, n: int) -> None:
    run = whole_run(in_memory(trace))
    rounds = rounds_of(run)
    parameters = ProfileParameters(by="type", n=n)
    rows = profile_rounds(run, parameters, parts=parts_of(run, "profile-rounds", parameters, rounds)).to_pylist()
    times = [critical_path(run.snapshot(window)).by_type for window in rounds]
    totals = Counter()
    for each in times:
        totals.update(each)
    ranked = sorted(totals, key=lambda kind: (-totals[kind], kind))
    groups = [[kind] for kind in (ranked[:n] if n else ranked)] + ([ranked[n:]] if n and len(ranked) > n else [])
    assert len(rows) == len(groups)
    for row, kinds in zip(rows, groups, strict=True):
        per_round = [sum(each.get(kind, 0) for kind in kinds) for each in times]
        ordered = sorted(per_round)
        assert row["path_ns"] == sum(per_round)
        assert row["rounds"] == sum(any(kind in each for kind in kinds) for each in times)
        assert row["mean_ns"] == pytest.approx(sum(per_round) / len(rounds))
        for share in (50, 90, 99):
            assert row[f"p{share}_ns"] == min(
                ns for ns in ordered if 100 * sum(other <= ns for other in ordered) >= share * len(ordered)
            )
        assert row["max_ns"] == max(per_round)
    assert sum(row["path_ns"] for row in rows) == sum(window.span_ns for window in rounds)


@given(traces, st.data())
def test_metrics_count_every_edge_once(in_memory: Fixture, whole_run: Fixture, trace: Any, data: st.DataObject) -> None:
    drawn = in_memory(trace)
    run = whole_run(drawn)
    total = sent_count = 0
    for window in [*run.windows(), *windows_of(run, data)]:
        edges = labelled(drawn.edges, run, window)
        expected: dict[Any, list[Any]] = defaultdict(lambda: [0, 0, 0, None])
        told: dict[Any, list[int | None]] = defaultdict(list)
        for edge in edges:
            key = edge["epoch"], worker(edge["src"]), worker(edge["dst"]), edge["type"]
            for at, value in enumerate((1, edge["duration_ns"], delivered(edge))):
                expected[key][at] += value
            told[key].append(edge["records"])
        for key, found in told.items():
            counts = [records for records in found if records is not None]
            local = key[3] not in {"data_message", "progress_message", "control_message", "spawn"}
            if counts and (local or None not in found):
                expected[key][3] = sum(counts)
        snapshot = run.snapshot(window)
        rows = metrics(snapshot).to_pylist()
        assert {tuple(row.values())[:4]: [*row.values()][4:] for row in rows} == expected
        pairs = {(row["from_worker"], row["to_worker"]): row for row in matrix(snapshot).to_pylist()}
        assert len(pairs) == len(run.workers) * (len(run.workers) - 1)
        for pair, row in pairs.items():
            sent = [
                edge
                for edge in drawn.edges
                if not is_local(edge)
                and (worker(edge["src"]), worker(edge["dst"])) == pair
                and holds(window, edge["start_ns"])
            ]
            data_sent = [edge for edge in sent if edge["type"] == "data_message"]
            assert (row["messages"], row["data_messages"]) == (len(sent), len(data_sent))
            records = [edge["records"] for edge in data_sent]
            assert row["records"] == (None if None in records else sum(records))
            assert row["delivered_ns"] == sum(map(delivered, data_sent))
    for window in run.windows():
        sent_count += sum(matrix(run.snapshot(window))["messages"].to_pylist())
        total += sum(metrics(run.snapshot(window))["activities"].to_pylist())
    assert total == len(drawn.edges)
    assert sent_count == sum(not is_local(edge) for edge in drawn.edges)


@given(traces, st.data())
def test_skew_and_stragglers(in_memory: Fixture, whole_run: Fixture, trace: Any, data: st.DataObject) -> None:
    drawn = in_memory(trace)
    run = whole_run(drawn)
    for window in windows_of(run, data):
        snapshot = run.snapshot(window)
        local = [edge for edge in drawn.edges if is_local(edge)]
        there = workers_there(drawn.edges, window)
        read: Counter[Any] = Counter()
        tells = {worker(edge["dst"]) for edge in local if edge["records"] is not None and ends_in(edge, window)}
        untold = {
            worker(edge["dst"])
            for edge in drawn.edges
            if edge["type"] == "data_message" and edge["records"] is None and ends_in(edge, window)
        }
        for edge in local:
            if edge["records"] and ends_in(edge, window):
                read[edge["operator"], worker(edge["dst"])] += edge["records"]
        rows = skew(snapshot).to_pylist()
        assert {(row["operator"], row["worker"]): row["records"] for row in rows if row["records"]} == +read
        for row in rows:
            of_operator = [read[row["operator"], number] for number in there]
            assert row["worker"] in there
            assert row["share"] == pytest.approx(row["records"] / sum(of_operator))
            assert row["skew_ratio"] == pytest.approx(max(of_operator) * len(of_operator) / sum(of_operator))
        work: Counter[int] = Counter()
        for edge in local:
            if edge["type"] not in {"waiting", "idle", "input_wait", "spinning", "unknown"}:
                work[worker(edge["dst"])] += inside(edge, window)
        blamed: Counter[int] = Counter()
        for (_, by, to, *_), ns in charged(drawn.edges, window).items():
            blamed[by] += ns if by == to else 0
        if not there:
            # The window has no length, or nobody is recorded in it.
            assert not rows
            assert not stragglers(snapshot).num_rows
            continue
        median = statistics.median(work[number] for number in there)
        known_read = {
            one: sum(count for (_, number), count in read.items() if number == one)
            for one in there
            if one in tells or (one not in untold and tells & set(there))
        }
        median_read = statistics.median(known_read.values()) if known_read else 0
        judged = stragglers(snapshot, StragglersParameters(above=1.25)).to_pylist()
        assert sorted(row["worker"] for row in judged) == there
        for row in judged:
            number = row["worker"]
            assert (row["work_ns"], row["blamed_ns"]) == (work[number], blamed[number])
            late = work[number] > 1.25 * median and blamed[number] > 0
            assert row["records"] == known_read.get(number)
            more = (row["records"] or 0) > 1.25 * median_read
            assert (row["straggler"], row["cause"]) == (late, ("data" if more else "speed") if late else None)


@given(traces, traces, st.data())
def test_differences_add_up(
    in_memory: Fixture, whole_run: Fixture, trace: Any, other: Any, data: st.DataObject
) -> None:
    names = {0: ("0", "Dataflow"), 1: ("0.1", "Map"), 2: ("0.2", "Old")}
    before = whole_run(in_memory(trace), names, readers={0: 1, 1: 7})
    after = whole_run(in_memory(other), {**names, 2: ("0.2", "New")}, readers={0: 1})
    olds = [before.snapshot(window) for window in windows_of(before, data)]
    news = [after.snapshot(window) for window in windows_of(after, data)]
    assume(olds and news)
    for one, two in ((olds, news), (olds[0], news[-1]), (olds[0], olds[-1])):
        found = diff(one, two)
        rows = found.table.to_pylist()
        spans = [
            sum(snapshot.window.span_ns for snapshot in (side if isinstance(side, list) else [side]))
            for side in (one, two)
        ]
        assert (found.before_ns, found.after_ns) == tuple(spans)
        assert sum(row["difference_ns"] for row in rows) == found.difference_ns == spans[1] - spans[0]
        for row in rows:
            assert row["count_ns"] + row["mean_ns"] == row["difference_ns"] == row["after_ns"] - row["before_ns"]
            steps = (row["before_steps"], row["after_steps"])
            means = [
                Fraction(row[f"{side}_ns"], n) if n else None
                for side, n in zip(("before", "after"), steps, strict=True)
            ]
            first, second = (mean if mean is not None else means[1 - at] for at, mean in enumerate(means))
            assert first is not None
            assert second is not None
            exact = (steps[1] - steps[0]) * (first + second) / 2
            assert abs(row["count_ns"] - exact) <= Fraction(1, 2) + Fraction(1, 10**6)
            assert row["status"] == ("both" if all(steps) else "appeared" if steps[1] else "gone")
        assert found.markdown(top=3).count("\n| ") == min(len(rows), 3) + (len(rows) > 3) + 2


@given(traces, st.data())
def test_waits_and_traffic(in_memory: Fixture, whole_run: Fixture, trace: Any, data: st.DataObject) -> None:
    drawn = in_memory(trace)
    run = whole_run(drawn)
    enders: dict[int, Row] = {}
    for edge in sorted(drawn.edges, key=lambda edge: (edge["dst"], edge["src"])):
        if not is_local(edge):
            enders.setdefault(edge["dst"], edge)
    for window in windows_of(run, data):
        snapshot = run.snapshot(window)
        waited: Counter[Any] = Counter()
        for edge in drawn.edges:
            if edge["type"] == "waiting" and inside(edge, window):
                by = enders[edge["dst"]]
                waited[worker(edge["dst"]), worker(by["src"]), by["type"], by["channel"]] += inside(edge, window)
        rows = waits(snapshot).to_pylist()
        names = ("worker", "from_worker", "type", "channel")
        assert {tuple(row[n] for n in names): row["waiting_ns"] for row in rows if row["waiting_ns"]} == waited
        sent: dict[Any, list[int | None]] = defaultdict(list)
        for edge in drawn.edges:
            if not is_local(edge) and holds(window, edge["start_ns"]):
                key = worker(edge["src"]), worker(edge["dst"]), edge["type"], edge["channel"]
                sent[key].append(edge["records"])
        names = ("from_worker", "to_worker", "type", "channel")
        rows = traffic(snapshot).to_pylist()
        assert {tuple(row[name] for name in names): (row["messages"], row["records"]) for row in rows} == {
            key: (len(records), None if None in records else sum(records)) for key, records in sent.items()
        }


@given(traces, st.data())
def test_reports_say_what_the_analyses_say(
    in_memory: Fixture, whole_run: Fixture, trace: Any, data: st.DataObject
) -> None:
    drawn = in_memory(trace)
    run = whole_run(drawn, {0: ("0", "Dataflow"), 1: ("0.1", "Map")})
    windows = windows_of(run, data)
    assume(windows)
    window = data.draw(st.sampled_from(windows))
    told = why(run.snapshot(window), WhyParameters(lines=data.draw(st.integers(1, 60))))
    rows = told.table.to_pylist()
    assert sorted(row["rank"] for row in rows) == list(range(1, len(rows) + 1))
    assert sum(row["time_ns"] for row in rows if row["topic"] == "path") == window.span_ns
    waited = sum(inside(edge, window) for edge in drawn.edges if edge["type"] == "waiting")
    assert next(row["time_ns"] for row in rows if row["topic"] == "waiting") == waited
    assert len(told.text(top=100).splitlines()) <= max(told.lines, 3)
    assert told.alarm == (str(told.cause) not in {"work", "input", "unknown"})
    for row in rows:
        if row["topic"] == "help" and row["time_ns"] is not None:
            assert 0 < row["time_ns"] <= window.span_ns


@given(small_traces(skewed=True, complete=True), st.data())
def test_invariants(in_memory: Fixture, whole_run: Fixture, trace: Any, data: st.DataObject) -> None:
    drawn = in_memory(trace)
    run = whole_run(drawn)
    limit = st.none() | st.integers(0, 60)
    parameters = InvariantsParameters(
        epoch_max_ns=data.draw(limit),
        message_max_ns=data.draw(limit),
        operator_max_ns=data.draw(limit),
        progress_max_ns=data.draw(limit),
        progress_to_all=data.draw(st.booleans()),
        deviations=data.draw(st.sampled_from((0.0, 1.0))),
        tolerance=data.draw(st.sampled_from((0.0, 0.5))),
        least_ns=data.draw(st.sampled_from((0, 0, 5))),
        at_least=1,
        over=data.draw(st.integers(1, 3)),
    )
    rounds = rounds_of(run)
    table = invariants(run, parameters, parts=parts_of(run, "invariants", parameters, rounds))
    found = Counter(
        (row["invariant"], row["learned"], row["epoch"], row["worker"], row["to_worker"], row["observed"], row["limit"])
        for row in table.to_pylist()
    )
    seen: list[tuple[str, int, Any, Any, Any, int]] = []
    for window in rounds:
        edges = labelled(drawn.edges, run, window)
        epoch = window.epoch
        row = run.epochs.filter(run.epochs["epoch"] == epoch).row(0, named=True)
        if row["entry_ns"] is not None and any(is_local(edge) for edge in edges):
            seen.append(("epoch_max", epoch, None, None, (), row["exit_ns"] - row["entry_ns"]))
        for edge in edges:
            if not is_local(edge):
                ends = (worker(edge["src"]), worker(edge["dst"]))
                seen.append(("message_max", epoch, *ends, (edge["type"], edge["channel"]), delivered(edge)))
        groups: dict[int, list[Row]] = defaultdict(list)
        for edge in edges:
            if edge["type"] in {"processing", "spinning"} and edge["activation"] is not None:
                groups[edge["activation"]].append(edge)
        for activation, parts in groups.items():
            took = max(map(end, parts)) - min(part["start_ns"] for part in parts)
            key = (parts[0]["type"], parts[0]["operator"])
            seen.append(("operator_max", epoch, worker(activation), None, key, took))
    gaps, sent = progress(drawn.edges, run, rounds)
    seen += gaps
    expected: Counter[tuple[Any, ...]] = Counter()
    history: dict[Any, dict[int, int]] = defaultdict(dict)
    for name, epoch, source, target, key, observed in seen:
        given_limit = getattr(parameters, f"{name}_ns")
        if given_limit is not None and observed > given_limit:
            expected[name, False, epoch, source, target, observed, given_limit] += 1
        per_epoch = history[name, source, target, key]
        per_epoch[epoch] = max(per_epoch.get(epoch, observed), observed)
    for (name, source, target, _), per_epoch in history.items():
        values = [per_epoch[epoch] for epoch in sorted(per_epoch)]
        for at, epoch in enumerate(sorted(per_epoch)):
            before = values[max(0, at - parameters.over) : at]
            if before:
                median = statistics.median(before)
                mad = statistics.median(abs(value - median) for value in before)
                margin = max(
                    parameters.deviations * 1.4826 * mad, parameters.tolerance * abs(median), parameters.least_ns
                )
                learned = floor(median + margin)
                # A limit below zero would have no meaning, and comes from negative transfers only.
                if learned >= 0 and values[at] > learned:
                    expected[name, True, epoch, source, target, values[at], learned] += 1
    for window in rounds:
        owing = there_throughout(drawn.edges, window)
        # Where nobody has sent progress up to the end of an epoch, the log may hold none.
        if not any(epoch is not None and epoch <= window.epoch for epoch, _ in sent):
            continue
        for number in owing:
            reached = sent[window.epoch, number]
            least = len(owing) - 1 if parameters.progress_to_all else min(len(owing) - 1, 1)
            count = len(reached & set(owing)) if parameters.progress_to_all else len(reached)
            if count < least:
                expected["some_progress", False, window.epoch, number, None, count, least] += 1
    assert found == expected


def lives_of(edges: list[Row]) -> dict[int, tuple[int, int]]:
    lives: dict[int, tuple[int, int]] = {}
    for edge in filter(is_local, edges):
        born, gone = lives.get(worker(edge["dst"]), (edge["start_ns"], end(edge)))
        lives[worker(edge["dst"])] = min(born, edge["start_ns"]), max(gone, end(edge))
    return lives


def there_throughout(edges: list[Row], window: Window) -> list[int]:
    """Return who lives all through a window, and goes on at the instant of one without length."""
    return sorted(
        number
        for number, (born, gone) in lives_of(edges).items()
        if born <= window.start_ns and gone >= window.end_ns and gone > window.after_ns
    )


def progress(
    edges: list[Row], run: Run, rounds: list[Window]
) -> tuple[list[tuple[str, int, Any, Any, Any, int]], dict[Any, set[int]]]:
    """Return the gaps between progress messages, and who was reached by whom per epoch."""
    sends: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    sent: dict[Any, set[int]] = defaultdict(set)
    # A row of epochs stands for those after the row before it, and the last one for all later ones.
    rows = run.epochs["epoch"].to_list()
    sent_in = {edge["src_epoch"] for edge in edges}
    counted = {epoch: next((row for row in rows if row >= epoch), rows[-1]) for epoch in sent_in}
    for edge in edges:
        if edge["type"] == "progress_message":
            epoch = counted[edge["src_epoch"]]
            sends[worker(edge["src"])][edge["src"]] = (edge["start_ns"], epoch)
            sent[epoch, worker(edge["src"])].add(worker(edge["dst"]))
    known = {window.epoch for window in rounds}
    gaps: list[tuple[str, int, Any, Any, Any, int]] = []
    end_ns, last = max(window.end_ns for window in rounds), max(window.epoch or 0 for window in rounds)
    for number, vertices in sends.items():
        ordered = sorted((t, vertex, epoch) for vertex, (t, epoch) in vertices.items())
        for (before, *_), (t, _, epoch) in itertools.pairwise(ordered):
            if epoch in known:
                gaps.append(("progress_max", epoch, number, None, (), t - before))
        open_since = [t for t, *_ in ordered if t <= end_ns]
        # A worker that has ended by then owes nothing any more, nor does one that is alone.
        alive = [n for n, (born, gone) in lives_of(edges).items() if born <= end_ns <= gone]
        if open_since and number in alive and len(alive) > 1:
            gaps.append(("progress_max", last, number, None, (), end_ns - open_since[-1]))
    return gaps, sent


@given(traces, st.integers(1, 5))
def test_k_hops_of_snailtrail(in_memory: Fixture, whole_run: Fixture, trace: Any, k: int) -> None:
    drawn = in_memory(trace)
    edges = sorted(drawn.edges, key=lambda edge: (edge["epoch"], edge["dst"], edge["src"]))
    by_end = defaultdict(list)
    for edge in edges:
        by_end[end(edge)].append(edge)
    walks = []
    waiting: set[int] = set()
    for edge in edges:
        if not is_local(edge):
            continue
        number, starts = worker(edge["dst"]), []
        if edge["type"] == "waiting":
            starts += [other for other in by_end[end(edge)] if other["type"] != "waiting"]
        if number in waiting:
            waiting.remove(number)
            if edge["type"] == "processing":
                starts += [other for other in by_end[end(edge)] if other["type"] == "data_message"]
        elif edge["type"] == "waiting":
            waiting.add(number)
        walks += [(max(edge["epoch"], other["epoch"]), other) for other in starts]
    expected: Counter[tuple[int, int, str, int, str]] = Counter()
    for hop in range(1, k + 1):
        assume(len(walks) < 20_000)
        for epoch, edge in walks:
            key = (epoch, hop, edge["type"], worker(edge["src"]))
            expected[*key, "count"] += 1
            expected[*key, "duration_ns"] += max(0, edge["duration_ns"])
        walks = [(max(epoch, other["epoch"]), other) for epoch, edge in walks for other in by_end[edge["start_ns"]]]
    found: Counter[tuple[int, int, str, int, str]] = Counter()
    for row in k_hops_st2(whole_run(drawn), KHopsSt2Parameters(k=k)).to_pylist():
        for name in ("count", "duration_ns"):
            found[row["epoch"], row["hop"], row["type"], row["worker"], name] += row[name]
    assert +found == +expected
