"""Builds in one pass: taken where it can be, left where a later slice says otherwise, with the same rows either way."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pag_graph
from pag_graph.builder import in_order
from pag_graph.builder.build import _build_sliced, build
from pag_graph.builder.engine import silent
from pag_graph.builder.in_order import stretches
from pag_graph.builder.plan import plan_run
from pag_graph.engines.local import LocalEngine
from pag_graph.store.trace import Trace
from pag_graph.testing.reference import build_reference
from pag_graph.testing.traces import draw
from tests.support.compare import Apart, assembled, committed, differences

if TYPE_CHECKING:
    from pag_graph.builder.build import Built
    from pag_graph.testing.traces import SmallTrace

SAMPLES = Path(pag_graph.__file__).parent / "samples"


class Watched(LocalEngine):
    """Counts the tasks of two passes."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def map(self, task: Any, items: Any, *, label: str, progress: Any) -> list[Any]:
        self.steps.append(label)
        return super().map(task, items, label=label, progress=progress)


class WatchedApart(Apart, Watched):
    """The same where every slice is a stretch of its own."""

    def __init__(self) -> None:
        Watched.__init__(self)
        self.tasks = 100


def built(
    trace: SmallTrace, place: Path, slice_events: int, engine: Watched | None = None
) -> tuple[Built, list[str], int]:
    """Build, and return what came of it, the steps that were taken, and how many slices there were."""
    engine = engine or Watched()
    plan = plan_run(Trace.open(trace.write(place / "trace")), trace.rules, slice_events=slice_events)
    made = _build_sliced(plan, place / "store", place / "staging", engine, None, silent)
    shutil.rmtree(place / "trace")
    assert made is not None
    return made, engine.steps, len(plan.slices)


def names(made: Built) -> list[str]:
    return [part.path for output in made.outputs for parts in output.parts.values() for part in parts]


@pytest.mark.parametrize("sample", ["triangles", "bfs"])
def test_real_traces_are_built_in_one_pass(tmp_path: Path, sample: str) -> None:
    trace = Trace.open(SAMPLES / sample)
    engines = [Watched(), Apart(2)]
    for number, engine in enumerate(engines):
        build(SAMPLES / sample, tmp_path / str(number), engine=engine, slice_events=trace.rows // 5)
    assert isinstance(engines[0], Watched)
    assert engines[0].steps == ["finish"]
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
    made, steps, slices = built(trace, tmp_path, 8)
    assert slices > 3
    assert steps[0] == "scan"
    # What the first pass wrote is gone.
    assert sorted(path.name for path in (tmp_path / "store").rglob("*.parquet")) == sorted(names(made))
    shutil.rmtree(tmp_path / "store")
    assert differences(assembled(trace, tmp_path, slice_events=8), build_reference(trace)) == ""


def test_a_message_that_the_next_slice_sends_does_not(tmp_path: Path) -> None:
    # Worker 1 is cut later than worker 0: it reads in its first slice what worker 0 sends in its second.
    one = rounds(3) + " | 30 park | 31 unpark | 40 end"
    other = "0 start 1 | 12 recv 3<0 | 13 stop 1 | 14 park | 25 unpark | 29 end | 30 park | 31 unpark | 40 end"
    trace = draw(one.replace("10 park", "10 park").replace("15 unpark", "11 unpark | 11 send 3>1"), other)
    made, steps, slices = built(trace, tmp_path, 5)
    assert slices > 1
    assert steps == ["finish"]
    assert "receive_without_send" not in made.findings["finding"].to_pylist()
    shutil.rmtree(tmp_path / "store")
    assert differences(assembled(trace, tmp_path, slice_events=5), build_reference(trace)) == ""


def test_slices_of_epochs_that_nobody_ends_stay_open(tmp_path: Path) -> None:
    log = work(range(0, 80, 10))
    # The other worker never ends epoch 0.
    made, steps, slices = built(draw(log + " | 90 end", log), tmp_path, 6)
    assert slices > 2
    assert steps == ["finish"]
    assert made.last_closed_epoch == -1
    assert all(name.startswith("open-") for name in names(made))
    assert sorted(path.name for path in (tmp_path / "store").rglob("*.parquet")) == sorted(names(made))


def test_a_slice_with_open_and_closed_epochs_asks_for_two_passes(tmp_path: Path) -> None:
    log = work(range(10, 80, 10))
    made, steps, slices = built(
        draw("0 park | 3 unpark | 5 end | " + log + " | 90 end", "0 park | 3 unpark | 5 end | " + log), tmp_path, 8
    )
    assert slices > 2
    assert steps[0] == "scan"
    assert made.last_closed_epoch == 0
    assert sorted(path.name for path in (tmp_path / "store").rglob("*.parquet")) == sorted(names(made))


@pytest.mark.parametrize(("count", "tasks"), [(1, 2), (2, 2), (3, 2), (21, 2), (100, 2), (100, 32), (1_000, 3)])
def test_stretches_hold_all_slices_and_keep_everybody_busy(count: int, tasks: int) -> None:
    found = stretches(count, tasks)
    assert [number for stretch in found for number in stretch] == list(range(count))
    assert max(map(len, found)) <= in_order._LONGEST
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
    made, steps, slices = built(trace, tmp_path, 60, WatchedApart())
    assert slices > 3
    assert steps[0] == "assemble"
    assert ("scan" not in steps) == one_pass
    assert sorted(path.name for path in (tmp_path / "store").rglob("*.parquet")) == sorted(names(made))
    shutil.rmtree(tmp_path / "store")
    assert differences(assembled(trace, tmp_path, slice_events=60, tasks=100), build_reference(trace)) == ""
