"""Logs that say nothing of idleness: however they are cut, and in however many portions they come, the same graph."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from pag_graph.builder.plan import plan_run
from pag_graph.model.enums import RuleSet
from pag_graph.rules.rows import RuleParameters
from pag_graph.store.trace import Trace
from pag_graph.testing.reference import build_reference
from tests.support.compare import WAYS, assembled, differences
from tests.support.polled_logs import polled_log

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PROVE = os.environ.get("PAG_PROVE") == "1"
LOGS = 3_000 if PROVE else 30


def test_slices_do_not_show(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("cut")
    slices = set()
    for seed in range(LOGS):
        trace, chance = polled_log(seed), random.Random(seed)
        trace = trace.losing(random.Random(seed)) if seed % 3 == 0 else trace
        pause_ns = chance.choice((1, 15, 1_000_000))
        slice_events = chance.choice((1, 2, 7, 20))
        found = assembled(trace, tmp_path, slice_events=slice_events, busy_below_ns=pause_ns, **WAYS[seed % len(WAYS)])
        assert differences(found, build_reference(trace, busy_below_ns=pause_ns)) == "", seed
        written = trace.write(place / "trace", replace=True)
        parameters = RuleParameters(busy_below_ns=pause_ns)
        slices.add(len(plan_run(Trace.open(written), RuleSet.TIMELY, parameters, slice_events=1).slices))
    assert len(slices) > 3
