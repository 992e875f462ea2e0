"""Standing queries: at every commit, changes add up to the answer made anew."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import pag_graph
from pag_graph import api
from pag_graph.testing.strategies import slice_sizes, small_traces
from pag_graph.testing.traces import SmallTrace, draw
from tests.support.standing_sums import check_sums

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PROVE = os.environ.get("PAG_PROVE") == "1"
OF_EPOCHS = ("critical-path", "k-hops:k=2", "slack", "blame", "skew", "stragglers", "imbalance", "participation")
OTHERS = ("profile", "matrix", "traffic", "waits", "rounds", "metrics", "totals")
LIMITS = "invariants:at-least=1:over=2:least-ns=0:tolerance=0:deviations=0.5:progress-max-ns=8:message-max-ns=5"
QUERIES = (*OF_EPOCHS, *OTHERS, "invariants", LIMITS)


def until(trace: SmallTrace, rows: list[int]) -> SmallTrace:
    """Return the first rows of each worker: what of a log that goes on is there."""
    return replace(
        trace, complete=False, events=tuple(log[:count] for log, count in zip(trace.events, rows, strict=True))
    )


@st.composite
def portions(draw_: st.DrawFn, trace: SmallTrace) -> list[SmallTrace]:
    """Draw how a log grows: no worker's part of it gets shorter, and some are behind."""
    steps = draw_(st.integers(1, 4))
    shares = [sorted(draw_(st.lists(st.integers(0, 100), min_size=steps, max_size=steps))) for _ in trace.events]
    parts = [
        until(trace, [len(log) * share[step] // 100 for log, share in zip(trace.events, shares, strict=True)])
        for step in range(steps)
    ]
    return [*(part for part in parts if part.rows), trace]


# Each example is several builds: to look for a smaller one takes minutes.
@settings(max_examples=1000 if PROVE else 12, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.one_of(
        small_traces(max_workers=3),
        small_traces(max_workers=3, skewed=True),
        small_traces(max_workers=3, skewed=True, damaged=True),
    ),
    st.data(),
    slice_sizes(),
)
def test_changes_of_random_logs_add_up(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject, slice_events: int
) -> None:
    parts = data.draw(portions(replace(trace, complete=True)))
    late = data.draw(st.sets(st.sampled_from(QUERIES), max_size=3))
    place = tmp_path_factory.mktemp("portions")
    asked = tuple(query for query in QUERIES if query not in late)
    for number, part in enumerate(parts):
        # Some are asked for when all is there.
        queries = (*(asked if number == 0 else ()), *(sorted(late) if part.complete else ()))
        written = part.write(place / f"trace-{number}")
        api.build(written, place / "store", engine="local", mode="append", slice_events=slice_events, queries=queries)
        check_sums(place / "store", QUERIES if part.complete else asked)


def rounds(count: int) -> SmallTrace:
    """Two workers that wait for each other in each round, as long as the run goes on."""
    logs: list[list[str]] = [[], []]
    for e in range(count):
        t = 20 * e
        logs[0].append(f"{t} park | {t + 6} unpark | {t + 7} recv 3<1 #{e} | {t + 8} send 4>1 #{e} | {t + 9} end")
        logs[1].append(
            f"{t} start 1 | {t + 5} send 3>0 #{e} | {t + 5} stop 1"
            f" | {t + 6} park | {t + 9} unpark | {t + 9} recv 4<0 #{e} | {t + 10} end"
        )
    return draw(*(" | ".join(log) for log in logs))


def test_changes_add_up_to_the_answer_at_every_commit(tmp_path: Path) -> None:
    whole = rounds(8)
    answered = []
    for epochs in (1, 3, 5, 8):
        part = whole.until_epoch(epochs - 1)
        grown = part if epochs == 8 else replace(part, complete=False)
        trace = grown.write(tmp_path / f"{epochs}")
        # They are registered once.
        queries = QUERIES if epochs == 1 else ()
        info = api.build(trace, tmp_path / "store", mode="append", engine="local", queries=queries).store
        assert info.live is not None
        answered.append(info.live["answered"])
        check_sums(tmp_path / "store", QUERIES)
    assert answered == [-1, 1, 3, 8]
    path = pag_graph.changes(tmp_path / "store", "critical-path")
    assert set(path["commit"].to_pylist()) == {1, 2, 3}
    assert path.num_rows == sum(path["diff"].to_pylist())


def late_read(last: int) -> SmallTrace:
    """Return rounds in which one of two messages of epoch 1 is read in epoch 5."""
    logs: list[list[str]] = [[], []]
    for e in range(last):
        t = 20 * e
        extra = f" | {t + 1} send 5>1 #0 | {t + 1} send 5>1 #1" if e == 1 else ""
        read = f" | {t + 7} recv 5<0 #{0 if e == 1 else 1}" if e in {1, 5} else ""
        logs[0].append(f"{t} start 1{extra} | {t + 3} send 3>1 #{e} | {t + 4} stop 1 | {t + 5} park | {t + 8} unpark")
        logs[0].append(f"{t + 8} recv 4<1 #{e} | {t + 9} end")
        logs[1].append(f"{t} park | {t + 3} unpark | {t + 4} recv 3<0 #{e} | {t + 5} start 1{read}")
        logs[1].append(f"{t + 7} send 4>0 #{e} | {t + 8} stop 1 | {t + 10} end")
    return draw(*(" | ".join(log) for log in logs))


def test_a_delayed_read_takes_an_answer_back(tmp_path: Path) -> None:
    whole = late_read(8)
    for epochs in (4, 8):
        part = whole.until_epoch(epochs - 1) if epochs < 8 else whole
        trace = replace(part, complete=epochs == 8).write(tmp_path / f"{epochs}")
        queries = ("traffic", "metrics", "matrix")
        api.build(trace, tmp_path / "store", mode="append", engine="local", queries=queries)
        check_sums(tmp_path / "store", queries)
    rows = pl.DataFrame(pl.from_arrow(pag_graph.changes(tmp_path / "store", "traffic", since=0)))
    back = rows.filter(pl.col("epoch") == 1, pl.col("channel") == 5)
    assert back.select("diff", "messages").rows() == [(-1, 1), (1, 2)]
    # The epoch that the message carries is that of its reader.
    assert 1 not in pag_graph.changes(tmp_path / "store", "metrics", since=0)["epoch"].to_pylist()
