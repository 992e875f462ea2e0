"""Estimates from some rounds: formulas against plain ones, coverage by simulation, and which files are read."""

from __future__ import annotations

import math
import os
import statistics
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.analyses.sample import SampleParameters, _Design, chosen_rounds, quantile_interval
from pag_graph.cli.demo import SAMPLES
from pag_graph.errors import InvalidParameterError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.api import Pag

# Simulated samples; a share of them that is 4 standard errors off is a wrong formula, not bad luck.
TRIALS = 20_000 if os.environ.get("PAG_PROVE") == "1" else 1_500


def slack_of(share: float) -> float:
    return 4 * math.sqrt(share * (1 - share) / TRIALS)


def test_all_rounds_give_what_all_rounds_have(bfs: Pag) -> None:
    found = bfs.sample(fraction=1.0)
    rows = found.table.to_pylist()
    assert found.sampled == tuple(window.epoch for window in bfs.rounds())
    for row in rows:
        assert row["low"] == pytest.approx(row["estimate"], abs=1e-9)
        assert row["high"] == pytest.approx(row["estimate"], abs=1e-9)
        assert row["exact"] is None or row["exact"] == pytest.approx(row["estimate"])
    profile = bfs.profile_rounds(n=0).to_pylist()
    shares = {(row["by"], row["key"]): row["estimate"] for row in rows if row["unit"] == "share"}
    assert shares == {(row["by"], row["key"]): pytest.approx(row["share"]) for row in profile}
    waited = sum(row["estimate"] for row in rows if row["by"] == "wait")
    assert waited == pytest.approx(next(row["exact"] for row in rows if row["by"] == "waiting"))


def test_the_parts_add_up(bfs: Pag) -> None:
    for strata in (1, 3):
        found = bfs.sample(fraction=0.4, strata=strata, seed=3)
        rows = found.table.to_pylist()
        for by in ("type", "operator", "worker", "pair"):
            assert sum(row["estimate"] for row in rows if row["by"] == by) == pytest.approx(1)
        for row in rows:
            assert row["low"] is None or row["low"] <= row["estimate"] + 1e-12
            assert row["high"] is None or row["high"] >= row["estimate"] - 1e-12
            assert row["rounds"] <= len(found.sampled)
        assert found.rounds == len(bfs.rounds()) == 20
        assert len(found.sampled) == 8 if strata == 1 else len(found.sampled) >= 6


def test_the_seed_decides(bfs: Pag) -> None:
    def drawn(seed: int) -> list[int | None]:
        return [window.epoch for window in chosen_rounds(bfs.run, SampleParameters(fraction=0.3, seed=seed))]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(10)}) > 5
    assert drawn(1) == sorted(drawn(1))  # type: ignore[type-var]
    for strata in (2, 4, 100):
        parameters = SampleParameters(fraction=0.01, strata=strata)
        assert len(chosen_rounds(bfs.run, parameters)) == 2 * min(strata, 10)


def test_only_files_with_the_rounds_drawn_are_read(tmp_path: Path) -> None:
    api.build(SAMPLES / "skewed", tmp_path / "store", engine="local", slice_events=100)
    pag = api.open(tmp_path / "store")
    parameters = SampleParameters(fraction=0.2, seed=5)
    expected = pag.sample(parameters).table
    windows = chosen_rounds(pag.run, parameters)
    assert len(windows) == 2
    removed = 0
    for table in ("edges", "vertices"):
        for file in (tmp_path / "store" / table).glob("*.parquet"):
            rows = pl.read_parquet(file)
            held = table == "edges" and any(
                rows["epoch"].max() >= window.lowest_epoch and rows["start_ns"].min() <= window.end_ns  # type: ignore[operator]
                for window in windows
            )
            if not held:
                file.unlink()
                removed += table == "edges"
    assert removed > 3
    again = api.open(tmp_path / "store")
    assert again.sample(parameters).table.equals(expected)
    with pytest.raises(StoreError, match="missing"):
        again.profile_rounds()


