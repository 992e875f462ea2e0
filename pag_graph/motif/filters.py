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
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import pyarrow as pa

from pag_graph.errors import MotifSyntaxError
from pag_graph.motif.conditions import COMPARISONS, Binary, Column, In, IsNull, Literal, Node, Unary, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_LARGEST = 2**63 - 1
_DEEPEST = 60
"""Parentheses, functions, `not` and minus that may lie inside each other: reading them takes Python's stack."""
_LONGEST = 400
"""Operators that a tree may have from its root to a leaf; all that translate it go down level by level."""
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_0-9]+)"
    r"|(?P<parameter>\$[A-Za-z_]\w*)|(?P<symbol><>|!=|<=|>=|==|[=<>+\-*/%(),.]))"
)
_WORDS = {"and", "or", "not", "in", "between", "is", "null", "true", "false"}


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
    >>> parse_filter("e.t > us(2)").right
    Literal(value=2000, position=6)
    """
    return _Parser(text, parameters or {}).whole()


def parameters_of(text: str) -> set[str]:
    """Return the names of the parameters that a filter uses.

    Parameters
    ----------
    text
        A filter; it need not be correct.

    Returns
    -------
    set of str
        Without the ``$``.

    Examples
    --------
    >>> sorted(parameters_of("e.duration_ns > $least_ns and e.type != '$none'"))
    ['least_ns']
    """
    return {match["parameter"][1:] for match in _TOKEN.finditer(text) if match["parameter"]}


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class _Parser:
    """Recursive descent, one method per level of precedence."""

    def __init__(self, text: str, parameters: Mapping[str, Value]) -> None:
        self.text = text
        self.parameters = parameters
        self.tokens = list(self._tokens())
        self.next = 0
        self.depth = 0

    def _tokens(self) -> Iterator[_Token]:
        position = 0
        while match := _TOKEN.match(self.text, position):
            kind = str(match.lastgroup)
            word = match[kind]
            if kind == "name" and word.lower() in _WORDS:
                kind, word = "word", word.lower()
            yield _Token(kind, word, match.start(str(match.lastgroup)))
            position = match.end()
        unread = len(self.text) - len(self.text[position:].lstrip())
        if unread < len(self.text):
            character = self.text[unread]
            problem = "This text has no end." if character == "'" else f"{character!r} has no meaning in a filter."
            hint = "Text stands in single quotes: 'waiting'." if character == '"' else None
            self.fail(problem, unread, hint)
        yield _Token("end", "", len(self.text.rstrip()))

    def whole(self) -> Node:
        node = self.disjunction()
        if self.now.kind != "end":
            self.fail("The filter should end here, or go on with and, or, or an operator.")
        if (levels := _levels(node)) > _LONGEST:
            problem = f"At most {_LONGEST} operators may follow each other, and here {levels} do."
            self.fail(problem, node.position, "For one of many values: x in (1, 2, 3).")
        return node

    def inside(self, read: Callable[[], Node]) -> Node:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail(f"More than {_DEEPEST} parts lie inside each other.")
        node = read()
        self.depth -= 1
        return node

    def disjunction(self) -> Node:
        node = self.conjunction()
        while self.now[:2] == ("word", "or"):
            position = self.advance().position
            node = Binary("or", node, self.conjunction(), position)
        return node

    def conjunction(self) -> Node:
        node = self.negation()
        while self.now[:2] == ("word", "and"):
            position = self.advance().position
            node = Binary("and", node, self.negation(), position)
        return node

    def negation(self) -> Node:
        if self.now[:2] == ("word", "not"):
            position = self.advance().position
            return Unary("not", self.inside(self.negation), position)
        return self.comparison()

    def comparison(self) -> Node:
        left = self.sum()
        token = self.now
        if token.kind == "symbol" and token.text in COMPARISONS:
            self.advance()
            node = Binary(COMPARISONS[token.text], left, self.sum(), token.position)
            if self.now.kind == "symbol" and self.now.text in COMPARISONS:
                self.fail("Comparisons cannot be chained.", hint="Write x > 1 and x < 5, or x between 1 and 5.")
            return node
        if token[:2] == ("word", "is"):
            self.advance()
            negated = self.skip("not")
            self.take("word", "null", "After 'is' comes null or not null.")
            test = IsNull(left, token.position)
            return Unary("not", test, token.position) if negated else test
        negated = token[:2] == ("word", "not")
        if negated:
            self.advance()
        if self.now[:2] == ("word", "in"):
            node_found: Node = self.membership(left)
        elif self.now[:2] == ("word", "between"):
            position = self.advance().position
            low = self.sum()
            self.take("word", "and", "between has two bounds: x between 1 and 5.")
            bounds = Binary(">=", left, low, position), Binary("<=", left, self.sum(), position)
            node_found = Binary("and", *bounds, position)
        elif negated:
            self.fail("After a value, 'not' is followed by in or between.")
        else:
            return left
        return Unary("not", node_found, token.position) if negated else node_found

    def membership(self, left: Node) -> Node:
        position = self.advance().position
        self.take("symbol", "(", "After 'in' comes a list in parentheses: in ('waiting', 'idle').")
        values: list[Literal] = []
        while True:
            item = self.now
            value = self.sum()
            if not isinstance(value, Literal) or value.value is None:
                self.fail("A list holds constants only, and no null.", item.position)
            values.append(value)
            if not (self.now.kind == "symbol" and self.now.text == ","):
                break
            self.advance()
        self.take("symbol", ")", "A list ends with ')'.")
        return In(left, tuple(values), position)

    def sum(self) -> Node:
        node = self.product()
        while self.now.kind == "symbol" and self.now.text in {"+", "-"}:
            token = self.advance()
            node = Binary(token.text, node, self.product(), token.position)
        return node

    def product(self) -> Node:
        node = self.factor()
        while self.now.kind == "symbol" and self.now.text in {"*", "/", "%"}:
            token = self.advance()
            node = Binary(token.text, node, self.factor(), token.position)
        return node

    def factor(self) -> Node:
        token = self.now
        if token.kind == "symbol" and token.text == "-":
            self.advance()
            operand = self.inside(self.factor)
            if isinstance(operand, Literal) and _kind_of_value(operand.value) == "number":
                assert isinstance(operand.value, int | float)  # noqa: S101  (what a number is)
                return Literal(-operand.value, token.position)
            return Unary("-", operand, token.position)
        return self.atom()

    def atom(self) -> Node:
        token = self.advance()
        if token.kind == "number":
            return Literal(self.number(token), token.position)
        if token.kind == "text":
            return Literal(token.text[1:-1].replace("''", "'"), token.position)
        if token.kind == "parameter":
            return Literal(self.parameter(token), token.position)
        if token.kind == "word" and token.text in {"true", "false", "null"}:
            return Literal({"true": True, "false": False, "null": None}[token.text], token.position)
        if token[:2] == ("symbol", "("):
            node = self.inside(self.disjunction)
            self.take("symbol", ")", "A parenthesis is not closed.")
            return node
        if token.kind == "name":
            if self.now[:2] == ("symbol", "("):
                return self.call(token)
            if self.now[:2] == ("symbol", "."):
                self.advance()
                name = self.advance()
                if name.kind not in {"name", "word"}:
                    self.fail("After the dot comes the name of a column.", name.position)
                return Column(token.text, name.text, token.position)
            self.fail(
                f"{token.text!r} alone is no value.",
                token.position,
                f"Name a column of it, such as {token.text}.duration_ns.",
            )
        missing = token.kind == "end"
        return self.fail(
            "The filter ends too early: a value is missing." if missing else "A value is expected here.", token.position
        )

    def call(self, token: _Token) -> Node:
        self.advance()
        argument = self.inside(self.sum)
        self.take("symbol", ")", f"{token.text} takes one value, and ends with ')'.")
        name = token.text.lower()
        if name == "abs":
            return Unary("abs", argument, token.position)
        if name not in _UNITS:
            function_names = ", ".join([*_UNITS, "abs"])
            self.fail(f"There is no function {token.text!r}.", token.position, f"There are {function_names}.")
        amount = argument.value if isinstance(argument, Literal) else None
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            self.fail(f"{name} takes a constant number, such as {name}(1).", token.position)
        time = amount * _UNITS[name]
        # Also where it is infinite, or no number.
        if not abs(time) <= _LARGEST:
            self.fail("The number does not fit in 64 bits.", token.position)
        if time != int(time):
            self.fail(f"{name}({amount}) is no whole number of nanoseconds.", token.position)
        return Literal(int(time), token.position)

    def number(self, token: _Token) -> int | float:
        if token.text.isdigit():
            # Digits that Python itself would refuse to read are too many as well.
            return self.bounded(int(token.text) if len(token.text) <= 19 else _LARGEST + 1, token.position)  # noqa: PLR2004
        value = float(token.text)
        if value == float("inf"):
            self.fail("The number is too large.", token.position)
        return value

    def bounded(self, value: int, position: int) -> int:
        if abs(value) > _LARGEST:
            self.fail("The number does not fit in 64 bits.", position)
        return value

    def parameter(self, token: _Token) -> Value:
        name = token.text[1:]
        if name not in self.parameters:
            known_parameters = ", ".join(f"${known}" for known in self.parameters) or "none"
            self.fail(f"The parameter {token.text} has no value.", token.position, f"Given: {known_parameters}.")
        value = self.parameters[name]
        if isinstance(value, int) and not isinstance(value, bool):
            self.bounded(value, token.position)
        if isinstance(value, Iterable) and not isinstance(value, str):
            self.fail(f"The parameter {token.text} has several values; it must have one.", token.position)
        return value

    @property
    def now(self) -> _Token:
        return self.tokens[self.next]

    def advance(self) -> _Token:
        token = self.now
        self.next = min(self.next + 1, len(self.tokens) - 1)
        return token

    def skip(self, word: str) -> bool:
        is_next = self.now[:2] == ("word", word)
        if is_next:
            self.advance()
        return is_next

    def take(self, kind: str, text: str, problem: str, hint: str | None = None) -> None:
        if self.now[:2] != (kind, text):
            self.fail(problem, hint=hint)
        self.advance()

    def fail(self, problem: str, position: int | None = None, hint: str | None = None) -> NoReturn:
        raise MotifSyntaxError.from_position(
            self.text, self.now.position if position is None else position, problem, hint
        )


def _levels(node: Node) -> int:
    """Return how many operators follow each other at most, from a tree's root to a leaf."""
    most, stack = 0, [(node, 0)]
    while stack:
        part, above = stack.pop()
        match part:
            case Binary(_, left, right):
                stack += [(left, above + 1), (right, above + 1)]
            case Unary(_, operand) | In(operand) | IsNull(operand):
                stack.append((operand, above + 1))
            case _:
                most = max(most, above)
    return most


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
        raise MotifSyntaxError.from_position(text, node.position, problem, "Compare it with something.")


