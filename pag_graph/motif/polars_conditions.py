"""Conditions as expressions of Polars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from pag_graph.motif.conditions import Binary, Column, In, IsNull, Literal, Node, Unary, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.motif.plan import Scan


def to_polars(node: Node, column: Callable[[Column], pl.Expr], is_whole: Callable[[Column], bool]) -> pl.Expr:
    """Translate a filter for Polars.

    Parameters
    ----------
    node
        A filter that passed `check`.
    column
        Gives the expression of a column.
    is_whole
        Tells which columns hold integers.

    Returns
    -------
    pl.Expr
        Same values as `pag_graph.engines.motif.to_spark` gives, null for null.
    """

    def translate(part: Node) -> pl.Expr:
        match part:
            case Literal(value):
                return pl.lit(value, pl.Int64 if isinstance(value, int) and not isinstance(value, bool) else None)
            case Column():
                return column(part)
            case Unary("not", operand):
                return ~_condition(translate(operand), operand)
            case Unary("-", operand):
                return _minus(pl.lit(0, pl.Int64), translate(operand), integral=whole_numbers(operand, is_whole))
            case Unary(_, operand):
                number = translate(operand)
                if not whole_numbers(operand, is_whole):
                    return number.cast(pl.Float64).abs()
                return number.cast(pl.Int128).abs().cast(pl.Int64, strict=False)
            case Binary("and", left, right):
                return _condition(translate(left), left) & _condition(translate(right), right)
            case Binary("or", left, right):
                return _condition(translate(left), left) | _condition(translate(right), right)
            case Binary(">>", left, Literal(int() as bits)):
                return translate(left) // (1 << bits)
            case Binary(operator, left, right) if operator in _COMPARE:
                return _COMPARE[operator](translate(left), translate(right))
            case Binary(operator, left, right):
                integral = whole_numbers(left, is_whole) and whole_numbers(right, is_whole)
                return _ARITHMETIC[operator](translate(left), translate(right), integral=integral)
            case In(operand, values):
                # One comparison after the other: their types are then those of any other comparison.
                return pl.any_horizontal(translate(operand) == translate(value) for value in values)
            case IsNull(operand):
                return translate(operand).is_null()

    return translate(node)


def _condition(value: pl.Expr, node: Node) -> pl.Expr:
    return value.cast(pl.Boolean) if isinstance(node, Literal) and node.value is None else value


_COMPARE: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _wide(left: pl.Expr, right: pl.Expr, compute: Callable[[pl.Expr, pl.Expr], pl.Expr], *, integral: bool) -> pl.Expr:
    """Compute where nothing overflows; what does not fit back in 64 bits is null."""
    if not integral:
        return compute(left.cast(pl.Float64), right.cast(pl.Float64))
    return compute(left.cast(pl.Int128), right.cast(pl.Int128)).cast(pl.Int64, strict=False)


def _plus(left: pl.Expr, right: pl.Expr, *, integral: bool) -> pl.Expr:
    return _wide(left, right, lambda x, y: x + y, integral=integral)


def _minus(left: pl.Expr, right: pl.Expr, *, integral: bool) -> pl.Expr:
    return _wide(left, right, lambda x, y: x - y, integral=integral)


def _times(left: pl.Expr, right: pl.Expr, *, integral: bool) -> pl.Expr:
    return _wide(left, right, lambda x, y: x * y, integral=integral)


def _divided(left: pl.Expr, right: pl.Expr, *, integral: bool) -> pl.Expr:
    del integral
    divisor = right.cast(pl.Float64)
    return pl.when(divisor != 0).then(left.cast(pl.Float64) / divisor)


def _modulo(left: pl.Expr, right: pl.Expr, *, integral: bool) -> pl.Expr:
    """Remainder with the sign of the dividend, as in SQL; Polars' own has that of the divisor."""
    kind = pl.Int64 if integral else pl.Float64
    dividend, divisor = left.cast(kind), right.cast(kind)
    remainder = dividend % divisor
    other_sign = (remainder != 0) & ((dividend < 0) != (divisor < 0))
    return pl.when(divisor != 0).then(pl.when(other_sign).then(remainder - divisor).otherwise(remainder))


_ARITHMETIC: dict[str, Callable[..., pl.Expr]] = {"+": _plus, "-": _minus, "*": _times, "/": _divided, "%": _modulo}


def of_row(node: Node, schema: pa.Schema) -> pl.Expr:
    """Translate a condition in terms of a row's own columns.

    Parameters
    ----------
    node
        A condition; names of elements do not count.
    schema
        Columns of the rows.

    Returns
    -------
    Expr
        Null where the condition is.
    """
    return to_polars(
        node,
        lambda column: pl.col(column.name),
        lambda column: bool(pa.types.is_integer(schema.field(column.name).type)),
    )


def all_of(scan: Scan, schema: pa.Schema) -> pl.Expr:
    """Return all conditions of a scan as one.

    Parameters
    ----------
    scan
        With one condition at least.
    schema
        Columns of the rows.

    Returns
    -------
    Expr
        True of rows for which all of them hold.
    """
    return pl.all_horizontal(of_row(node, schema) for node in scan.where)
