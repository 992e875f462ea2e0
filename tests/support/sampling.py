"""Which cases of a parametrised test run.

All with ``PAG_PROVE=1``; otherwise as many as its mark says, ``@pytest.mark.sampled(6)``: the same ones every
time, or those that ``PAG_SAMPLE`` draws. Who names fewer cases gets them all.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

VARIABLE = "PAG_SAMPLE"
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


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that do not run: of each function what is beyond its number of cases, in a drawn order."""
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
    case = item.nodeid.partition("[")[2]
    return hashlib.blake2b(f"{sampling_seed()} {case}".encode()).digest()
