"""The process that does everything in forks of itself, and the shim that may be under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attack.harness import Zygote, build_shim, compiler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler() is None:
        pytest.skip("there is no C compiler to build the shim with")
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    library = build_shim(tmp_path_factory.mktemp("shim")) if compiler() else None
    with Zygote(library) as started:
        yield started
