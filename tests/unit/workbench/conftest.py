"""A run that the tests of the workbench look at; nobody changes its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pag_graph import api, samples
from pag_graph.workbench.library import Library
from pag_graph.workbench.page import page

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    api.build(samples.path("skewed"), folder / "skewed.pag", engine="local")
    return folder


@pytest.fixture(scope="package")
def library(runs: Path) -> Library:
    return Library([runs])


@pytest.fixture(scope="package")
def store(library: Library) -> str:
    (name,) = library.stores()
    return name


@pytest.fixture(scope="package")
def whole_page(runs: Path) -> str:
    """Return a page about epoch 4, with all that it may hold."""
    return page(api.open(runs / "skewed.pag"), [4], ["k-hops"])