_NAMES = {"number": "a number", "text": "text", "condition": "a condition", "null": "null"}


def _kind(node: Node, text: str, columns: Mapping[str, Mapping[str, pa.DataType]]) -> str:
    """Return what a part of a filter is: number, text, condition, or null.

    Raises
    ------
    MotifSyntaxError
        If it is nothing.
    """

    def fail(problem: str, position: int, hint: str | None = None) -> NoReturn:
        raise MotifSyntaxError.from_position(text, position, problem, hint)

    def demand(part: Node, kind_wanted: str, operation: str) -> None:
        kind = _kind(part, text, columns)
        if kind not in {kind_wanted, "null"}:
            fail(f"{operation} needs {_NAMES[kind_wanted]}, and this is {_NAMES[kind]}.", part.position)

    match node:
        case Literal(value):
            return _kind_of_value(value)
        case Column(element, name):
            if element not in columns:
                close_names = difflib.get_close_matches(element, columns, 1)
                fail(
                    f"The motif has no element {element!r}; it has {', '.join(columns)}.",
                    node.position,
                    f"Did you mean {close_names[0]}.{name}?" if close_names else None,
                )
            if name not in columns[element]:
                close_names = difflib.get_close_matches(name, columns[element], 1)
                hint = f"Did you mean {element}.{close_names[0]}? " if close_names else ""
                fail(
                    f"{element!r} has no column {name!r}.",
                    node.position,
                    f"{hint}It has {', '.join(columns[element])}.",
                )
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
        case Binary(operator, left, right) if operator in set(COMPARISONS.values()):
            kinds = {_kind(left, text, columns), _kind(right, text, columns)}
            if "null" in kinds:
                fail("A comparison with null is never true.", node.position, "Write x is null, or x is not null.")
            if len(kinds) > 1:
                first, second = (_NAMES[_kind(part, text, columns)] for part in (left, right))
                fail(f"{first.capitalize()} cannot be compared with {second}.", node.position)
            if kinds == {"condition"} and operator not in {"=", "!="}:
                fail("Conditions have no order.", node.position)
            return "condition"
        case Binary(operator, left, right):
            demand(left, "number", operator)
            demand(right, "number", operator)
            return "number"
        case In(operand, values):
            kind = _kind(operand, text, columns)
            for item in values:
                if kind not in {"null", _kind_of_value(item.value)}:
                    fail(f"The list is for {_NAMES[kind]}, and this is no such thing.", item.position)
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
