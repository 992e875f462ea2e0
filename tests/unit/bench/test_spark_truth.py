"""The table of advice that was followed: what counts as true, and what is said of bounds and decoys."""

from __future__ import annotations

from typing import Any

import pytest

from bench.spark_truth import Run, compare, section, wilson

S = 1_000_000_000


def run(role: str, seconds: float, *causes: str, saved: float = 4, bound: bool = True) -> Run:
    ranked: list[dict[str, Any]] = [
        {"cause": cause, "saved_ns": int(saved * S), "upper_bound": bound, "class": "B"} for cause in causes
    ]
    return Run(program="p", cause="c", role=role, active_ns=int(seconds * S), load=1.0, ranked=ranked)


def test_medians_ranks_and_noise() -> None:
    runs = [
        run("planted", 10, "c"),
        run("twin", 7),
        run("twin", 7.5),
        run("planted", 11, "d", "c"),
        run("decoy", 3, "c"),
    ]
    (row,) = compare(runs)
    assert (row.rank, row.kind, row.pairs, row.decoys, row.false, row.twins_named) == (2, "B", 2, 1, 1, 0)
    assert (row.predicted_ns, row.measured_ns, row.planted_ns, row.noise_ns) == (4 * S, 3.25 * S, 10.5 * S, 1 * S)
    assert row.true
    assert row.held
    told = section([row], [1.0, 2.5])
    assert "decoys that were taken for the cause: 1 of 1" in told
    assert "| p | `c` | 2 | B | 10.50 | at most 4.00 | 3.25 | 1.00 | 2 | yes | yes |" in told


@pytest.mark.parametrize(
    ("after", "saved", "bound", "true", "held"),
    [
        (9, 4, True, True, True),  # a quarter of a bound
        (9, 4, False, False, None),  # is too little of an estimate
        (9.5, 4, True, False, True),
        (5, 4, True, True, False),  # more than the bound allows
        (12, 4, True, False, True),  # it took longer
    ],
)
def test_what_is_true(after: float, saved: float, *, bound: bool, true: bool, held: bool | None) -> None:
    (row,) = compare([run("planted", 10, "c", saved=saved, bound=bound), run("twin", after)])
    assert (row.true, row.held) == (true, held)


def test_what_is_within_noise_is_not_true_and_what_is_missed_stays_in_the_table() -> None:
    (row,) = compare([run("planted", 10, "c"), run("planted", 14, "c"), run("twin", 9), run("twin", 9)])
    assert not row.true
    (row,) = compare([run("planted", 10, "c"), run("planted", 10), run("twin", 5), run("twin", 5)])
    assert (row.rank, row.true) == (None, False)
    assert "| missed |" in section([row], [1.0])
    assert compare([run("planted", 10, "c"), run("decoy", 9)]) == []


def test_intervals_of_few_are_wide() -> None:
    assert wilson(10, 10)[0] == pytest.approx(0.7225, abs=1e-3)
    assert wilson(0, 0) == (0.0, 1.0)
