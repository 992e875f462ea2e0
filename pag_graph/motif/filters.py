"""What must hold of a match: a subset of SQL, with the same meaning on every engine.

::

    e.duration_ns > ms(1) and a.worker != b.worker
    w.type in ('waiting', 'idle') and not m.records is null
    m.start_ns between w.start_ns and w.start_ns + us(50)

- Columns are written ``element.column``; text stands in single quotes, a quote inside is doubled.
- ``ns(n)``, ``us(n)``, ``ms(n)`` and ``s(n)`` are times in nanoseconds; ``abs(x)`` is the absolute value.
- ``$name`` is a parameter, whose value is given apart; it never becomes text.
- ``+ - * %`` of whole numbers are whole numbers, ``/`` is not. What leaves 64 bits, and a division by zero, is null.
- A comparison with null is neither true nor false; only rows for which the whole filter is true are kept.

A filter becomes a tree that is typed against the columns, and each engine translates the tree: no text reaches any of
them.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import polars as pl
import pyarrow as pa

from pag_graph.errors import MotifSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Value = int | float | str | bool
"""What a literal or a parameter can be."""

_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_LARGEST = 2**63 - 1
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_0-9]+)"
    r"|(?P<parameter>\$[A-Za-z_]\w*)|(?P<symbol><>|!=|<=|>=|==|[=<>+\-*/%(),.]))"
)
_WORDS = {"and", "or", "not", "in", "between", "is", "null", "true", "false"}
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is null."""

    value: Value | None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an element of the motif."""

    element: str
    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """``not x``, ``-x`` or ``abs x``."""

    operator: str
    operand: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """Comparison, arithmetic, ``and``, ``or``; inside the package also ``>>``."""

    operator: str
    left: Node
    right: Node
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class In:
    """``x in (...)``."""

    operand: Node
    values: tuple[Literal, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """``x is null``."""

    operand: Node
    at: int = field(default=0, compare=False)


Node = Literal | Column | Unary | Binary | In | IsNull


def parse_filter(text: str, parameters: Mapping[str, Value] | None = None) -> Node:
    """Read a filter.

    Parameters
    ----------
    text
        In the language that this module's docstring gives.
    parameters
        A value for every ``$name``.

    Returns
    -------
    Node
        Not typed yet; see `check`.

    Raises
    ------
    MotifSyntaxError
        If it is not of the language, or a parameter has no value. Points at the character.

    Examples
    --------
    >>> parse_filter("e.duration_ns > us(2)")
    Binary(operator='>', left=Column(element='e', name='duration_ns', at=0), right=Literal(value=2000, at=16), at=14)
    """
    return _Parser(text, parameters or {}).whole()


def parameters_of(text: str) -> set[str]:
    """Return the names of the parameters that a filter uses.

    Examples
    --------
    >>> sorted(parameters_of("e.duration_ns > $least_ns and e.type != '$none'"))
    ['least_ns']
    """
    return {match["parameter"][1:] for match in _TOKEN.finditer(text) if match["parameter"]}


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent, one method per level of precedence."""

    def __init__(self, text: str, parameters: Mapping[str, Value]) -> None:
        self.text = text
        self.parameters = parameters
        self.tokens = list(self._tokens())
        self.next = 0

    def _tokens(self) -> Iterator[_Token]:
        at = 0
        while match := _TOKEN.match(self.text, at):
            kind = str(match.lastgroup)
            word = match[kind]
            if kind == "name" and word.lower() in _WORDS:
                kind, word = "word", word.lower()
            yield _Token(kind, word, match.start(str(match.lastgroup)))
            at = match.end()
        rest = len(self.text) - len(self.text[at:].lstrip())
        if rest < len(self.text):
            found = self.text[rest]
            problem = "This text has no end." if found == "'" else f"{found!r} has no meaning in a filter."
            hint = "Text stands in single quotes: 'waiting'." if found == '"' else None
            self.fail(problem, rest, hint)
        yield _Token("end", "", len(self.text.rstrip()))

    def whole(self) -> Node:
        node = self.disjunction()
        if self.now.kind != "end":
            self.fail("The filter should end here, or go on with and, or, or an operator.")
        return node

    def disjunction(self) -> Node:
        node = self.conjunction()
        while self.now[:2] == ("word", "or"):
            at = self.advance().at
            node = Binary("or", node, self.conjunction(), at)
        return node

    def conjunction(self) -> Node:
        node = self.negation()
        while self.now[:2] == ("word", "and"):
            at = self.advance().at
            node = Binary("and", node, self.negation(), at)
        return node

    def negation(self) -> Node:
        if self.now[:2] == ("word", "not"):
            at = self.advance().at
            return Unary("not", self.negation(), at)
        return self.comparison()

    def comparison(self) -> Node:
        left = self.sum()
        token = self.now
        if token.kind == "symbol" and token.text in _COMPARISONS:
            self.advance()
            node = Binary(_COMPARISONS[token.text], left, self.sum(), token.at)
            if self.now.kind == "symbol" and self.now.text in _COMPARISONS:
                self.fail("Comparisons cannot be chained.", hint="Write x > 1 and x < 5, or x between 1 and 5.")
            return node
        if token[:2] == ("word", "is"):
            self.advance()
            negated = self.skip("not")
            self.take("word", "null", "After 'is' comes null or not null.")
            test = IsNull(left, token.at)
            return Unary("not", test, token.at) if negated else test
        negated = token[:2] == ("word", "not")
        if negated:
            self.advance()
        if self.now[:2] == ("word", "in"):
            found: Node = self.membership(left)
        elif self.now[:2] == ("word", "between"):
            at = self.advance().at
            low = self.sum()
            self.take("word", "and", "between has two bounds: x between 1 and 5.")
            found = Binary("and", Binary(">=", left, low, at), Binary("<=", left, self.sum(), at), at)
        elif negated:
            self.fail("After a value, 'not' is followed by in or between.")
        else:
            return left
        return Unary("not", found, token.at) if negated else found

    def membership(self, left: Node) -> Node:
        at = self.advance().at
        self.take("symbol", "(", "After 'in' comes a list in parentheses: in ('waiting', 'idle').")
        values: list[Literal] = []
        while True:
            item = self.now
            value = self.sum()
            if not isinstance(value, Literal) or value.value is None:
                self.fail("A list holds constants only, and no null.", item.at)
            values.append(value)
            if not (self.now.kind == "symbol" and self.now.text == ","):
                break
            self.advance()
        self.take("symbol", ")", "A list ends with ')'.")
        return In(left, tuple(values), at)

    def sum(self) -> Node:
        node = self.product()
        while self.now.kind == "symbol" and self.now.text in {"+", "-"}:
            token = self.advance()
            node = Binary(token.text, node, self.product(), token.at)
        return node

    def product(self) -> Node:
        node = self.factor()
        while self.now.kind == "symbol" and self.now.text in {"*", "/", "%"}:
            token = self.advance()
            node = Binary(token.text, node, self.factor(), token.at)
        return node

    def factor(self) -> Node:
        token = self.now
        if token.kind == "symbol" and token.text == "-":
            self.advance()
            operand = self.factor()
            if isinstance(operand, Literal) and _kind_of_value(operand.value) == "number":
                assert isinstance(operand.value, int | float)  # noqa: S101  (what a number is)
                return Literal(-operand.value, token.at)
            return Unary("-", operand, token.at)
        return self.atom()

    def atom(self) -> Node:
        token = self.advance()
        if token.kind == "number":
            return Literal(self.number(token), token.at)
        if token.kind == "text":
            return Literal(token.text[1:-1].replace("''", "'"), token.at)
        if token.kind == "parameter":
            return Literal(self.parameter(token), token.at)
        if token.kind == "word" and token.text in {"true", "false", "null"}:
            return Literal({"true": True, "false": False, "null": None}[token.text], token.at)
        if token[:2] == ("symbol", "("):
            node = self.disjunction()
            self.take("symbol", ")", "A parenthesis is not closed.")
            return node
        if token.kind == "name":
            if self.now[:2] == ("symbol", "("):
                return self.call(token)
            if self.now[:2] == ("symbol", "."):
                self.advance()
                name = self.advance()
                if name.kind not in {"name", "word"}:
                    self.fail("After the dot comes the name of a column.", name.at)
                return Column(token.text, name.text, token.at)
            self.fail(
                f"{token.text!r} alone is no value.",
                token.at,
                f"Name a column of it, such as {token.text}.duration_ns.",
            )
        missing = token.kind == "end"
        return self.fail(
            "The filter ends too early: a value is missing." if missing else "A value is expected here.", token.at
        )

    def call(self, token: _Token) -> Node:
        self.advance()
        argument = self.sum()
        self.take("symbol", ")", f"{token.text} takes one value, and ends with ')'.")
        name = token.text.lower()
        if name == "abs":
            return Unary("abs", argument, token.at)
        if name not in _UNITS:
            known = ", ".join([*_UNITS, "abs"])
            self.fail(f"There is no function {token.text!r}.", token.at, f"There are {known}.")
        amount = argument.value if isinstance(argument, Literal) else None
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            self.fail(f"{name} takes a constant number, such as {name}(1).", token.at)
        time = amount * _UNITS[name]
        if time != int(time):
            self.fail(f"{name}({amount}) is no whole number of nanoseconds.", token.at)
        return Literal(self.bounded(int(time), token.at), token.at)

    def number(self, token: _Token) -> int | float:
        if token.text.isdigit():
            # Digits that Python itself would refuse to read are too many as well.
            return self.bounded(int(token.text) if len(token.text) <= 19 else _LARGEST + 1, token.at)  # noqa: PLR2004
        value = float(token.text)
        if value == float("inf"):
            self.fail("The number is too large.", token.at)
        return value

    def bounded(self, value: int, at: int) -> int:
        if abs(value) > _LARGEST:
            self.fail("The number does not fit in 64 bits.", at)
        return value

    def parameter(self, token: _Token) -> Value:
        name = token.text[1:]
        if name not in self.parameters:
            given = ", ".join(f"${each}" for each in self.parameters) or "none"
            self.fail(f"The parameter {token.text} has no value.", token.at, f"Given: {given}.")
        value = self.parameters[name]
        if isinstance(value, int) and not isinstance(value, bool):
            self.bounded(value, token.at)
        return value

    @property
    def now(self) -> _Token:
        return self.tokens[self.next]

    def advance(self) -> _Token:
        token = self.now
        self.next = min(self.next + 1, len(self.tokens) - 1)
        return token

    def skip(self, word: str) -> bool:
        there = self.now[:2] == ("word", word)
        if there:
            self.advance()
        return there

    def take(self, kind: str, text: str, problem: str, hint: str | None = None) -> None:
        if self.now[:2] != (kind, text):
            self.fail(problem, hint=hint)
        self.advance()

    def fail(self, problem: str, at: int | None = None, hint: str | None = None) -> NoReturn:
        raise MotifSyntaxError.from_position(self.text, self.now.at if at is None else at, problem, hint)


