"""What every kernel has: few arguments, and an example that runs."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest
from numba.core.dispatcher import Dispatcher

from pag_graph import kernels

if TYPE_CHECKING:
    from types import ModuleType

MODULES = [import_module(f"{kernels.__name__}.{module.name}") for module in iter_modules(kernels.__path__)]


def kernels_in(module: ModuleType) -> dict[str, Any]:
    own = {name: value for name, value in vars(module).items() if isinstance(value, Dispatcher)}
    return {name: value for name, value in own.items() if value.__module__ == module.__name__}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_examples_of_kernels_run(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_kernel_has_five_arguments_at_most_and_an_example(module: ModuleType) -> None:
    for name, value in kernels_in(module).items():
        assert len(inspect.signature(value.py_func).parameters) <= 5, name
        assert name.startswith("_") or ">>>" in value.__doc__, name
