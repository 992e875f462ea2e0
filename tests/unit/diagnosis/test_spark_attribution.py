"""What the difference of two runs goes back to: shares that add up, and planted changes that get them."""

from __future__ import annotations

import json
import random
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.comparison.accounting import Comparison, compare
from pag_graph.diagnosis.spark.comparison.attribution import FACTORS, shapley
from pag_graph.diagnosis.spark.comparison.stages import StageUnit, match_stages
from pag_graph.sources.spark.logfiles import LogFiles
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.diagnosis.spark.answer import SparkAnswer


def by_all_orders(names: list[str], values: dict[frozenset[str], int]) -> dict[str, float]:
    """The definition: what a part changes, on average over all orders in which the parts are changed."""
    shares = dict.fromkeys(names, 0.0)
    orders = list(permutations(names))
    for order in orders:
        for place, name in enumerate(order):
            before = frozenset(order[:place])
            shares[name] += (values[before | {name}] - values[before]) / len(orders)
    return shares


@pytest.mark.parametrize("seed", range(20))
def test_shapley_is_the_mean_over_all_orders_in_whole_numbers_that_add_up(seed: int) -> None:
    chance = random.Random(seed)
    names = list(FACTORS[: chance.randint(0, 5)])
    subsets = [frozenset(n for k, n in enumerate(names) if bits >> k & 1) for bits in range(1 << len(names))]
    values = {chosen: chance.randint(-(10**13), 10**13) for chosen in subsets}
    found, slow = shapley(names, values.__getitem__), by_all_orders(names, values)
    assert sum(found.values()) == values[frozenset(names)] - values[frozenset()]
    assert all(abs(found[name] - slow[name]) <= 1 for name in names)
    turned = shapley(names, lambda chosen: values[frozenset(names) - chosen])
    assert turned == {name: -ns for name, ns in found.items()}


def run(
    folder: Path,
    *,
    cores: int = 2,
    tasks: int = 8,
    each: int = 1_000,
    size: int = 1 << 20,
    gap: int = 500,
    settings: dict[str, str] | None = None,
) -> SparkAnswer:
    """Two jobs of some tasks each on the cores of one executor, with the driver alone before each; times in ms."""
    name = f"{cores}-{tasks}-{each}-{size}-{gap}-{len(settings or {})}"
    log = EventLog(cores=[cores])
    log.add(
        "SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.executor.memory": "1g", **(settings or {})}}
    )
    at = gap
    for job in (0, 1):
        log.job(job, at, [job]).stage(job, at, tasks=tasks)
        for index in range(tasks):
            begin = at + (index // cores) * (each + 10)
            log.task(job, index, "0", begin, begin + each + 10, run=each, read=(0, size, 10))
        at += -(-tasks // cores) * (each + 10)
        log.stage_done(job, at).job_done(job, at)
        at += gap
    return answer(LogFiles(name=name, files=(log.end(at).write(folder / name),)))


def parts(found: Comparison) -> dict[str, int]:
    return {part.name: part.ns for part in found.attribution.parts}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "factor"),
    [
        ({"cores": 4}, "cluster"),
        ({"gap": 3_000}, "driver"),
        ({"tasks": 80, "each": 100, "size": (1 << 20) // 10}, "partitioning"),
        ({"each": 2_000, "size": 2 << 20}, "volume"),
        ({"each": 2_000}, "rate"),
    ],
)
def test_what_was_changed_gets_the_difference(tmp_path: Path, change: dict[str, int], factor: str) -> None:
    base, new = run(tmp_path), run(tmp_path, **change)
    found = compare(new, base)
    told = parts(found)
    assert sum(told.values()) == found.difference_ns != 0
    assert abs(told[factor] - found.difference_ns) <= 0.02 * abs(found.difference_ns)
    assert found.attribution.parts[0].name == factor
    assert parts(compare(base, new)) == {name: -ns for name, ns in told.items()}
    assert set(parts(compare(new, new)).values()) == {0}


def test_two_changes_at_once_are_divided(tmp_path: Path) -> None:
    base, new = run(tmp_path), run(tmp_path, cores=4, each=2_000)
    told = parts(compare(new, base))
    # 8 s of work: twice the cores save 4 s of it, or 8 s of twice as much; the rate adds 8 s, or 4 s with more cores.
    assert told["cluster"] == pytest.approx(-4e9 * 1.5, rel=0.05)
    assert told["rate"] == pytest.approx(4e9 * 1.5, rel=0.05)


def test_runs_with_little_in_common_are_not_divided(tmp_path: Path) -> None:
    log = EventLog(cores=[1]).job(5, 100, [7], name="count at other.py:3").stage(7, 100, tasks=1)
    log.task(7, 0, "0", 100, 20_000, run=19_000).stage_done(7, 20_001).job_done(5, 20_002).end(20_100)
    other = answer(LogFiles(name="other", files=(log.write(tmp_path / "other"),)))
    found = compare(run(tmp_path), other)
    assert not found.attribution.parts
    assert "in units that both have" in found.attribution.refused
    assert json.dumps(found.facts()["attribution"])


def test_stages_go_together_by_nodes_then_by_likeness_then_by_order() -> None:
    def units(*words: str) -> list[StageUnit]:
        return [StageUnit(place, tuple(sorted(word))) for place, word in enumerate(words)]

    assert match_stages(units("ab", "cd", "ab"), units("ab", "ab", "cd")) == [(0, 0), (1, 2), (2, 1)]
    assert match_stages(units("abcd", "xy"), units("xy", "abce")) == [(0, 1), (1, 0)]
    assert match_stages(units("ab"), units("xy")) == [(0, 0)]
    assert match_stages(units("ab", "cd"), units("xy")) == []
    chance = random.Random(1)
    for _ in range(200):
        one, other = (
            units(*("".join(chance.choices("abcd", k=3)) for _ in range(chance.randint(0, 5)))) for _ in range(2)
        )
        assert sorted((j, i) for i, j in match_stages(one, other)) == match_stages(other, one)


def test_advice_that_was_followed_is_told_with_what_came_of_it(tmp_path: Path) -> None:
    def garbage(name: str, gc: int, memory: str) -> SparkAnswer:
        log = EventLog(cores=[1])
        log.add("SparkListenerEnvironmentUpdate", **{"Spark Properties": {"spark.executor.memory": memory}})
        log.job(0, 100, [0]).stage(0, 100, tasks=4)
        for index in range(4):
            begin = 100 + index * (2_000 + gc)
            log.task(0, index, "0", begin, begin + 2_000 + gc, run=2_000 + gc, gc=gc)
        end = 100 + 4 * (2_000 + gc)
        log.stage_done(0, end).job_done(0, end).end(end + 100)
        return answer(LogFiles(name=name, files=(log.write(tmp_path / name),)))

    base, new = garbage("base", 2_000, "1g"), garbage("new", 100, "4g")
    (row,) = compare(new, base).followed
    assert (row.cause, row.setting, row.recorded, row.proposed) == ("gc", "spark.executor.memory", "1g", "2048m")
    assert row.got_ns == 4 * 1_900 * 10**6
    assert "predicted 8.00 s, got 7.60 s" in row.text
    # Bare numbers are MiB.
    assert len(compare(garbage("bare", 100, "4096"), base).followed) == 1
    assert len(compare(new, garbage("bare base", 2_000, "1024")).followed) == 1
    # Less memory, or as much, follows nothing.
    assert not compare(garbage("less", 100, "512m"), base).followed
    assert not compare(garbage("same", 100, "1g"), base).followed
    assert not compare(garbage("bare same", 100, "1024"), base).followed
