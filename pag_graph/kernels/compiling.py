"""How kernels are compiled: once per installation, what is called, and with somebody told.

numba compiles a kernel when it is first called with arguments of some types, and keeps the result: beside the module
or, where that folder is read-only, in the user's cache folder; ``NUMBA_CACHE_DIR`` names another one. What a command is
expected to call is compiled in several processes (`pag_graph.kernels.expected`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.types import Array, BaseNamedTuple, BaseTuple, Boolean, Type

from pag_graph.kernels.expected import missing, variants

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Function = TypeVar("Function", bound=Callable[..., Any])

_HERE = __name__.rpartition(".")[0]


class _Cache(FunctionCache):
    """Compiled variants of one kernel; what is missing may be expected."""

    def __init__(self, function: Callable[..., Any]) -> None:
        make: Any = super().__init__
        make(function)
        self._kernel = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        load: Any = super().load_overload
        overload = load(sig, target_context)
        if overload is None and missing(self._kernel, spelled(sig)):
            overload = load(sig, target_context)
        return overload


def kernel(function: Function) -> Function:
    """Compile a function when it is first called with arguments of some types.

    Parameters
    ----------
    function
        Written in what numba understands; its module lies in this room.

    Returns
    -------
    Callable
        The compiled function. It releases the interpreter's lock; each variant of it is compiled once per installation
        and cached, where a folder can be written to.
    """
    # Kernels are not called from C: without an entry for that they compile faster.
    options: Any = {"nogil": True, "no_cfunc_wrapper": True}
    compiled: Any = numba.njit(**options)(function)
    # Where no folder can be written to, every process compiles for itself.
    with suppress(RuntimeError):
        # As `cache=True` does, but with the cache of this package.
        compiled._cache = _Cache(function)  # noqa: SLF001
    return cast("Function", compiled)


def read_only(*columns: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return views that cannot be written to, of columns that may be such already.

    A column is read-only if it is Polars' own memory, and not if somebody computed it, or if it came in several pieces;
    numba compiles a kernel once more for every such combination of its arguments.

    Parameters
    ----------
    *columns
        Arrays of any shape and type; none is copied.

    Returns
    -------
    tuple of arrays
        A view each, in the same order.
    """
    views = [column.view() for column in columns]
    for view in views:
        view.flags.writeable = False
    return tuple(views)


def spelled(types: tuple[Type, ...]) -> str:
    """Write types of arguments as words.

    ``int64`` is a number, ``int64[,]`` a table, ``int64[]!`` is read-only, and ``path.Sends(int64[];int64[])`` has
    columns of a named tuple in the module `pag_graph.kernels.path`.

    Parameters
    ----------
    types
        Types of a kernel's arguments, as numba gives them.

    Returns
    -------
    str
        A word per argument, with spaces between: the notation of ``expected.txt``.
    """
    return " ".join(_word(type_) for type_ in types)


def _word(type_: Any) -> str:
    if isinstance(type_, BaseNamedTuple):
        tuple_type: Any = type_
        tuple_class = tuple_type.instance_class
        columns = ";".join(map(_word, tuple_type.types))
        return f"{tuple_class.__module__.rpartition('.')[2]}.{tuple_class.__name__}({columns})"
    if not isinstance(type_, Array):
        return str(type_)
    # A layout other than C is named, so that it does not match the expected types.
    layout = "" if type_.layout == "C" else type_.layout
    return f"{type_.dtype}[{',' * (type_.ndim - 1)}]{layout}{'' if type_.mutable else '!'}"


def _type(word: str) -> Any:
    tuple_name, parenthesis, fields = word.removesuffix(")").partition("(")
    if parenthesis:
        module, _, name = tuple_name.partition(".")
        type_object = getattr(import_module(f"{_HERE}.{module}"), name)
        make: Any = BaseTuple.from_types
        return make(tuple(map(_type, fields.split(";"))), type_object)
    name, bracket, dimensions = word.partition("[")
    scalar = Boolean("bool") if name == "bool" else numba.from_dtype(np.dtype(name))
    if not bracket:
        return scalar
    return Array(scalar, dimensions.count(",") + 1, "C", readonly=dimensions.endswith("!"))


def serve(lines: str) -> None:
    """Compile variants of kernels for another process: those whose places it gives on standard input, a byte each.

    Parameters
    ----------
    lines
        A kernel and the types of its arguments each. For every one that is ready a byte goes to standard output.
    """
    variants = lines.splitlines()
    while place := os.read(0, 1):
        name, _, types = variants[place[0]].partition(" ")
        _make_ready(name, types)
        os.write(1, b".")


def prepare(*parts: str) -> None:
    """Load or compile what some parts call before the first call: who follows a program has no time for that later.

    Parameters
    ----------
    *parts
        As for `pag_graph.kernels.expected.expecting`; in its block they are compiled together.
    """
    for name, types in variants(frozenset(parts)):
        _make_ready(name, types)


def _make_ready(name: str, types: str) -> None:
    """Load a variant of a kernel, ``module.function``, or compile it."""
    module, _, function = name.partition(".")
    getattr(import_module(f"{_HERE}.{module}"), function).compile(tuple(map(_type, types.split())))
