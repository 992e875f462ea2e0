"""Operators of a Kineto trace: names, in classes that addresses begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pag_graph.model.tables import TRACE_OPERATORS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Operators"]

PYTHON, OP, CALL, KERNEL, COPY, COLLECTIVE, LOADING = range(1, 8)
"""Classes; the first number of an address."""
CLASS_NAMES: Final = {
    PYTHON: "Python",
    OP: "operator",
    CALL: "runtime call",
    KERNEL: "kernel",
    COPY: "copy",
    COLLECTIVE: "collective",
    LOADING: "data loading",
}
_LONGEST_NAME: Final = 500


class Operators:
    """Numbers of operators, by class and name."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}

    def of(self, kind: int, name: str) -> int:
        """Return the number of an operator, a new one for a new name.

        Parameters
        ----------
        kind
            Its class: `PYTHON`, `KERNEL` and so on.
        name
            Its name; of more than 500 characters only the begin is kept, and how many there were.
        """
        # Templates of kernels have names of kilobytes: what is left out comes back as a number of its own.
        short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 20]}... ({len(name):,} characters)"
        return self._numbers.setdefault((kind, short), len(self._numbers))

    def rows(self) -> list[dict[str, Any]]:
        """Return rows of `TRACE_OPERATORS`."""
        counts: dict[int, int] = {}
        rows = []
        for (kind, name), number in self._numbers.items():
            counts[kind] = counts.get(kind, 0) + 1
            rows.append({"operator": number, "address": f"{kind}.{counts[kind]}", "name": name or "(no name)"})
        return rows

    def table(self) -> pa.Table:
        """Return the table of operators."""
        return pa.Table.from_pylist(self.rows(), TRACE_OPERATORS)


def class_of(address: str) -> int:
    """Return the class of an operator: the first number of its address."""
    return int(address.partition(".")[0])


def names_of(rows: Sequence[dict[str, Any]]) -> dict[int, tuple[int, str]]:
    """Return class and name of each operator by its number; `rows` are those of a trace's table of operators."""
    return {row["operator"]: (class_of(row["address"]), row["name"]) for row in rows}
