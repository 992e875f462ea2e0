"""Builds, appends, replaces, conversions and readers at the same time: every open sees one commit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.attack.races import problems

if TYPE_CHECKING:
    from pathlib import Path

    from tests.attack.harness import Zygote

PROVE = os.environ.get("PAG_PROVE") == "1"
RACES = 1_000 if PROVE else 10
_AT_ONCE = 50
"""Rounds of the same processes."""


def test_races(zygote: Zygote, tmp_path: Path) -> None:
    course = zygote.call("tests.attack.races:lay_out", str(tmp_path))
    run, wrong, seen = 0, [], 0
    for first in range(0, RACES, _AT_ONCE):
        last = min(RACES, first + _AT_ONCE)
        outcome = zygote.start("tests.attack.races:run_rounds", course, 7, first, last, timeout=600).wait()
        assert outcome.code == 0, outcome.said
        wrong += [text for told in outcome.result["rounds"] for text in problems(told)]
        if any(outcome.result["codes"]):
            wrong.append(f"processes ended with {outcome.result['codes']}: {outcome.said[-2000:]}")
        run += len(outcome.result["rounds"])
        seen += sum(len(one.get("seen", ())) for told in outcome.result["rounds"] for one in told)
    print(f"{run} races, {seen} opens, {len(wrong)} wrong")  # noqa: T201
    if wrong:
        pytest.fail(f"{len(wrong)} wrong in {run} races:\n" + "\n".join(wrong), pytrace=False)
    assert run == RACES
    assert seen > RACES
