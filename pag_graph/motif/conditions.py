"""Conditions on a match as trees: what filters are read into, and what every engine translates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Value = int | float | str | bool
"""What a literal or a parameter can be."""
COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is null."""

    value: Value | None
    """The constant."""
    position: int = field(default=0, compare=False)
    """Where it begins in the text, from 0; so does every node."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an element of the motif."""

    element: str
    """Name of the edge or vertex; empty where a row's own columns are meant."""
    name: str
    """Name of the column."""
    position: int = field(default=0, compare=False)
    """Where it begins in the text."""


@dataclass(frozen=True, slots=True)
class Unary:
    """``not x``, ``-x`` or ``abs x``."""

    operator: str
    """``not``, ``-`` or ``abs``."""
    operand: Node
    """What it is applied to."""
    position: int = field(default=0, compare=False)
    """Where the operator stands in the text."""


@dataclass(frozen=True, slots=True)
class Binary:
    """Comparison, arithmetic, ``and``, ``or``; inside the package also ``>>``."""

    operator: str
    """As it is written in `COMPARISONS`, or in SQL."""
    left: Node
    """Its left side."""
    right: Node
    """Its right side."""
    position: int = field(default=0, compare=False)
    """Where the operator stands in the text."""


@dataclass(frozen=True, slots=True)
class In:
    """``x in (...)``."""

    operand: Node
    """What is looked for."""
    values: tuple[Literal, ...]
    """Constants, none of them null."""
    position: int = field(default=0, compare=False)
    """Where the operator stands in the text."""


@dataclass(frozen=True, slots=True)
class IsNull:
    """``x is null``."""

    operand: Node
    """What is asked about."""
    position: int = field(default=0, compare=False)
    """Where the operator stands in the text."""


Node = Literal | Column | Unary | Binary | In | IsNull


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the parts of a filter that must all hold.

    Parameters
    ----------
    node
        A filter.

    Yields
    ------
    Node
        From left to right; none of them is an ``and``.
    """
    if isinstance(node, Binary) and node.operator == "and":
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def columns_of(node: Node) -> Iterator[Column]:
    """Yield the columns that a filter speaks of, in order.

    Parameters
    ----------
    node
        A filter, or a part of one.

    Yields
    ------
    Column
        From left to right; one that is named twice comes twice.
    """
    match node:
        case Column():
            yield node
        case Unary(_, operand) | In(operand) | IsNull(operand):
            yield from columns_of(operand)
        case Binary(_, left, right):
            yield from columns_of(left)
            yield from columns_of(right)


def replace_columns(node: Node, replace: Callable[[Column], Node]) -> Node:
    """Return a filter with every column replaced.

    Parameters
    ----------
    node
        A filter, or a part of one.
    replace
        What stands in the place of a column.

    Returns
    -------
    Node
        A new tree.
    """
    match node:
        case Column():
            return replace(node)
        case Unary(operator, operand, at):
            return Unary(operator, replace_columns(operand, replace), at)
        case Binary(operator, left, right, at):
            return Binary(operator, replace_columns(left, replace), replace_columns(right, replace), at)
        case In(operand, values, at):
            return In(replace_columns(operand, replace), values, at)
        case IsNull(operand, at):
            return IsNull(replace_columns(operand, replace), at)
        case _:
            return node


def written(node: Node) -> str:
    """Return a filter as text, for people.

    Parameters
    ----------
    node
        A filter, or a part of one.

    Returns
    -------
    str
        It means the same, but need not be spelled as it was.
    """
    match node:
        case Literal(None):
            return "null"
        case Literal(bool() as value):
            return str(value).lower()
        case Literal(str() as value):
            return "'" + value.replace("'", "''") + "'"
        case Literal(value):
            return str(value)
        case Column(element, name):
            return f"{element}.{name}" if element else name
        case Unary("not", IsNull(operand)):
            return f"{written(operand)} is not null"
        case Unary(operator, operand):
            return f"{operator}({written(operand)})"
        case Binary(operator, left, right):
            text = f"{written(left)} {operator} {written(right)}"
            return text if operator in set(COMPARISONS.values()) else f"({text})"
        case In(operand, values):
            return f"{written(operand)} in ({', '.join(written(value) for value in values)})"
        case IsNull(operand):
            return f"{written(operand)} is null"


def whole_numbers(node: Node, is_whole: Callable[[Column], bool]) -> bool:
    """Tell whether a number is computed without fractions, so that it has to stay exact.

    Parameters
    ----------
    node
        A part of a filter that is a number.
    is_whole
        Tells which columns hold integers.

    Returns
    -------
    bool
        False of what `/` gives.
    """
    match node:
        case Literal(value):
            return isinstance(value, int)
        case Column():
            return is_whole(node)
        case Unary(_, operand):
            return whole_numbers(operand, is_whole)
        case Binary("/", _, _):
            return False
        case Binary(_, left, right):
            return whole_numbers(left, is_whole) and whole_numbers(right, is_whole)
        case _:
            return False
