"""Critical paths of traces drawn by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses.critical_path import critical_path
from pag_graph.errors import CycleError, PagError, UnsupportedPlanError
from pag_graph.graph.snapshot import Snapshot
from pag_graph.model.enums import RuleSet
from pag_graph.model.ids import vertex_id
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.analyses.critical_path import CriticalPath
    from pag_graph.api import Pag

    Build = Callable[..., Pag]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def run(*logs: str, **more: Any) -> Pag:
        draw(*logs, **more).write(tmp_path / "trace")
        api.build(tmp_path / "trace", tmp_path / "store", engine="local", mode="replace")
        return api.open(tmp_path / "store")

    return run


def drawn(path: CriticalPath) -> str:
    """A path as it is written in these tests: ``start worker:type`` per step, ``>`` where it changes the worker."""
    assert path.length_ns == path.window.span_ns
    parts = []
    for step in path.steps.to_pylist():
        to = f">{step['to_worker']}" if step["to_worker"] != step["worker"] else ""
        parts.append(f"{step['start_ns']} {step['worker']}{to}:{step['type']}")
    return " | ".join(parts)


# Worker 0 works for worker 1, then worker 1 for worker 0; the end of the epoch is worker 0's.
PING = "0 start 1 | 30 send 3>1 | 31 stop 1 | 40 park | 80 unpark | 85 start 2 | 86 recv 3<1 | 90 stop 2 | 90 end"
PONG = "0 park | 35 unpark | 36 start 1 | 37 recv 3<0 | 70 send 3>0 | 72 stop 1 | 75 park 30 | 105 unpark | 110 end"


def test_a_path_goes_back_over_the_messages_that_ended_waits(build: Build) -> None:
    pag = build(PING, PONG)
    path = pag.critical_path(epoch=0)
    assert drawn(path) == (
        "0 0:processing | 30 0>1:data_message | 30 1:wake_up | 35 1:busy | 36 1:processing | 37 1:processing"
        " | 70 1>0:data_message | 70 0:wake_up | 80 0:busy | 85 0:processing | 86 0:processing | 90 0:busy"
    )
    assert path.by_type == {"processing": 69, "wake_up": 15, "busy": 6, "data_message": 0}
    # Worker 1 is asleep there.
    assert (path.ends, path.all_waiting, path.explained, path.alternatives) == (1, False, 1.0, 0)
    assert path.steps["edge_dst"].to_pylist()[-1] == pag.epochs["end_vertex"][0] == vertex_id(0, 18)


def test_a_window_cuts_edges_at_its_borders(build: Build) -> None:
    path = build(PING, PONG).critical_path(between=(50, 72))
    # At 72 worker 0 is being woken up, and worker 1 ends its activation: the lowest worker that does not wait.
    assert drawn(path) == "50 1:processing | 70 1>0:data_message | 70 0:wake_up"
    assert (path.steps["src"].to_pylist()[0], path.steps["dst"].to_pylist()[-1], path.ends) == (-1, -2, 2)


def test_cut_vertices_are_negative_and_name_the_edge(build: Build) -> None:
    [step] = build(PING, PONG).critical_path(between=(5, 25)).steps.to_pylist()
    assert (step["src"], step["dst"], step["duration_ns"]) == (-1, -2, 20)
    assert (step["edge_src"], step["edge_dst"]) == (vertex_id(0, 2), vertex_id(0, 4))


def test_a_free_window_ends_at_the_lowest_worker_that_is_not_waiting(build: Build) -> None:
    pag = build(PING, PONG)
    assert drawn(pag.critical_path(between=(32, 36))) == "32 0:busy"
    # Worker 0 waits from 40 to 70.
    path = pag.critical_path(between=(41, 60))
    assert (drawn(path), path.ends) == ("41 1:processing", 1)


def pipeline(source_rests: str, *, enrich_until: int = 60, sink: str = "60 exit") -> tuple[str, str, str]:
    """Draw a source that works to 20 and then rests, what enriches its records from 20 on, and their sink to 60."""
    return (
        f"0 start 1 | 20 send 3>1 #0 | 20 stop 1 | {source_rests}",
        (
            "0 start 2 =waiting | 20 recv 3<0 #0 | 20 stop 2 | 20 start 2 | 45 send 4>2 #0"
            f" | {enrich_until} stop 2 | {enrich_until} end"
        ),
        f"0 start 3 =waiting | 45 recv 4<1 #0 | 45 stop 3 | 45 start 3 | 60 stop 3 | {sink}",
    )


def lasting(path: CriticalPath) -> list[tuple[int, str, int]]:
    """Steps that last, as (worker, type, nanoseconds)."""
    rows = pl.DataFrame(pl.from_arrow(path.steps)).filter(pl.col("duration_ns") > 0)
    return rows.select("worker", "type", "duration_ns").rows()


SOURCE, ENRICH, SINK = (0, "processing", 20), (1, "processing", 25), (2, "processing", 15)


@pytest.mark.parametrize(
    "rests", ["20 start 1 =idle | 60 stop 1", "20 start 1 =idle | 59 stop 1", "20 start 1 =input_wait | 60 stop 1", ""]
)
def test_who_rests_at_the_end_ends_no_path_while_anybody_works(build: Build, rests: str) -> None:
    pag = build(*pipeline(rests, enrich_until=45), rules=RuleSet.STATED)
    path = pag.critical_path(between=(0, 60))
    assert lasting(path) == [SOURCE, ENRICH, SINK]
    assert (path.ends, path.ties, path.rests_at_end) == (1, 0, False)
    assert path.doubts_at_end() == []
    assert pag.why(between=(0, 60)).confidence == "high"


def test_the_other_ends_are_said_and_lower_the_confidence(build: Build) -> None:
    pag = build(*pipeline("20 start 1 =idle | 60 stop 1"), rules=RuleSet.STATED)
    path = pag.critical_path(between=(0, 60))
    assert lasting(path) == [SOURCE, ENRICH, (1, "processing", 15)]
    assert (path.ends, path.ties, path.summary()["ties"]) == (2, 1, 1)
    said = "2 workers worked where the window ends: 1 other path of the same length ends there"
    assert path.headline().splitlines()[-1] == f"  {said}"
    told = pag.why(between=(0, 60))
    assert told.confidence == "medium"
    assert said in [row["statement"] for row in told.table.to_pylist()]


IDLE_TO_THE_END = "20 start 1 =idle | 60 stop 1 | 60 end"


def test_a_round_that_all_end_at_once_ends_with_who_worked(build: Build) -> None:
    source, enrich, sink = pipeline(IDLE_TO_THE_END, enrich_until=45, sink="60 end")
    pag = build(source, enrich.replace("45 end", "60 end"), sink, rules=RuleSet.STATED)
    path = pag.critical_path(epoch=0)
    assert path.window.end_vertex is not None
    assert lasting(path) == [SOURCE, ENRICH, SINK]
    assert (path.ends, path.ties) == (1, 0)


def test_a_round_says_who_else_ends_with_it(build: Build) -> None:
    pag = build(*pipeline(IDLE_TO_THE_END, sink="60 end"), rules=RuleSet.STATED)
    path = pag.critical_path(epoch=0)
    assert lasting(path) == [SOURCE, ENRICH, (1, "processing", 15)]
    assert (path.ends, path.ties, pag.why(epoch=0).confidence) == (2, 1, "medium")


def test_where_nobody_works_at_the_end_the_path_is_that_of_who_worked_last(build: Build) -> None:
    rests = "20 start 1 =idle | 70 stop 1 | 70 end"
    pag = build(*pipeline(rests, enrich_until=50, sink="70 end"), rules=RuleSet.STATED)
    path = pag.critical_path(between=(0, 65))
    assert lasting(path) == [SOURCE, ENRICH, SINK, (2, "unknown", 5)]
    assert (path.ends, path.ties, path.rests_at_end) == (3, 2, True)
    assert path.headline().splitlines()[-2:] == [
        "  where the window ends nobody worked: the path ends with who did so last",
        "  3 workers rested where the window ends: 2 other paths of the same length end there",
    ]


def test_the_shutdown_follows_the_last_round(build: Build) -> None:
    pag = build(PING, PONG)
    # Nobody knows what worker 0 does after its last event.
    assert drawn(pag.critical_path(role=api.EpochRole.SHUTDOWN)) == "90 1:idle | 105 1:busy"
    path = pag.critical_path(between=(91, 105))
    assert (drawn(path), path.ends, path.explained) == ("91 0:unknown", 2, 0)


def test_where_all_wait_the_message_under_way_that_was_sent_last_is_taken(build: Build) -> None:
    pag = build(
        "0 start 1 | 10 send 3>1 | 12 stop 1 | 20 park | 60 unpark | 61 recv 3<1 | 70 end",
        "0 start 1 | 15 send 3>0 | 16 stop 1 | 25 park | 50 unpark | 51 recv 3<0 | 70 end",
        processes=[0, 1],
    )
    path = pag.critical_path(between=(5, 40))
    assert (path.all_waiting, path.ends) == (True, 0)
    assert drawn(path) == "5 1:processing | 15 1>0:data_message"
    assert path.steps["dst"].to_pylist()[-1] == -2
    # The window begins while that message is under way already.
    assert drawn(pag.critical_path(between=(30, 40))) == "30 1>0:data_message"


def test_where_nothing_is_under_way_either_the_lowest_wait_is_walked_as_unknown(build: Build) -> None:
    pag = build(
        "0 start 1 | 20 park | 60 unpark | 61 recv 3<1 | 70 end", "0 start 1 | 15 send 3>0 | 70 end", processes=[0, 1]
    )
    window = pag.run.window(between=(25, 40))
    whole = pag.run.snapshot(window)
    # No log that makes sense gives such a graph: the message and its sender are taken out of this one.
    mine = whole.edges.filter(pl.col("src") < vertex_id(1, 0), pl.col("dst") < vertex_id(1, 0))
    path = critical_path(Snapshot(run=pag.run, window=window, edges=mine))
    assert drawn(path) == "25 0:unknown"
    assert path.all_waiting
    whole_wait = pag.run.window(between=(5, 40))
    edges = pag.run.snapshot(whole_wait).edges.filter(pl.col("src") < vertex_id(1, 0), pl.col("dst") < vertex_id(1, 0))
    assert (
        drawn(critical_path(Snapshot(run=pag.run, window=whole_wait, edges=edges))) == "5 0:processing | 20 0:unknown"
    )


def test_rounds_end_at_their_own_epoch_end_even_if_others_are_active(build: Build) -> None:
    pag = build(
        "0 start 1 | 50 stop 1 | 60 end | 61 end",
        "0 start 1 | 20 send 3>2 | 30 stop 1 | 40 end | 70 end",
        "0 end | 5 end",
    )
    rows = pag.epochs.select("epoch", "role", "start_ns", "end_ns", "end_vertex").rows()
    assert rows == [
        (0, "startup", 0, 0, vertex_id(2, 2)),
        (1, "round", 0, 5, vertex_id(2, 4)),
        (2, "shutdown", 5, 70, None),
    ]
    assert drawn(pag.critical_path(epoch=1)) == "0 2:busy"
    assert pag.critical_path(epoch=0).steps.num_rows == 0
    assert pag.critical_path(epoch=0).explained == 1.0


def test_windows_show_workers_that_log_nothing_in_them(build: Build) -> None:
    # Worker 0 never logs anything, and worker 1 begins late; both live all the time.
    pag = build("", "~3 45 start 1 | 60 end", "0 start 1 | 10 end | 20 end | 30 end | 50 stop 1 | 60 end")
    for between, shown in (
        ((1, 5), "1 2:spinning"),
        ((41, 55), "41 1:unknown | 45 1:spinning"),
        ((12, 18), "12 2:spinning"),
    ):
        assert set(pag.snapshot(between=between).local["dst"] // 2**40) == {0, 1, 2}
        assert drawn(pag.critical_path(between=between)) == shown


def test_epochs_that_nobody_ended_are_seen(build: Build) -> None:
    log = "0 start 1 | 5 stop 1 | 10 end | ~3 20 start 1 | 30 stop 1 | ~7 40 start 1 | 50 stop 1 | 60 end"
    pag = build(log, "0 end | ~7 60 end")
    assert pag.epochs["epoch"].to_list() == [0, 7, 8][: pag.epochs.height]
    assert drawn(pag.critical_path(between=(12, 28))) == "12 0:busy | 20 0:spinning"
    assert drawn(pag.critical_path(between=(22, 28))) == "22 0:spinning"


def test_rules_without_aligned_clocks_have_no_path(build: Build, tmp_path: Path) -> None:
    build(PING, PONG)
    api.build(tmp_path / "trace", tmp_path / "st2", engine="local", rules="st2")
    pag = api.open(tmp_path / "st2")
    with pytest.raises(UnsupportedPlanError, match="aligned clocks"):
        pag.critical_path(epoch=0)
    with pytest.raises(UnsupportedPlanError, match="aligned clocks"):
        pag.critical_path(between=(0, 5))


def test_a_graph_with_a_gap_is_refused(build: Build) -> None:
    pag = build(PING, PONG)
    snapshot = pag.snapshot(epoch=0)

    def without(condition: pl.Expr) -> Snapshot:
        return Snapshot(run=snapshot.run, window=snapshot.window, edges=snapshot.edges.filter(~condition))

    with pytest.raises(PagError, match="No message ended the wait that ends at worker 0, position 9 ") as caught:
        critical_path(without((pl.col("type") == "data_message") & (pl.col("start_ns") == 70)))
    assert caught.value.context["vertex"] == vertex_id(0, 9)
    with pytest.raises(PagError, match="No edge leads to worker 1, position 10"):
        critical_path(without(pl.col("dst") == vertex_id(1, 10)))
    with pytest.raises(PagError, match=f"The vertex {vertex_id(0, 18)} that closes"):
        critical_path(without(pl.col("dst") == vertex_id(0, 18)))
    with pytest.raises(PagError, match="No worker has an edge where"):
        critical_path(Snapshot(run=snapshot.run, window=pag.run.window(between=(1, 2)), edges=snapshot.edges.clear()))


def test_a_cycle_is_refused(build: Build) -> None:
    pag = build(PING, PONG)
    snapshot = pag.snapshot(epoch=0)
    # The message that ended worker 1's wait now comes from after worker 0's wait, which worker 1 ended.
    turned = snapshot.edges.with_columns(
        src=pl.when((pl.col("type") == "data_message") & (pl.col("start_ns") == 30))
        .then(vertex_id(0, 14))
        .otherwise("src")
    )
    with pytest.raises(CycleError, match="comes back to worker"):
        critical_path(Snapshot(run=snapshot.run, window=snapshot.window, edges=turned))
