"""Which cases of a parametrised test run.

All with ``PAG_PROVE=1``; otherwise as many as its mark says, ``@pytest.mark.sampled(6)``: others each day, or those
that ``PAG_SAMPLE`` draws. Who names fewer cases gets them all.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

VARIABLE = "PAG_SAMPLE"


def sampling_seed() -> str:
    """Return what cases are drawn with; processes that this one starts draw the same."""
    return os.environ.setdefault(VARIABLE, datetime.now(UTC).date().isoformat())


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that do not run: of each function what is beyond its number of cases, in a drawn order."""
    cases: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            cases[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    return {item for (_, most), drawn in cases.items() for item in sorted(drawn, key=_drawn_number)[most:]}


def _drawn_number(item: pytest.Item) -> bytes:
    # Functions with the same cases draw the same of them, and share what is prepared for those.
    case = item.nodeid.partition("[")[2]
    return hashlib.blake2b(f"{sampling_seed()} {case}".encode()).digest()
