"""How often runs of one program are told apart by chance."""

from __future__ import annotations

import itertools
import random

import pytest

from pag_graph.analyses.advising.advice_trials import decided
from pag_graph.analyses.repetitions import ENOUGH, MOST_BY_CHANCE, chance_of_separation, compared, enough

SIDES = [(first, second) for first in range(1, 7) for second in range(1, 7)]


@pytest.mark.parametrize(("first", "second"), SIDES)
def test_the_chance_is_that_of_all_ways_to_choose_the_runs(first: int, second: int) -> None:
    runs = set(range(first + second))
    ways = [set(chosen) for chosen in itertools.combinations(sorted(runs), first)]
    apart = sum(max(side) < min(runs - side) or min(side) > max(runs - side) for side in ways)
    assert chance_of_separation(first, second) == apart / len(ways)


def test_four_runs_a_side_are_enough() -> None:
    assert min(runs for runs in range(1, 10) if enough(runs, runs)) == ENOUGH
    assert enough(3, 5)
    assert not enough(3, 4)


@pytest.mark.parametrize(("first", "second"), [(4, 4), (3, 5), (5, 5)])
@pytest.mark.parametrize("noise", ["normal", "seldom very fast"])
def test_runs_of_one_program_are_seldom_told_apart(first: int, second: int, noise: str) -> None:
    chance = random.Random(first * 10 + second)

    def rate() -> float:
        return chance.gauss(100, 10) if noise == "normal" else 100 * chance.random() ** 5 + 1

    rounds = 4_000
    told = 0
    for _ in range(rounds):
        ratio = compared([rate() for _ in range(first)], [rate() for _ in range(second)])
        told += decided(ratio, first, second, single=False, paper=False) != "undecided"
    expected = chance_of_separation(first, second)
    # Four standard deviations of a count of so many rounds.
    assert abs(told / rounds - expected) < 4 * (expected / rounds) ** 0.5
    assert told / rounds < MOST_BY_CHANCE


def test_three_runs_a_side_would_be_told_apart_too_often() -> None:
    chance = random.Random(7)
    sides = [[[chance.gauss(100, 10) for _ in range(3)] for _ in range(2)] for _ in range(2_000)]
    for single, least, most in ((True, 0.08, 0.12), (False, 0.0, 0.0)):
        decisions = [decided(compared(*side), 3, 3, single=single, paper=False) for side in sides]
        assert least <= sum(decision != "undecided" for decision in decisions) / len(sides) <= most
