"""Kills, full disks and broken ones at named points of everything that writes.

``PAG_PROVE=1`` tries every point, otherwise a seeded handful.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.attack.attempts import attempt, chosen
from tests.attack.harness import compiler
from tests.attack.operations import ON_SPARK, OPERATIONS, WITHOUT_SPARK, prepare, write_inputs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.attack.attempts import Attempt
    from tests.attack.harness import Mode, Zygote
    from tests.attack.operations import Prepared

PROVE = os.environ.get("PAG_PROVE") == "1"
KILLS = None if PROVE else 2
"""Points of each operation; all where absent."""
FAULTS = 1
"""Points of each operation, if not all."""
KILLS_ON_SPARK = 60 if PROVE else 1

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler to build the shim with")


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


def tried(attempts: Iterable[Attempt], name: str) -> list[Attempt]:
    """Say what is wrong with any."""
    made = list(attempts)
    wrong = [str(one) for one in made if one.problems]
    print(f"{name}: {len(made)} attempts, {len(wrong)} wrong")  # noqa: T201
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(made)} attempts:\n" + "\n".join(wrong), pytrace=False)
    return made


@pytest.mark.sampled(4)
def test_kills(prepared: Prepared, zygote: Zygote, tmp_path: Path) -> None:
    points = chosen(prepared.passed, most=KILLS, seed=prepared.operation.name)
    with ThreadPoolExecutor(2) as pool:
        attempts = pool.map(lambda point: attempt(zygote, prepared, tmp_path, mode=point[1], at=point[0]), points)
    made = tried(attempts, prepared.operation.name)
    # A run may have fewer points than the one that was listed, but not many runs do.
    assert sum(one.outcome.killed for one in made) >= 0.9 * len(made)


@pytest.mark.sampled(4)
def test_disks_that_fail(prepared: Prepared, zygote: Zygote, tmp_path: Path) -> None:
    modes: tuple[Mode, ...] = ("full", "broken")
    name = prepared.operation.name
    tries = [(at, mode) for at, _ in chosen(prepared.passed, most=None, seed=name) for mode in modes]
    if not PROVE:
        tries = random.Random(name).sample(tries, FAULTS)
    with ThreadPoolExecutor(2) as pool:
        attempts = pool.map(lambda one: attempt(zygote, prepared, tmp_path, mode=one[1], at=one[0]), tries)
    tried(attempts, f"{name}, disks that fail")


@pytest.mark.spark
@pytest.mark.xdist_group("tests/attack/test_kills.py")
def test_kills_on_spark(zygote: Zygote, shim: Path, inputs: Path, tmp_path: Path) -> None:
    """Tasks write in processes of their own, which must be seen as well; what they leave, the next build removes."""
    if PROVE:
        prepared = prepare(zygote, ON_SPARK, inputs, tmp_path, library=shim)
        points = chosen(prepared.passed, most=KILLS_ON_SPARK, seed="spark")
    else:
        # A start of Spark takes as long as twenty other attempts. The last tasks have written by then.
        prepared = replace(prepare(zygote, WITHOUT_SPARK, inputs, tmp_path), operation=ON_SPARK)
        points = [(45, "kill")]
    made = tried(
        (
            attempt(zygote, prepared, tmp_path, mode=mode, at=at, library=shim, again=WITHOUT_SPARK)
            for at, mode in points
        ),
        ON_SPARK.name,
    )
    assert all(one.outcome.killed for one in made)
    assert "open a.pag/vertices/part-*.parquet" in {point.name for point in made[-1].outcome.passed}
