"""When latencies have settled: the counts that the definition promises, on exponential noise."""

from __future__ import annotations

import numpy as np
import pytest

from pag_graph.analyses.rescaling.settled import LEAST, NOT_SETTLED, SETTLED, TOO_FEW, Settling, margin, settling

EPOCHS, SEEDS = 60, 200


def noisy(level: np.ndarray, seed: int) -> np.ndarray:
    """Return latencies with exponential noise of a tenth of their level at the end."""
    return level + np.random.default_rng(seed).exponential(level[-1] / 10, len(level))


def found(level: np.ndarray) -> list[Settling]:
    return [settling(noisy(level, seed)) for seed in range(SEEDS)]


def test_flat_latencies_are_settled_from_the_first_on() -> None:
    places = [answer.first for answer in found(np.full(EPOCHS, 100.0))]
    # 1,819 of 2,000 seeds; those behind it begin with a median that no later one reaches.
    assert places.count(0) >= 0.88 * SEEDS


def test_a_step_down_is_found_where_it_is() -> None:
    level = np.where(np.arange(EPOCHS) < 20, 200.0, 100.0)
    near = sum(answer.first is not None and 18 <= answer.first <= 22 for answer in found(level))
    assert near >= 0.93 * SEEDS


@pytest.mark.parametrize(
    "level", [100 * 1.05 ** np.arange(EPOCHS), np.where(np.arange(EPOCHS) < 45, 200.0, 100.0)], ids=["growth", "late"]
)
def test_what_drifts_is_refused(level: np.ndarray) -> None:
    assert {answer.status for answer in found(level)} == {NOT_SETTLED}


def test_of_few_epochs_nothing_is_said() -> None:
    assert settling(np.ones(LEAST - 1)) == Settling(TOO_FEW, None)
    assert settling(np.ones(LEAST)) == Settling(SETTLED, 0)


def test_medians_within_a_tenth_or_the_noise_do_not_differ() -> None:
    quiet = np.full(50, 100)
    assert margin(quiet, quiet) == 10
    loud = np.tile([50, 150], 25)
    assert 10 < margin(quiet, loud) < 100
