"""Predictions for other numbers of cores: how runs are compared, and how far off those of the real logs are."""

from __future__ import annotations

import json

import pytest

from bench import spark_cores
from bench.spark_cores import Recording, compare, recordings, section, summary

S = 10**9


def run(program: str, shape: str, seconds: float, predicted: dict[int, float]) -> Recording:
    executors, _, cores = shape.partition("x")
    return Recording(
        program=program,
        shape=shape,
        cores=int(executors) * int(cores or 1),
        start_ns=5 * S,
        active_ns=int(seconds * S),
        predicted_ns={count: int(value * S) for count, value in predicted.items()},
    )


def test_every_shape_predicts_those_of_other_numbers_of_cores() -> None:
    runs = [
        run("a", "1", 10, {1: 10, 2: 6}),
        run("a", "2", 5, {1: 9, 2: 5}),
        run("a", "2", 7, {1: 11, 2: 7}),
        run("a", "1x2", 8, {1: 12, 2: 8}),
        run("b", "1", 1, {1: 1, 2: 1}),
    ]
    found = {(row.recorded, row.predicted): row for row in compare(runs)}
    assert set(found) == {("1", "2"), ("1", "1x2"), ("2", "1"), ("1x2", "1")}
    forward = found["1", "2"]
    assert (forward.recorded_ns, forward.predicted_ns, forward.measured_ns) == (10 * S, 6 * S, 6 * S)
    assert (forward.error, forward.runs) == (0, 2)
    assert forward.spread == pytest.approx(2 / 6)
    assert forward.unchanged == pytest.approx(10 / 6 - 1)
    # Two runs predict 9 and 11: their median counts.
    assert found["2", "1"].error == 0
    assert found["1", "1x2"].error == pytest.approx(-0.25)
    assert found["1", "1x2"].spread is None
    told = summary(found.values())
    assert (told["predictions"], told["most"]) == (4, pytest.approx(0.25))
    text = section(list(found.values()))
    assert "| a | 1 | 1x2 | 10.00 | 6.00 | 8.00 | -25.0% | 1 |  |" in text


def test_the_real_runs_are_predicted_within_ten_percent_at_the_median_and_the_page_says_so() -> None:
    found = compare(recordings(spark_cores.LOGS))
    assert len({row.program for row in found}) >= 6
    assert summary(found)["median"] <= 0.10
    assert section(found) in spark_cores.PAGE.read_text(encoding="utf-8")
    assert json.loads(spark_cores.RESULT.read_text())["summary"] == summary(found)
