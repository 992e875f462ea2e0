from __future__ import annotations

import gc

import pytest

from pag_graph.sources.collector import without_collector


def test_the_collector_rests_in_the_block_and_runs_behind_it_whatever_happens() -> None:
    assert gc.isenabled()
    with without_collector():
        assert not gc.isenabled()
        with without_collector():
            pass
        # An inner block leaves it as it was.
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), without_collector():
        _ = 1 // 0
    assert gc.isenabled()
