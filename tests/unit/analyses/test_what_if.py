"""What-if replays: of graphs drawn by hand, against brute force, and on the bundled samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.what_if import WORK, WhatIf, WhatIfParameters, what_if
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.graph.window import Window
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType
from pag_graph.model.tables import CRITICAL_PATH, WHAT_IF, WHAT_IF_TIMES
from pag_graph.testing.strategies import small_traces
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.api import Pag

    Fixture = Callable[..., Any]

slack = find_analysis("slack")

# Worker 0 works until 30 and sends; worker 1, which waits for it from 10 on, works until 60 and ends the epoch first.
FAST = "0 start 1 | 20 stop 1 | 25 start 2 | 30 send 3>1 | 40 stop 2 | 70 end"
SLOW = "0 start 4 | 10 stop 4 | 10 park | 34 unpark | 35 start 3 | 36 recv 3<0 | 60 stop 3 | 60 end"


def replay(drawn: Any, *changes: WhatIfParameters, between: tuple[int, int] | None = None, **one: Any) -> WhatIf:
    run = drawn.run
    window = run.window(between=between) if between else run.window(epoch=0)
    return what_if(run.snapshot(window), changes or (WhatIfParameters(**one) if one else None))


def path(result: WhatIf) -> str:
    parts = []
    for step in result.steps.to_pylist():
        to = f">{step['to_worker']}" if step["to_worker"] != step["worker"] else ""
        parts.append(f"{step['start_ns']} {step['worker']}{to}:{step['type']}")
    return " | ".join(parts)


@pytest.mark.parametrize(
    ("change", "span"),
    [
        ({"operator": (1,), "factor": 0.5}, 50),
        ({"operator": (1,), "factor": 0}, 40),
        ({"operator": (1, 3), "factor": 0}, 15),
        ({"operator": (1,), "factor": 3}, 100),
        # It now takes 30, of which 20 were free; then the message comes too late, and the wait is gone.
        ({"operator": (4,), "factor": 3}, 60),
        ({"operator": (4,), "factor": 4}, 70),
        # An activation takes the new time in all: of operator 2 a third of it lies before the send.
        ({"operator": (2,), "duration_ns": 30}, 65),
        ({"operator": (2,), "duration_ns": 0}, 55),
        ({"operator": (1, 2), "duration_ns": 30}, 75),
        ({"operator": (2,), "worker": (0,), "duration_ns": 0}, 55),
        ({"operator": (2,), "worker": (1,), "duration_ns": 0}, 60),
        # All that worker 0 does until it sends takes 30.
        ({"worker": (0,), "factor": 2}, 90),
        # Worker 1 does its own 1 + 1 + 24 twice as fast, but is woken up, which takes 4, as it was.
        ({"worker": (1,), "factor": 0.5}, 46),
        ({"worker": (0, 1), "factor": 0}, 4),
        ({"worker": (0, 1), "type": (ActivityType.BUSY,), "factor": 0}, 54),
        ({"type": (ActivityType.WAKE_UP,), "factor": 0}, 56),
        ({"type": (ActivityType.WAKE_UP, ActivityType.PROCESSING), "factor": 0}, 26),
        # In one process a message takes no time, unless one says so.
        ({"from_worker": (0,), "factor": 10}, 60),
        ({"from_worker": (0,), "to_worker": (1,), "duration_ns": 7}, 67),
        ({"from_worker": (1,), "duration_ns": 7}, 60),
        ({"channel": (3,), "duration_ns": 7}, 67),
        ({"type": (ActivityType.DATA_MESSAGE,), "duration_ns": 7}, 67),
        # A wait that was changed does not care any more for what it waited for.
        ({"type": (ActivityType.WAITING,), "factor": 0}, 40),
        ({"type": (ActivityType.WAITING,), "worker": (1,), "factor": 0.5}, 50),
        ({"type": (ActivityType.WAITING,), "worker": (0,), "factor": 0}, 60),
        ({"type": (ActivityType.WAITING,), "duration_ns": 100}, 140),
        ({"type": (ActivityType.WAITING, ActivityType.DATA_MESSAGE), "factor": 0}, 40),
    ],
)
def test_changes_move_the_end(in_memory: Fixture, change: dict[str, Any], span: int) -> None:
    result = replay(in_memory(draw(FAST, SLOW)), **change)
    assert (result.span_ns, result.saved_ns) == (span, 60 - span)
    summary = result.summary()
    assert summary["new_span_ns"] == span
    assert summary["speedup"] == pytest.approx(60 / span)
    # The profile tells the same story.
    assert sum(result.table["new_ns"].to_pylist()) == span
    assert sum(result.table["recorded_ns"].to_pylist()) == 60
    assert sum(result.table["change_ns"].to_pylist()) == span - 60


@pytest.mark.parametrize(
    ("change", "span"),
    [
        ({"operator": (3,), "record_ns": 0.0}, 60),
        ({"operator": (3,), "record_ns": 5.0}, 80),
        ({"operator": (3,), "record_ns": -2.5}, 50),
        ({"worker": (1,), "record_ns": 5.0}, 80),
        # It reads no records, or those of another worker.
        ({"operator": (1,), "record_ns": 5.0}, 60),
        ({"operator": (3,), "worker": (0,), "record_ns": 5.0}, 60),
        # No activation takes less than no time.
        ({"operator": (3,), "record_ns": -100.0}, 35),
    ],
)
def test_every_record_can_take_longer(in_memory: Fixture, change: dict[str, Any], span: int) -> None:
    drawn = in_memory(draw(FAST.replace("3>1", "3>1 *4"), SLOW.replace("3<0", "3<0 *4")))
    assert replay(drawn, **change).span_ns == span


def test_of_an_activation_that_is_cut_the_records_inside_count(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST.replace("3>1", "3>1 *4"), SLOW.replace("3<0", "3<0 *4")))
    # They are read between 35 and 36. The windows end where worker 0 is at that time, whatever worker 1 does.
    for start, last in ((32, 60 + 24), (48, 60)):
        result = replay(drawn, operator=(3,), record_ns=6.0, between=(start, 60))
        assert result.span_ns == 60 - start
        assert max(result.times["new_ns"].to_pylist()) == last


def test_several_changes_work_on_what_the_one_before_left(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST, SLOW))
    half, replaced = (
        WhatIfParameters(operator=(1,), factor=0.5),
        WhatIfParameters(worker=(0,), type=(ActivityType.SPINNING,), duration_ns=8),
    )
    assert replay(drawn, half, half).span_ns == 45
    assert replay(drawn, half, replaced).span_ns == 48
    assert replay(drawn, replaced, half).span_ns == 44
    assert replay(drawn, half, WhatIfParameters(operator=(3,), factor=0)).span_ns == 25


def test_a_new_path_leads_over_what_binds_now(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST, SLOW))
    assert path(replay(drawn)) == (
        "0 0:spinning | 20 0:busy | 25 0:processing | 30 0>1:data_message | 30 1:wake_up | 34 1:busy"
        " | 35 1:processing | 36 1:processing | 60 1:busy"
    )
    result = replay(drawn, operator=(1,), factor=0)
    # Worker 0 sends at 10, when worker 1 begins to wait: the worker's wait is over at once.
    assert path(result).startswith("0 0:spinning | 0 0:busy | 5 0:processing | 10 0>1:data_message | 10 1:wake_up")
    result = replay(drawn, operator=(4,), factor=5)
    assert path(result).startswith("0 1:spinning | 50 1:busy | 50 1:waiting | 50 1:wake_up | 54 1:busy")
    assert {row["type"]: (row["recorded_ns"], row["new_ns"]) for row in result.table.to_pylist()}["waiting"] == (0, 0)
    result = replay(drawn, type=(ActivityType.WAITING,), factor=0.5)
    assert path(result).startswith("0 1:spinning | 10 1:busy | 10 1:waiting | 20 1:wake_up | 24 1:busy")
    assert result.summary()["changed"] == 1
    assert result.summary()["changed_ns"] == 20
    assert "60 ns would be 50 ns (1.20 x as fast); 1 activities of 20 ns changed" in result.headline()


def test_new_times_of_all_vertices(in_memory: Fixture) -> None:
    result = replay(in_memory(draw(FAST, SLOW)), operator=(1,), factor=0.5)
    second = 1 << 40
    assert [tuple(row.values()) for row in result.times.to_pylist()] == [
        (2, 0, 0),
        (4, 20, 10),
        (6, 25, 15),
        (8, 30, 20),
        (10, 40, 30),
        (second + 2, 0, 0),
        (second + 4, 10, 10),
        (second + 6, 10, 10),
        (second + 7, 30, 20),
        (second + 8, 34, 24),
        (second + 10, 35, 25),
        (second + 12, 36, 26),
        (second + 14, 60, 50),
        (second + 16, 60, 50),
    ]
    assert result.times.schema.equals(WHAT_IF_TIMES)
    assert result.table.schema.equals(WHAT_IF)
    assert result.steps.schema.equals(CRITICAL_PATH)


def test_a_window_counts_what_lies_inside(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST, SLOW))
    # From 12 to 36 worker 0 is the lowest active one, and its operator 1 has 8 left.
    result = replay(drawn, operator=(1,), factor=0.5, between=(12, 36))
    assert (result.span_ns, result.changed_ns) == (20, 8)
    assert path(result) == "12 0:spinning | 16 0:busy | 21 0:processing | 26 0:processing"
    assert result.steps["src"].to_pylist()[0] == -1
    assert result.steps["dst"].to_pylist()[-1] == -2


def test_a_message_from_before_the_window_arrives_when_it_did(in_memory: Fixture) -> None:
    other = "0 send 3>1 | 1 park | 50 unpark | 51 recv 3<1 | 60 end"
    drawn = in_memory(draw(other, "0 park | 30 unpark | 31 recv 3<0 | 40 send 3>0 | 100 end", processes=(0, 1)))
    first = {"from_worker": (0,), "factor": 0}
    assert path(replay(drawn, between=(10, 45))).startswith("10 0>1:data_message | 30 1:wake_up")
    assert replay(drawn, between=(10, 45), **first).span_ns == 35
    # Sent in the window it is faster: it took 30 of the 60.
    assert replay(drawn, **first).span_ns == 30


def test_loops(in_memory: Fixture) -> None:
    drawn = in_memory(draw("0 start 1 | 5 stop 1 | 6 park | 20 unpark | 21 start 1 | 22 send 3>0 | 30 stop 1 | 40 end"))
    assert replay(drawn, operator=(1,), factor=0).span_ns == 26
    # When the input comes at 20, what the worker did before does not matter.
    assert replay(drawn, operator=(1,), factor=0, loop="open").span_ns == 31
    assert replay(drawn, operator=(1,), factor=3, loop="closed").span_ns == 68
    assert replay(drawn, operator=(1,), factor=3, loop="open").span_ns == 58
    assert replay(drawn, operator=(1,), factor=6, loop="open").span_ns == 96
    for loop in ("closed", "open"):
        assert replay(drawn, type=(ActivityType.INPUT_WAIT,), factor=0.5, loop=loop).span_ns == 33
    assert path(replay(drawn, operator=(1,), factor=1, loop="open")).startswith("0 0:input_wait | 20 0:busy")
    # A worker that comes late finds the input there.
    late = replay(drawn, operator=(1,), factor=6, loop="open")
    assert path(late).startswith("0 0:spinning | 30 0:busy | 31 0:input_wait | 31 0:busy")


def test_sleep_by_the_clock_ends_when_input_is_due(in_memory: Fixture) -> None:
    # Sleeps from 6 to 20, because input is due at 20.
    log = "0 start 1 | 5 stop 1 | 6 park 14 | 20 unpark | 21 start 1 | 22 send 3>0 | 30 stop 1 | 40 end"
    drawn = in_memory(draw(log))
    assert "6 0:idle" in path(replay(drawn, operator=(1,), factor=1))
    assert replay(drawn, operator=(1,), factor=0).span_ns == 26
    assert replay(drawn, operator=(1,), factor=0, loop="open").span_ns == 31
    # What is done at 16 instead of 6 leaves less to sleep; what is done at 31 nothing.
    assert replay(drawn, operator=(1,), factor=3, loop="open").span_ns == 58
    assert replay(drawn, operator=(1,), factor=6, loop="open").span_ns == 96


def test_input_that_comes_earlier_does_not_hurry_a_worker_that_comes_late(in_memory: Fixture) -> None:
    drawn = in_memory(draw("0 start 1 | 5 stop 1 | 6 park | 20 unpark | 21 start 1 | 22 send 3>0 | 30 stop 1 | 40 end"))
    slower = WhatIfParameters(operator=(1,), factor=6, loop="open")
    earlier = WhatIfParameters(type=(ActivityType.INPUT_WAIT,), factor=0, loop="open")
    assert replay(drawn, slower, earlier).span_ns == replay(drawn, slower).span_ns == 96


def test_a_window_that_ends_while_a_message_is_under_way(in_memory: Fixture) -> None:
    sender = "0 start 1 | 10 send 3>1 | 12 stop 1 | 12 park | 80 unpark | 81 start 1 | 82 recv 3<1 | 84 stop 1 | 90 end"
    receiver = "0 park | 40 unpark | 41 start 1 | 42 recv 3<0 | 70 send 3>0 | 72 stop 1 | 95 end"
    drawn = in_memory(draw(sender, receiver, processes=(0, 1)))
    assert replay(drawn, operator=(1,), factor=0, between=(5, 30)).span_ns == 20
    assert replay(drawn, from_worker=(0,), factor=0.5, between=(5, 30)).span_ns == 15
    assert path(replay(drawn, between=(5, 30))) == "5 0:processing | 10 0>1:data_message"


def test_how_long_a_worker_took_to_start_says_nothing_about_messages(in_memory: Fixture) -> None:
    parent = "0 start 1 | 10 spawn 1 | 20 send 3>1 | 30 stop 1 | 40 end"
    child = "15 start 2 | 60 recv 3<0 | 70 stop 2 | 100 end"
    drawn = in_memory(draw(parent, child, processes=(0, 1)))
    times = replay(drawn, operator=(2,), factor=0, between=(0, 100)).times
    # The only message took 40, as far as anybody knows; the spawn 5.
    new = dict(zip(times["id"].to_pylist(), times["new_ns"].to_pylist(), strict=True))
    assert [new[1 << 40 | position] for position in (2, 4, 6, 8)] == [15, 60, 60, 90]


def test_all_work_is_that_of_the_workers(in_memory: Fixture) -> None:
    everything = WhatIfParameters(type=WORK, factor=0.5)
    workers = WhatIfParameters(worker=(0, 1), factor=0.5)
    drawn = in_memory(draw(FAST, SLOW))
    assert replay(drawn, everything).times.equals(replay(drawn, workers).times)
    assert set(WORK) & {ActivityType.WAITING, ActivityType.WAKE_UP, ActivityType.UNKNOWN, *MESSAGE_TYPES} == set()


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"operator": (1,)}, "give a factor, a duration"),
        ({"operator": (1,), "factor": 1, "duration_ns": 1}, "give a factor, a duration"),
        ({"factor": 0.5}, "Say what to change"),
        ({"operator": (1,), "factor": -1}, "must not be negative"),
        ({"operator": (1,), "factor": float("nan")}, "must not be negative"),
        ({"operator": (1,), "duration_ns": -1}, "must not be negative"),
        ({"operator": (1,), "from_worker": (0,), "factor": 1}, "neither operator nor worker"),
        ({"worker": (1,), "type": (ActivityType.DATA_MESSAGE,), "factor": 1}, "neither operator nor worker"),
        ({"channel": (1,), "type": (ActivityType.BUSY,), "factor": 1}, "Only messages have a sender"),
        ({"worker": (0,), "factor": 1e17}, "too long"),
        ({"worker": (0,), "factor": 1e300}, r"factor is 1e\+300, and must be less than 1\.15e\+18"),
        ({"worker": (0,), "duration_ns": 2**63 - 1}, r"ns, and must be less than 1\.15e\+18"),
        ({"worker": (0,), "duration_ns": 1 << 59}, "too long"),
    ],
)
def test_changes_that_mean_nothing_are_errors(in_memory: Fixture, parameters: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidParameterError, match=what):
        replay(in_memory(draw(FAST, SLOW)), **parameters)


def test_changes_must_agree_on_the_loop(in_memory: Fixture) -> None:
    one, other = (WhatIfParameters(operator=(1,), factor=1, loop=loop) for loop in ("closed", "open"))
    with pytest.raises(InvalidParameterError, match="same loop and arrival"):
        replay(in_memory(draw(FAST, SLOW)), one, other)


def test_clocks_must_be_aligned(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST, SLOW))
    drawn.rules = "st2"
    with pytest.raises(UnsupportedPlanError, match="aligned clocks"):
        replay(drawn)


def test_an_empty_window_stays_empty(skewed: Pag) -> None:
    result = what_if(skewed.run.snapshot(Window(start_ns=10, end_ns=10)))
    assert (result.span_ns, result.speedup, result.table.num_rows, result.times.num_rows) == (0, None, 0, 0)
    assert "no time at all" in result.headline()


@pytest.mark.parametrize("loop", ["closed", "open"])
@pytest.mark.parametrize("sample", ["skewed", "bfs"])
def test_a_factor_of_one_gives_back_the_recording(sample: str, loop: Any, request: pytest.FixtureRequest) -> None:
    pag = request.getfixturevalue(sample)
    windows = [*pag.run.windows(), pag.run.window(between=(pag.run.end_ns // 3, pag.run.end_ns // 2))]
    for window in windows:
        snapshot = pag.run.snapshot(window)
        same = [
            WhatIfParameters(type=tuple(ActivityType), factor=1, loop=loop),
            WhatIfParameters(worker=tuple(pag.run.workers), factor=1.0, loop=loop),
        ]
        result = what_if(snapshot, same)
        assert result.changed > 0
        assert result.span_ns == window.span_ns
        assert result.times["recorded_ns"].equals(result.times["new_ns"])
        assert not any(result.table["change_ns"].to_pylist())
        if loop == "closed":
            assert result.steps.equals(critical_path(snapshot).steps)


def test_replays_agree_with_slack(skewed: Pag) -> None:
    snapshot = skewed.snapshot(epoch=5)
    groups: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    for row in slack(snapshot).to_pylist():
        if row["operator"] is not None:
            groups.setdefault((row["operator"], row["worker"], row["type"]), []).append(row)
    # What happens once can be lengthened by itself.
    once = {key: rows[0] for key, rows in groups.items() if len(rows) == 1 and rows[0]["slack_ns"]}
    assert len(once) > 3
    for (operator, worker, kind), row in once.items():
        for more in (row["slack_ns"], row["slack_ns"] + 10):
            change = WhatIfParameters(
                operator=(operator,),
                worker=(worker,),
                type=(ActivityType(kind),),
                duration_ns=row["duration_ns"] + more,
            )
            assert what_if(snapshot, change).saved_ns == row["slack_ns"] - more


@given(small_traces(max_steps=40, instant=False, complete=True), st.data())
def test_replays_against_brute_force(in_memory: Fixture, oracle: Any, trace: Any, data: st.DataObject) -> None:
    drawn = in_memory(trace)
    run = drawn.run
    window = data.draw(st.sampled_from(run.windows()))
    if not window.span_ns:
        return
    loop = data.draw(st.sampled_from(["closed", "open"]))
    factor = data.draw(st.sampled_from([0, 0.25, 0.5, 1, 1.5, 3]))
    truth = oracle(drawn, window, loop=loop)
    kind = data.draw(st.sampled_from(["operator", "worker", "message", "type"]))
    chosen = data.draw(st.integers(0, 3))
    other = data.draw(st.integers(0, 3))
    types = ("processing", "busy", "spinning", "wake_up", "input_wait", "unknown")
    selections = {
        "operator": {"operator": (chosen,)},
        "worker": {"worker": (chosen, other)},
        "message": {"from_worker": (chosen,), "to_worker": (other,)},
        "type": {"type": (ActivityType(types[chosen]), ActivityType(types[chosen + other % 3]))},
    }
    # All else is what a worker does itself, activities of the program as well.
    no_work = {"waiting", "input_wait", "idle", "wake_up", "unknown"}

    def is_chosen(number: int) -> bool:
        edge = truth.edges[number]
        source, target = edge["src"] >> 40, edge["dst"] >> 40
        local = source == target
        return bool(
            {
                "operator": local and edge["operator"] == chosen,
                "worker": local and source in {chosen, other} and edge["type"] not in no_work,
                "message": source == chosen and target == other and edge["start_ns"] >= window.start_ns,
                "type": edge["type"] in {types[chosen], types[chosen + other % 3]},
            }[kind]
        )

    if kind == "message" and chosen == other:
        return
    more = {
        number: round(truth.duration[number] * factor) - truth.duration[number]
        for number in truth.elements
        if is_chosen(number)
    }
    parameters = WhatIfParameters(**selections[kind], factor=factor, loop=loop)
    there = drawn._used("operator") if kind == "operator" else list(drawn.processes)
    named = {"operator": {chosen}, "type": set()}.get(kind, {chosen, other})
    if not named <= set(there):
        what = "operator" if kind == "operator" else "worker"
        with pytest.raises(InvalidParameterError, match=f"There is no {what}"):
            what_if(run.snapshot(window), parameters)
        return
    result = what_if(run.snapshot(window), parameters)
    expected = truth.replay(more)
    assert result.span_ns == expected[truth.sink] - window.start_ns
    assert result.changed == len(more)
    for row in result.times.to_pylist():
        # What the window cuts on both sides moves nothing.
        assert row["new_ns"] == expected.get(row["id"], window.start_ns)
        assert row["recorded_ns"] == truth.t.get(row["id"], window.start_ns)
    now = window.start_ns
    for step in result.steps.to_pylist():
        assert step["start_ns"] == now
        now += step["duration_ns"]
    assert now == expected[truth.sink]
