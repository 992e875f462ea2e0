"""Causes that a plan shows, on recorded logs: each beside one that looks alike, and one with the advice applied."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.diagnosis.spark.lines import together_lines
from pag_graph.diagnosis.spark.look import Thresholds
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log

LOGS = Path(__file__).parents[2] / "data" / "spark" / "plans"

PLANTED = {
    "python-udf": "python_udf",
    "pandas-udf": "python_udf",
    "sleeping-udf": "python_udf",
    "broadcast-missed": "broadcast_missed",
    "exploding-join": "exploding_join",
    "cartesian": "exploding_join",
    "small-files-read": "small_files_read",
    "small-files-written": "small_files_written",
    "repeated-subplan": "repeated_subplan",
    "cache-recomputed": "cache_recomputed",
    "stream-frames": "batch_overrun",
}
"""Program to what its log must name first; `bench/spark_causes/record_plans.py` records them."""

CHANGES = {
    "python-udf": r"the function: ArrowEvalPython -> built-in functions, in stage \d+, ArrowEvalPython of query \d+",
    "pandas-udf": r"the function: ArrowEvalPython -> built-in functions, .*",
    "sleeping-udf": r"the function: ArrowEvalPython -> built-in functions, .*",
    "broadcast-missed": r"spark\.sql\.autoBroadcastJoinThreshold: -1 -> 1048576",
    "exploding-join": r"the join: ShuffledHashJoin, 6,000,000 of 12,000 -> a key that tells rows apart, .*",
    "cartesian": r"the join: CartesianProduct, 81,000,000 of 9,000 -> an equality of keys .*",
    "small-files-read": r"files of the table: 1,200 -> 1 of up to 128 MiB, .*",
    "small-files-written": r"files written: 800 -> 100, by repartition\(partition columns\) before writing, .*",
    "repeated-subplan": r"what is computed again: 3 times -> persist\(\), computed once, .*",
    "cache-recomputed": r"the cache's level: memory, as it did not hold -> MEMORY_AND_DISK, .*",
    "stream-frames": r"rows of a batch: 100 -> 1,000, by the source's limit for a batch, in the stream",
}


@cache
def diagnosis(name: str) -> Diagnosis:
    (log,) = find_logs(LOGS / f"{name}.zstd")
    return diagnose(map_log(read_log(log)).schedule)


def names(name: str) -> list[str]:
    return [cause.cause for cause in diagnosis(name).causes]


@pytest.mark.parametrize("program", PLANTED)
def test_what_was_planted_is_named_first_with_what_to_change(program: str) -> None:
    first, *_ = diagnosis(f"{program}-planted").causes
    assert first.cause == PLANTED[program]
    assert any(re.fullmatch(CHANGES[program], change.text) for change in first.changes), first.changes
    assert first.bound
    assert first.traps


@pytest.mark.parametrize("program", PLANTED)
@pytest.mark.parametrize("role", ["decoy", "twin"])
def test_what_looks_alike_and_what_is_mended_are_not_named(program: str, role: str) -> None:
    assert PLANTED[program] not in names(f"{program}-{role}")


def test_the_decoys_have_the_operators_that_the_causes_are_known_by() -> None:
    for name, node in {
        "python-udf": "ArrowEvalPython",
        "broadcast-missed": "SortMergeJoin",
        "cartesian": "CartesianProduct",
        "exploding-join": "ShuffledHashJoin",
        "cache-recomputed": "InMemoryTableScan",
    }.items():
        (log,) = find_logs(LOGS / f"{name}-decoy.zstd")
        assert node in read_log(log).nodes["name"].to_list(), name


def test_changes_one_after_the_other_never_take_longer() -> None:
    ends = [cause.cumulative.ns for cause in diagnosis("exploding-join-planted").causes if cause.cumulative]
    assert len(ends) > 1
    assert ends == sorted(ends, reverse=True)
    # They do not add up: together the two save less than the sum of both.
    found = diagnosis("exploding-join-planted")
    assert found.simulated_ns - ends[-1] < sum(cause.saved_ns for cause in found.causes)


def test_what_several_savings_mean_together_is_said() -> None:
    (line,) = together_lines(diagnosis("exploding-join-planted"))
    assert "do not add up" in line
    assert "can save more than its bound" in line
    assert together_lines(diagnosis("small-files-read-twin")) == []


def test_thresholds_decide() -> None:
    (log,) = find_logs(LOGS / "small-files-read-planted.zstd")
    schedule = map_log(read_log(log)).schedule
    few = diagnose(schedule, Thresholds(small_files=2_000)).causes
    assert "small_files_read" not in [cause.cause for cause in few]
