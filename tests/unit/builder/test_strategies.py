"""Builds in process and by many tasks: each way is taken where it can be, and gives the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pag_graph
from pag_graph.builder.build import build, construct
from pag_graph.builder.engine import silent
from pag_graph.builder.plan import plan_run
from pag_graph.builder.saved import Saved
from pag_graph.builder.sink import StoreSink
from pag_graph.builder.stretches import _LONGEST, stretches
from pag_graph.engines.local import LocalEngine
from pag_graph.store.trace import Trace
from pag_graph.testing.reference import build_reference
from pag_graph.testing.traces import draw
from tests.support.compare import Apart, assembled, committed, differences

if TYPE_CHECKING:
    from pag_graph.builder.finish import Finished
    from pag_graph.testing.traces import SmallTrace

SAMPLES = Path(pag_graph.__file__).parent / "samples"


class WatchedApart(Apart):
    """Notes the steps of a build by tasks that find nothing in memory."""

    def __init__(self, tasks: int = 100) -> None:
        super().__init__(tasks)
        self.steps: list[str] = []

    def map(self, task: Any, items: Any, *, label: str, progress: Any) -> list[Any]:
        self.steps.append(label)
        return super().map(task, items, label=label, progress=progress)


def built(trace: SmallTrace, place: Path, slice_events: int, tasks: int = 100) -> tuple[Finished, list[str], int]:
    """Build, and return what came of it, the steps that were taken, and how many slices there were."""
    engine = WatchedApart(tasks)
    plan = plan_run(Trace.open(trace.write(place / "trace")), trace.rules, slice_events=slice_events)
    made = construct(plan, StoreSink(place / "store"), Saved(), place / "staging", engine, None, silent)
    shutil.rmtree(place / "trace")
    return made, engine.steps, len(plan.slices)


def names(made: Finished) -> list[str]:
    return [part.path for parts in made.parts.values() for part in parts]


def same_everywhere(trace: SmallTrace, place: Path, slice_events: int) -> None:
    """In process and apart, rows are those of the definitions."""
    shutil.rmtree(place / "store")
    expected = build_reference(trace)
    for ways in ({}, {"tasks": 100}):
        assert differences(assembled(trace, place, slice_events=slice_events, **ways), expected) == ""


@pytest.mark.parametrize("sample", ["triangles", "bfs"])
def test_real_traces_are_read_once(tmp_path: Path, sample: str) -> None:
    trace = Trace.open(SAMPLES / sample)
    engines = [LocalEngine(), WatchedApart(2)]
    for number, engine in enumerate(engines):
        build(SAMPLES / sample, tmp_path / str(number), engine=engine, slice_events=trace.rows // 5)
    assert isinstance(engines[1], WatchedApart)
    assert engines[1].steps == ["assemble", "finish"]
    one, other = (committed(tmp_path / str(number)) for number in range(2))
    assert differences(one, other) == ""


ROUND = "{0} park | {1} unpark | {2} end"


def work(times: range) -> str:
    return " | ".join(f"{t} start 1 | {t + 1} stop 1 | {t + 2} park | {t + 5} unpark" for t in times)


def rounds(count: int) -> str:
    return " | ".join(ROUND.format(t, t + 5, t + 9) for t in range(0, 10 * count, 10))


def test_a_message_that_is_read_long_before_it_is_sent_asks_for_two_passes(tmp_path: Path) -> None:
    busy = rounds(8).replace("70 park", "70 send 3>1 | 70 park")
    trace = draw(busy, rounds(8).replace("5 unpark | 9 end", "5 unpark | 7 recv 3<0 | 9 end", 1))
    made, steps, slices = built(trace, tmp_path, 8, tasks=1)
    assert slices > 3
    assert "scan" in steps
    # What the first pass wrote is gone.
    assert sorted(path.name for path in (tmp_path / "store").rglob("*.parquet")) == sorted(names(made))
    same_everywhere(trace, tmp_path, 8)


def test_a_message_that_the_next_slice_sends_does_not(tmp_path: Path) -> None:
    # Worker 1 is cut later than worker 0: it reads in its first slice what worker 0 sends in its second.
    one = rounds(3) + " | 30 park | 31 unpark | 40 end"
    other = "0 start 1 | 12 recv 3<0 | 13 stop 1 | 14 park | 25 unpark | 29 end | 30 park | 31 unpark | 40 end"
    trace = draw(one.replace("10 park", "10 park").replace("15 unpark", "11 unpark | 11 send 3>1"), other)
    made, steps, slices = built(trace, tmp_path, 5, tasks=1)
    assert slices > 1
    assert steps == ["assemble", "finish"]
    assert "receive_without_send" not in made.open_findings["finding"].to_pylist()
    same_everywhere(trace, tmp_path, 5)


def test_slices_with_open_and_closed_epochs_are_read_once(tmp_path: Path) -> None:
    log = work(range(10, 80, 10))
    trace = draw("0 park | 3 unpark | 5 end | " + log + " | 90 end", "0 park | 3 unpark | 5 end | " + log)
    made, steps, slices = built(trace, tmp_path, 8, tasks=1)
    assert slices > 2
    assert steps == ["assemble", "finish"]
    assert (made.closed_epochs, made.last_closed) == (1, 0)
    assert sorted(path.name for path in (tmp_path / "store").rglob("*.parquet")) == sorted(names(made))
    same_everywhere(trace, tmp_path, 8)


@pytest.mark.parametrize(("count", "tasks"), [(1, 2), (2, 2), (3, 2), (21, 2), (100, 2), (100, 32), (1_000, 3)])
def test_stretches_hold_all_slices_and_keep_everybody_busy(count: int, tasks: int) -> None:
    found = stretches(count, tasks)
    assert [number for stretch in found for number in stretch] == list(range(count))
    assert max(map(len, found)) <= _LONGEST
    assert len(found) >= min(count, tasks)
    assert max(map(len, found)) - min(map(len, found)) <= 1


def both(number: int) -> list[str]:
    """Two workers that wait for each other in each round."""
    t = 10 * number
    return [
        f"{t} park | {t + 5} unpark | {t + 6} recv 3<1 #{number} | {t + 7} send 4>1 #{number} | {t + 9} end",
        (
            f"{t} start 1 | {t + 4} send 3>0 #{number} | {t + 4} stop 1"
            f" | {t + 5} park | {t + 8} unpark | {t + 8} recv 4<0 #{number} | {t + 9} end"
        ),
    ]


def rounds_of(both: list[list[str]]) -> SmallTrace:
    return draw(*(" | ".join(mine) for mine in zip(*both, strict=True)))


ROUNDS = [both(number) for number in range(24)]
# Nobody can see from the slice before what began long ago: an activity of the program, the segment of a worker that
# never waits, a message that lay about.
OPEN = [[f"0 app 9 | {ROUNDS[0][0]}", ROUNDS[0][1]], *ROUNDS[1:]]
NEVER_WAITS = [[one, f"{10 * n} start 1 | {10 * n + 4} stop 1 | {10 * n + 9} end"] for n, (one, _) in enumerate(ROUNDS)]
OLD = [
    [ROUNDS[0][0], f"0 send 3>0 #99 | {ROUNDS[0][1]}"],
    *ROUNDS[1:15],
    [ROUNDS[15][0].replace("| 159 end", "| 158 recv 3<1 #99 | 159 end"), ROUNDS[15][1]],
    *ROUNDS[16:],
]


@pytest.mark.parametrize(("drawn", "one_pass"), [(ROUNDS, True), (OPEN, False), (NEVER_WAITS, False), (OLD, False)])
def test_stretches_know_from_the_slice_before_what_is_open(
    tmp_path: Path, drawn: list[list[str]], *, one_pass: bool
) -> None:
    trace = rounds_of(drawn)
    made, steps, slices = built(trace, tmp_path, 60)
    assert slices > 3
    assert steps[0] == "assemble"
    assert ("scan" not in steps) == one_pass
    assert sorted(path.name for path in (tmp_path / "store").rglob("*.parquet")) == sorted(names(made))
    same_everywhere(trace, tmp_path, 60)