def check(node: Node, text: str, columns: Mapping[str, Mapping[str, pa.DataType]]) -> None:
    """Check that a filter fits the columns that there are, and is a condition.

    Parameters
    ----------
    node, text
        The filter, and the text that it was read from.
    columns
        Type of every column, by element and name.

    Raises
    ------
    MotifSyntaxError
        If an element or a column does not exist, or types do not fit together. Points at the character.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    kind = _kind(node, text, columns)
    if kind not in {"condition", "null"}:
        problem = f"A filter is a condition, and this is {_NAMES[kind]}."
        raise MotifSyntaxError.from_position(text, node.at, problem, "Compare it with something.")


_NAMES = {"number": "a number", "text": "text", "condition": "a condition", "null": "null"}


def _kind(node: Node, text: str, columns: Mapping[str, Mapping[str, pa.DataType]]) -> str:
    """Return what a part of a filter is: number, text, condition, or null.

    Raises
    ------
    MotifSyntaxError
        If it is nothing.
    """

    def fail(problem: str, at: int, hint: str | None = None) -> NoReturn:
        raise MotifSyntaxError.from_position(text, at, problem, hint)

    def demand(part: Node, wanted: str, what: str) -> None:
        found = _kind(part, text, columns)
        if found not in {wanted, "null"}:
            fail(f"{what} needs {_NAMES[wanted]}, and this is {_NAMES[found]}.", part.at)

    match node:
        case Literal(value):
            return _kind_of_value(value)
        case Column(element, name):
            if element not in columns:
                near = difflib.get_close_matches(element, columns, 1)
                fail(
                    f"The motif has no element {element!r}; it has {', '.join(columns)}.",
                    node.at,
                    f"Did you mean {near[0]}.{name}?" if near else None,
                )
            if name not in columns[element]:
                near = difflib.get_close_matches(name, columns[element], 1)
                hint = f"Did you mean {element}.{near[0]}? " if near else ""
                fail(f"{element!r} has no column {name!r}.", node.at, f"{hint}It has {', '.join(columns[element])}.")
            return _kind_of_type(columns[element][name])
        case Unary("not", operand):
            demand(operand, "condition", "not")
            return "condition"
        case Unary(operator, operand):
            demand(operand, "number", operator)
            return "number"
        case Binary("and" | "or" as operator, left, right):
            demand(left, "condition", operator)
            demand(right, "condition", operator)
            return "condition"
        case Binary(operator, left, right) if operator in set(_COMPARISONS.values()):
            kinds = {_kind(left, text, columns), _kind(right, text, columns)}
            if "null" in kinds:
                fail("A comparison with null is never true.", node.at, "Write x is null, or x is not null.")
            if len(kinds) > 1:
                first, second = (_NAMES[_kind(part, text, columns)] for part in (left, right))
                fail(f"{first.capitalize()} cannot be compared with {second}.", node.at)
            if kinds == {"condition"} and operator not in {"=", "!="}:
                fail("Conditions have no order.", node.at)
            return "condition"
        case Binary(operator, left, right):
            demand(left, "number", operator)
            demand(right, "number", operator)
            return "number"
        case In(operand, values):
            found = _kind(operand, text, columns)
            for item in values:
                if found not in {"null", _kind_of_value(item.value)}:
                    fail(f"The list is for {_NAMES[found]}, and this is no such thing.", item.at)
            return "condition"
        case IsNull(operand):
            _kind(operand, text, columns)
            return "condition"


def _kind_of_value(value: Value | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "condition"
    return "text" if isinstance(value, str) else "number"


def _kind_of_type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "condition"
    return "number" if pa.types.is_integer(kind) or pa.types.is_floating(kind) else "text"


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the parts of a filter that must all hold."""
    if isinstance(node, Binary) and node.operator == "and":
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def columns_of(node: Node) -> Iterator[Column]:
    """Yield the columns that a filter speaks of, in order."""
    match node:
        case Column():
            yield node
        case Unary(_, operand) | In(operand) | IsNull(operand):
            yield from columns_of(operand)
        case Binary(_, left, right):
            yield from columns_of(left)
            yield from columns_of(right)


