"""Walks from results to the rows of a log, and from a clock or a parameter to what depends on it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph import api, samples
from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.errors import InvalidParameterError
from pag_graph.rules.rows import RuleParameters
from pag_graph.sinks.provenance_walks import (
    FinalCommits,
    log_rows,
    log_stretches,
    own_commits,
    touched_by_clock,
    touched_by_parameter,
)
from pag_graph.store.trace_files import seal_trace, written_sums

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.graph.run import Run

ROWS_PER_GROUP = 100
waits = find_analysis("waits")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a bundled trace anew, in small row groups and with checksums."""
    folder = tmp_path_factory.mktemp("walks") / "trace"
    shutil.copytree(samples.path("skewed"), folder)
    for file in (folder / "events").glob("*.parquet"):
        pq.write_table(pq.read_table(file), file, row_group_size=ROWS_PER_GROUP)
    seal_trace(folder)
    return folder


@pytest.fixture(scope="module")
def run(trace: Path) -> Run:
    store = trace.parent / "run.pag"
    api.build(trace, store, engine="local")
    return api.open(store).run


def test_rows_of_a_log_hold_the_events_of_each_step(run: Run, trace: Path) -> None:
    sums = written_sums(trace)
    logs = {
        name: pl.DataFrame(pl.from_arrow(pq.read_table(trace / name))) for name in sums if name.startswith("events/")
    }
    seqs = dict(run.scan("vertices").select("id", "seq").collect().iter_rows())
    for epoch in (1, 4, 9):
        steps = critical_path(run.snapshot(run.window(epoch=epoch))).steps.to_pylist()
        rows = log_rows(run, epoch).to_dicts()
        assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)
        for step in steps:
            parts = [row for row in rows if row["step"] == step["step"]]
            is_sent = step["worker"] != step["to_worker"]
            workers = [step["worker"], step["to_worker"]] if is_sent else [step["worker"]]
            assert list(dict.fromkeys(row["worker"] for row in parts)) == workers
            held: dict[int, list[int]] = {worker: [] for worker in workers}
            for row in parts:
                assert (row["bytes"], row["crc32"]) == (sums[row["file"]]["bytes"], sums[row["file"]]["crc32"])
                events = logs[row["file"]][row["from_row"] : row["to_row"] + 1]
                assert set(events["worker"]) == {row["worker"]}
                held[row["worker"]] += events["seq"].to_list()
            # What lies between the two events, and both of them where the log has them.
            ends = [[seqs[step["edge_src"]]], [seqs[step["edge_dst"]]]]
            for worker, bounds in zip(workers, ends if is_sent else [ends[0] + ends[1]], strict=True):
                part = next(row for row in parts if row["worker"] == worker)
                assert held[worker] == list(range(part["from_seq"], part["to_seq"] + 1))
                assert {seq for seq in bounds if seq is not None} <= set(held[worker])


def test_one_step_is_a_part_of_all(run: Run) -> None:
    rows = log_rows(run, 4)
    assert log_rows(run, 4, step=7).equals(rows.filter(pl.col("step") == 7))
    assert log_stretches(run)["log_rows"].max() == ROWS_PER_GROUP


def test_what_a_clock_touches_is_what_crosses(run: Run) -> None:
    for worker in run.workers:
        touched = {row["epoch"]: row for row in touched_by_clock(run, worker).to_dicts()}
        for epoch, row in touched.items():
            snapshot = run.snapshot(run.window(epoch=epoch))
            path = critical_path(snapshot).steps.to_pylist()
            ends = [(step["worker"] == worker, step["to_worker"] == worker, step["duration_ns"]) for step in path]
            assert row["path_ns"] == sum(ns for begins, ends_, ns in ends if begins or ends_)
            assert row["crossings"] == sum(begins != ends_ for begins, ends_, _ in ends)
            # Here no wait lasts from one round into the next.
            crossing = [
                each
                for each in waits(snapshot).to_pylist()
                if (each["worker"] == worker) != (each["from_worker"] == worker)
            ]
            assert row["waited_ns"] == sum(each["waiting_ns"] for each in crossing if each["from_worker"] is not None)
            assert row["job"] == own_commits(run)[-1].id
    # All workers read one clock: where all are off alike, nothing crosses.
    assert touched_by_clock(run, 0, domain=True).select(pl.sum("waits", "crossings")).row(0) == (0, 0)
    with pytest.raises(InvalidParameterError, match="no worker 9"):
        touched_by_clock(run, 9)


def test_a_changed_parameter_is_told_from_what_it_replaced(trace: Path, tmp_path: Path) -> None:
    store = tmp_path / "run.pag"
    api.build(trace, store, engine="local")
    api.build(trace, store, engine="local", mode="replace", parameters=RuleParameters(busy_below_ns=1))
    rows = touched_by_parameter(api.open(store).run, "busy_below_ns")
    assert [(row["value"], row["is_current"], row["answers"]) for row in rows] == [(5000, False, None), (1, True, [])]
    assert len({row["run"] for row in rows}) == 2
    with pytest.raises(InvalidParameterError, match="no parameter colour; there are busy_below_ns"):
        touched_by_parameter(api.open(store).run, "colour")


def test_walks_from_the_command_line(run: Run, run_pag: Callable[..., tuple[int, str, str]]) -> None:
    store = run.info.path
    for options, rows in (
        (("--epoch", "4"), log_rows(run, 4).to_dicts()),
        (("--clock", "2"), touched_by_clock(run, 2).to_dicts()),
        (("--parameter", "level"), touched_by_parameter(run, "level")),
    ):
        code, out, _ = run_pag("provenance", store, *options, "--format", "json")
        assert (code, json.loads(out)) == (0, rows)
        code, out, _ = run_pag("provenance", store, *options)
        assert code == 0
        assert f"{len(rows):,} rows" in out
        assert run_pag("provenance", store, *options, "--format", "prov-json")[0] == 2
    assert run_pag("provenance", store, "--epoch", "4", "--clock", "1")[0] == 2


@given(st.lists(st.integers(-1, 20), min_size=1, max_size=8), st.integers(0, 25))
def test_the_commit_of_an_epoch_is_the_first_that_made_it_final(finals: list[int], epoch: int) -> None:
    named: list[tuple[int, Any]] = [(last, str(place)) for place, last in enumerate(finals)]
    first = next((name for last, name in named if last >= epoch), named[-1][1])
    assert FinalCommits(named).commit_of(epoch) == first
