"""Which tests run, and which of their cases.

All with ``PAG_PROVE=1``. Otherwise a parametrised test runs as many of its cases as its mark says,
``@pytest.mark.sampled(6)``, and of tests that take long as many run as a budget allows. They are the same ones every
time, or those that ``PAG_SAMPLE`` draws. Who names fewer gets them all.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pytest

VARIABLE = "PAG_SAMPLE"
BUDGET = "PAG_BUDGET_S"
"""How many seconds all tests together may take that are listed as dear; `inf` for all of them."""
BUDGET_S = 200.0
COSTS = Path(__file__).parents[1] / "costs.tsv"
"""Tests that took a second or longer when `tests.support.costs` measured them, and how long."""
T = TypeVar("T")


def proved_only(otherwise: str) -> pytest.MarkDecorator:
    """Mark a dear test that ``make prove`` runs alone.

    Parameters
    ----------
    otherwise
        What ``make test`` runs on the same subject.
    """
    import pytest

    return pytest.mark.skipif(os.environ.get("PAG_PROVE") != "1", reason=f"only with PAG_PROVE=1: {otherwise}")


def sampling_seed() -> str:
    """Return what cases are drawn with; processes that this one starts draw the same."""
    return os.environ.setdefault(VARIABLE, "1")


def left_out(items: Collection[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that do not run: cases beyond the number of their function, and what the budget cannot pay."""
    cases = _cases_beyond(items)
    budget_s = float(os.environ.get(BUDGET, BUDGET_S))
    tests = beyond_budget([item.nodeid for item in items if item not in cases], budget_s, read_costs())
    return cases | {item for item in items if item.nodeid in tests}


def beyond_budget(tests: Collection[str], budget_s: float, costs: Mapping[str, float]) -> set[str]:
    """Return the tests that do not run because dear ones together take longer than a budget.

    They are drawn: what takes long is left out more often, so that few tests pay for many. A file of which nothing
    would run keeps the one that is drawn first.

    Parameters
    ----------
    tests
        ``path::name`` of all that would run, with their cases, in any order.
    budget_s
        Seconds that dear ones may take together.
    costs
        Seconds of each that is dear; others always run.
    """
    kept = {test.partition("::")[0] for test in tests if test not in costs}
    order = sorted(costs.keys() & set(tests), key=lambda test: costs[test] * _drawn_share(test))
    left = set()
    for test, spent_s in zip(order, accumulate(costs[test] for test in order), strict=True):
        file = test.partition("::")[0]
        if spent_s <= budget_s or file not in kept:
            kept.add(file)
        else:
            left.add(test)
    return left


def read_costs() -> dict[str, float]:
    """Return seconds per dear test, as ``path::name[case]``, without what tests prepare together."""
    rows = (line.split("\t") for line in COSTS.read_text().splitlines())
    return {test: float(seconds) for seconds, test in rows}


def _drawn(text: str, size: int = 64) -> bytes:
    return hashlib.blake2b(f"{sampling_seed()} {text}".encode(), digest_size=size).digest()


def _drawn_share(test: str) -> float:
    return int.from_bytes(_drawn(test, 8)) / (1 << 64)


def _cases_beyond(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    cases: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            cases[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    return {item for (_, limit), drawn in cases.items() for item in sorted(drawn, key=_drawn_number)[limit:]}


def draw_some(items: Sequence[T], count: int) -> list[T]:
    """Return so many of a sequence, in its order; all with ``PAG_PROVE=1``."""
    if os.environ.get("PAG_PROVE") == "1" or count >= len(items):
        return list(items)
    positions = sorted(random.Random(sampling_seed()).sample(range(len(items)), count))
    return [items[position] for position in positions]


def _drawn_number(item: pytest.Item) -> bytes:
    # Functions with the same cases draw the same of them, and share what is prepared for those.
    return _drawn(item.nodeid.partition("[")[2])