def replace_columns(node: Node, replace: Callable[[Column], Node]) -> Node:
    """Return a filter with every column replaced."""
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
    """Return a filter as text, for people."""
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
            return text if operator in set(_COMPARISONS.values()) else f"({text})"
        case In(operand, values):
            return f"{written(operand)} in ({', '.join(written(value) for value in values)})"
        case IsNull(operand):
            return f"{written(operand)} is null"


def whole_numbers(node: Node, is_whole: Callable[[Column], bool]) -> bool:
    """Tell whether a number is computed without fractions, so that it has to stay exact."""
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
                return _minus(pl.lit(0, pl.Int64), translate(operand), whole=whole_numbers(operand, is_whole))
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
                whole = whole_numbers(left, is_whole) and whole_numbers(right, is_whole)
                return _ARITHMETIC[operator](translate(left), translate(right), whole=whole)
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


def _wide(left: pl.Expr, right: pl.Expr, compute: Callable[[pl.Expr, pl.Expr], pl.Expr], *, whole: bool) -> pl.Expr:
    """Compute where nothing overflows; what does not fit back in 64 bits is null."""
    if not whole:
        return compute(left.cast(pl.Float64), right.cast(pl.Float64))
    return compute(left.cast(pl.Int128), right.cast(pl.Int128)).cast(pl.Int64, strict=False)


