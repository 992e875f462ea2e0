"""Kills, full disks and broken ones at named points of everything that writes.

``PAG_PROVE=1`` tries every point, otherwise a seeded handful.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.attack.attempts import attempt, chosen
from tests.attack.harness import Zygote, build_shim, compiler
from tests.attack.operations import OPERATIONS, prepare, write_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.attack.attempts import Attempt
    from tests.attack.harness import Mode
    from tests.attack.operations import Prepared

PROVE = os.environ.get("PAG_PROVE") == "1"
KILLS = None if PROVE else 3
"""Points of each operation."""
FAULTS = None if PROVE else 1

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler to build the shim with")


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(build_shim(tmp_path_factory.mktemp("shim"))) as started:
        yield started


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs") / "in"
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module", params=OPERATIONS, ids=lambda operation: operation.name)
def prepared(
    request: pytest.FixtureRequest, zygote: Zygote, inputs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Prepared:
    return prepare(zygote, request.param, inputs, tmp_path_factory.mktemp("prepared"))


def tried(zygote: Zygote, prepared: Prepared, place: Path, points: list[tuple[int, Mode]]) -> list[Attempt]:
    """Try points, two at a time; say what is wrong with any."""
    with ThreadPoolExecutor(2) as pool:
        attempts = list(pool.map(lambda point: attempt(zygote, prepared, place, mode=point[1], at=point[0]), points))
    wrong = [str(one) for one in attempts if one.problems]
    print(f"{prepared.operation.name}: {len(attempts)} attempts, {len(wrong)} wrong")  # noqa: T201
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(attempts)} attempts:\n" + "\n".join(wrong), pytrace=False)
    return attempts


def test_kills(prepared: Prepared, zygote: Zygote, tmp_path: Path) -> None:
    points = chosen(prepared.passed, most=KILLS, seed=prepared.operation.name)
    attempts = tried(zygote, prepared, tmp_path, points)
    # A run may have fewer points than the one that was listed, but not many runs do.
    assert sum(one.outcome.killed for one in attempts) >= 0.9 * len(attempts)


@pytest.mark.parametrize("mode", ["full", "broken"])
def test_disks_that_fail(prepared: Prepared, mode: Mode, zygote: Zygote, tmp_path: Path) -> None:
    points = chosen(prepared.passed, most=FAULTS, seed=f"{prepared.operation.name} {mode}")
    tried(zygote, prepared, tmp_path, [(at, mode) for at, _ in points])