def test_means_and_ratios_by_the_book() -> None:
    """Worked by plain formulas: Cochran 2.15, 5.13, 6.13."""
    values, under = np.array([4.0, 9.0, 1.0, 6.0]), np.array([10.0, 20.0, 5.0, 10.0])
    one = _Design(np.zeros(4, np.int64), np.array([10]))
    mean, error = one.mean(values)
    assert mean == 5
    assert error == pytest.approx(math.sqrt((1 - 0.4) * statistics.variance(values) / 4))
    ratio, error = one.ratio(values, under)
    assert ratio == pytest.approx(20 / 45)
    rest = [y - ratio * x for y, x in zip(values, under, strict=True)]
    assert error == pytest.approx(math.sqrt(0.6 / 4 * sum(r * r for r in rest) / 3) / (45 / 4))
    two = _Design(np.array([0, 0, 1, 1]), np.array([4, 6]))
    mean, error = two.mean(values)
    assert mean == pytest.approx(0.4 * 6.5 + 0.6 * 3.5)
    parts = [(0.4, 4, [4, 9]), (0.6, 6, [1, 6])]
    variance = sum(w * w * (1 - 2 / size) * statistics.variance(v) / 2 for w, size, v in parts)
    assert error == pytest.approx(math.sqrt(variance))
    assert two.freedom == 2


@given(st.integers(2, 40), st.data())
def test_percentile_intervals_cover_as_often_as_they_say(population: int, data: st.DataObject) -> None:
    """Exact, by adding up the hypergeometric chances of every interval."""
    drawn = data.draw(st.integers(1, population))
    percent = data.draw(st.sampled_from([10, 50, 90, 99]))
    confidence = data.draw(st.sampled_from([0.5, 0.9, 0.95]))
    truth = max(1, -(-percent * population // 100))
    # The interval's ends are order statistics; which ones does not depend on the values.
    places = np.arange(1.0, drawn + 1)
    _, low, high = quantile_interval(places, population, percent, confidence)
    lows, highs = int(low or 0), int(high or drawn + 1)

    def chance(count: int) -> float:
        return math.comb(population, count) if 0 <= count <= population else 0

    ways = covered = 0.0
    # How many of the lowest truth - 1, and whether the percentile itself, are in the sample.
    for below in range(min(drawn, truth - 1) + 1):
        for itself in (0, 1):
            above = drawn - below - itself
            if above < 0 or above > population - truth:
                continue
            count = math.comb(truth - 1, below) * math.comb(population - truth, above)
            ways += count
            # x(low) is at most the percentile if low of the values up to it are there, and x(high) at least it if not
            # high values are below it.
            covered += count * (below + itself >= lows and below < highs)
    assert ways == chance(drawn)
    assert covered / ways >= confidence - 1e-9


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_intervals_of_means_and_shares_cover_as_often_as_they_say(confidence: float) -> None:
    from scipy import stats

    chance = np.random.default_rng(11)
    size, drawn = 400, 60
    spans = chance.gamma(4.0, 1e6, size)
    on_path = spans * chance.beta(3, 2, size)
    hits = dict.fromkeys(("mean", "share", "strata mean", "strata share", "median"), 0)
    strata = (np.argsort(np.argsort(spans)) * 4 // size).astype(np.int64)
    members = [np.flatnonzero(strata == number) for number in range(4)]
    for _ in range(TRIALS):
        uniform = chance.choice(size, drawn, replace=False)
        layered = np.concatenate([chance.choice(part, drawn // 4, replace=False) for part in members])
        for name, chosen, design in (
            ("", uniform, _Design(np.zeros(drawn, np.int64), np.array([size]))),
            ("strata ", layered, _Design(strata[layered], np.bincount(strata))),
        ):
            t = stats.t.ppf((1 + confidence) / 2, design.freedom)
            mean, error = design.mean(spans[chosen])
            hits[f"{name}mean"] += abs(mean - spans.mean()) <= t * error
            share, error = design.ratio(on_path[chosen], spans[chosen])
            hits[f"{name}share"] += abs(share - on_path.sum() / spans.sum()) <= t * error
        _, low, high = quantile_interval(spans[uniform], size, 50, confidence)
        assert low is not None
        assert high is not None
        hits["median"] += low <= np.sort(spans)[size // 2 - 1] <= high
    for name, count in hits.items():
        # The first four rest on the normal distribution: 60 rounds of a skewed one bring it within 2 %.
        assert count / TRIALS >= confidence - 0.02 - slack_of(confidence), name
        if name != "median":
            assert count / TRIALS <= confidence + 0.02 + slack_of(confidence), name


@pytest.mark.parametrize(
    "wrong",
    [{"fraction": 0.0}, {"fraction": 1.1}, {"confidence": 1.0}, {"confidence": 0.0}, {"strata": 0}, {"seed": -1}],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(wrong))):
        SampleParameters(**wrong)  # type: ignore[arg-type]