def _plus(left: pl.Expr, right: pl.Expr, *, whole: bool) -> pl.Expr:
    return _wide(left, right, lambda x, y: x + y, whole=whole)


def _minus(left: pl.Expr, right: pl.Expr, *, whole: bool) -> pl.Expr:
    return _wide(left, right, lambda x, y: x - y, whole=whole)


def _times(left: pl.Expr, right: pl.Expr, *, whole: bool) -> pl.Expr:
    return _wide(left, right, lambda x, y: x * y, whole=whole)


def _over(left: pl.Expr, right: pl.Expr, *, whole: bool) -> pl.Expr:
    del whole
    divisor = right.cast(pl.Float64)
    return pl.when(divisor != 0).then(left.cast(pl.Float64) / divisor)


def _modulo(left: pl.Expr, right: pl.Expr, *, whole: bool) -> pl.Expr:
    """Remainder with the sign of the dividend, as in SQL; Polars' own has that of the divisor."""
    kind = pl.Int64 if whole else pl.Float64
    dividend, divisor = left.cast(kind), right.cast(kind)
    rest = dividend % divisor
    other_sign = (rest != 0) & ((dividend < 0) != (divisor < 0))
    return pl.when(divisor != 0).then(pl.when(other_sign).then(rest - divisor).otherwise(rest))


_ARITHMETIC: dict[str, Callable[..., pl.Expr]] = {"+": _plus, "-": _minus, "*": _times, "/": _over, "%": _modulo}
