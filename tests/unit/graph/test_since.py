"""A run from some epoch on: its windows are those of the whole run, and what came before is not read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.analyses.standing import Delta
from pag_graph.graph.membership import labels
from pag_graph.graph.run import Run
from pag_graph.testing.strategies import small_traces
from tests.support.growing import rounds

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pag_graph.testing.traces import SmallTrace


# Each example is a build: to look for a smaller one takes minutes.
@settings(max_examples=12, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(trace=st.one_of(small_traces(max_workers=3), small_traces(max_workers=3, skewed=True)), data=st.data())
def test_windows_are_those_of_the_whole_run(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("since")
    api.build(trace.write(folder / "trace"), folder / "store", engine="local")
    whole = Run(folder / "store")
    epochs = whole.epochs["epoch"].to_list()
    for _ in range(4):
        epoch = data.draw(st.integers(epochs[0] - 1, epochs[-1] + 1))
        instant = data.draw(st.integers(0, whole.end_ns + 1))
        part = whole.since(epoch, instant)
        assert part.epochs.equals(whole.epochs.tail(part.epochs.height))
        wanted = [w for w in whole.windows() if (w.epoch or 0) >= epoch or w.end_ns >= instant]
        numbers = [window.epoch or 0 for window in wanted]
        assert part.windows(numbers) == wanted
        for of_part, of_whole in zip(
            labels(part, np.array(numbers, np.int64)), labels(whole, np.array(numbers, np.int64)), strict=True
        ):
            assert of_part.tolist() == of_whole.tolist()
        assert part.whole is whole


def test_a_commit_reads_the_epochs_that_it_can_touch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, counts = rounds(60), []
    between = Delta.between

    def counted(*arguments: Any) -> Delta:
        delta = between(*arguments)
        counts.append(delta.state.epochs.height)
        return delta

    monkeypatch.setattr(Delta, "between", counted)
    for epochs in range(5, 61, 5):
        part = replace(trace.until_epoch(epochs - 1), complete=False).write(tmp_path / f"{epochs}")
        queries = ("metrics", "critical-path", "totals", "invariants") if epochs == 5 else ()
        api.build(part, tmp_path / "store", mode="append", engine="local", queries=queries)
    assert len(counts) == 11
    # However many there are before: `invariants` remembers twenty.
    assert counts[-1] == counts[-2] == counts[-3] <= 30, counts
