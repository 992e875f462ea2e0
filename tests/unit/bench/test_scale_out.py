"""Builds that are watched: what they count, and what larger clusters would make of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pag_graph
from bench import scale_out
from bench.harness import Session
from bench.multiply import multiply
from pag_graph import api
from pag_graph.builder.plan import plan_run
from pag_graph.engines.local import LocalEngine
from pag_graph.model.enums import RuleSet
from pag_graph.store.trace import Trace
from tests.support.sampling import proved_only

if TYPE_CHECKING:
    import pytest

TRACE = Path(pag_graph.__file__).parent / "samples" / "triangles"


def test_a_watched_build_counts_slices_and_stretches(tmp_path: Path) -> None:
    watched = scale_out.Watched(LocalEngine(), tasks=3)
    slice_events = Trace.open(TRACE).rows // 6
    api.build(TRACE, tmp_path / "store", engine=watched, slice_events=slice_events)
    assert watched.slices == len(plan_run(Trace.open(TRACE), RuleSet.TIMELY, slice_events=slice_events).slices)
    assert watched.tasks_of == {"assemble": 3, "stitch": 1, "finish": 1}
    assert watched.leftover_bytes > 0
    assert api.open(tmp_path / "store").run.info.events == Trace.open(TRACE).rows


@proved_only("builds are watched and counted")
def test_clusters_are_faster_where_there_is_work_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_out, "_MANY", 30)
    session = Session(tmp_path, quick=True, repeat=1)
    multiply(TRACE, tmp_path / "trace", times=3, seed=1)
    scale_out._plan(session, TRACE, tmp_path / "trace", Trace.open(TRACE).rows // 2)
    values = {figure.name: figure.values for figure in session.figures}
    small, large = (values[f"1,000 M events on {name}, computed"] for name in ("2 cores", "32 cores"))
    assert large["in tasks, s"] < small["in tasks, s"]
    assert large["in the driver, s"] == small["in the driver, s"]
    assert small["stretches"] >= 2
