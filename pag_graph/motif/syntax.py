"""The motif language of GraphFrames: what may be written, and what it stands for.

::

    motif  = term { ";" term } [ ";" ]
    term   = [ "!" ] vertex { link vertex }
    vertex = "(" [ name ] ")"
    link   = "-[" body "]->"  |  "<-[" body "]-"  |  "<-[" body "]->"
    body   = [ name ] [ "*" number ]

A chain of links is short for its links, joined by semicolons. ``(a)-[e*3]->(b)`` stands for three edges ``_e1``,
``_e2``, ``_e3`` over two inner vertices ``_ab1``, ``_ab2``, named as GraphFrames names them. A link with both heads
stands for two edges, ``e1`` there and ``e2`` back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pag_graph.errors import MotifSyntaxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TOKEN = re.compile(r"\s*(?P<token>->|<-|\.\.|[A-Za-z0-9_]+|[()\[\]\-!;*])")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_ANONYMOUS = "#"
"""First character of the names that anonymous elements have among themselves; nobody can write it."""
INNER = "__tmpv"
"""Beginning of the names of vertices that edges share though nobody named them; no columns of a result."""
MOST_REPEATS = 64
"""Longest repeat; each repetition is a join."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of a motif."""

    name: str
    """Its name; edges that nobody named have names of their own."""
    src: str
    """Name of the vertex where it begins."""
    dst: str
    """Name of the vertex where it ends."""
    negated: bool = False
    """Whether there must be no such edge."""
    position: int = field(default=0, compare=False)
    """Where it begins in the text."""

    @property
    def named(self) -> bool:
        """Whether it is a column of the result."""
        return not self.name.startswith(_ANONYMOUS)

    def __str__(self) -> str:
        """Return it in the language of motifs."""
        src, name, dst = (_written(part) for part in (self.src, self.name, self.dst))
        return f"{'!' if self.negated else ''}({src})-[{name}]->({dst})"


@dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex that stands for itself."""

    name: str
    """Its name."""
    position: int = field(default=0, compare=False)
    """Where it begins in the text."""

    def __str__(self) -> str:
        """Return it in the language of motifs."""
        return f"({_written(self.name)})"


Term = Edge | Vertex


@dataclass(frozen=True, slots=True)
class Motif:
    """A motif, reduced to single edges and vertices."""

    text: str
    """As it was written."""
    terms: tuple[Term, ...]
    """In the order of the text."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the result's columns: the named elements, in the order in which they first appear."""
        names: dict[str, None] = {}
        for term in self.terms:
            parts = (term.name,) if isinstance(term, Vertex) else (term.src, term.name, term.dst)
            names.update(dict.fromkeys(part for part in parts if is_column(part)))
        return tuple(names)

    @property
    def edges(self) -> dict[str, Edge]:
        """The edges that must be there, by name."""
        return {term.name: term for term in self.terms if isinstance(term, Edge) and not term.negated}

    @property
    def vertices(self) -> tuple[str, ...]:
        """Names of all vertices, anonymous ones included."""
        names: dict[str, None] = {}
        for term in self.terms:
            names.update(dict.fromkeys((term.name,) if isinstance(term, Vertex) else (term.src, term.dst)))
        return tuple(names)

    def __str__(self) -> str:
        """Return the motif in the plain language that GraphFrames reads: no chains, no repeats."""
        return "; ".join(str(term) for term in self.terms)


def is_column(name: str) -> bool:
    """Tell whether an element of this name is a column of the result.

    Parameters
    ----------
    name
        Name of an element.

    Returns
    -------
    bool
        False of elements that nobody named.
    """
    return not name.startswith((_ANONYMOUS, INNER))


def must_exist(name: str) -> bool:
    """Tell whether a vertex of this name must be a row of the vertices; one without a name may dangle.

    Parameters
    ----------
    name
        Name of a vertex.

    Returns
    -------
    bool
        False of one without a name: an edge may end at what is no row.
    """
    return not name.startswith(_ANONYMOUS)


def _written(name: str) -> str:
    return "" if name.startswith(_ANONYMOUS) else name


class _Token(NamedTuple):
    text: str
    position: int


class _Link(NamedTuple):
    """What stands between two vertices."""

    name: str
    repeats: int
    """0 where no number is given."""
    forward: bool
    backward: bool
    position: int


def parse_motif(text: str) -> Motif:
    """Read a motif.

    Parameters
    ----------
    text
        In the language that this module's docstring gives.

    Returns
    -------
    Motif
        Single edges and vertices, in the order in which they were written.

    Raises
    ------
    MotifSyntaxError
        If it is not of the language, or means nothing: an edge without any name, a name used twice, a negated edge
        with a name. Points at the character.

    Examples
    --------
    >>> str(parse_motif("(a)-[w]->(z)<-[m]-(s)"))
    '(a)-[w]->(z); (s)-[m]->(z)'
    >>> parse_motif("(a)-[e*2]->(b)").columns
    ('a', '_e1', '_ab1', '_e2', 'b')
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    terms = _Parser(text).motif()
    motif = Motif(text, terms)
    _check(text, terms)
    if not motif.columns:
        raise MotifSyntaxError.from_position(
            text, 0, "The motif names nothing, so its answer would have no columns.", "Name a vertex or an edge: (a)."
        )
    return motif


class _Parser:
    """Recursive descent over the tokens of one motif."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.next = 0
        self.anonymous = 0
        self.inner = 0
        self.generated: dict[str, int] = {}
        """Inner vertices that a repeat has made, and where."""

    def motif(self) -> tuple[Term, ...]:
        terms: list[Term] = []
        while True:
            terms += self.term()
            if self.peek() == "":
                return tuple(terms)
            self.take(";", "Terms are separated by semicolons.")
            if self.peek() == "":
                return tuple(terms)

    def term(self) -> Iterator[Term]:
        position = self.position
        negated = self.peek() == "!"
        if negated:
            self.next += 1
            if self.peek() == "!":
                self.fail("A term can be negated only once.")
        chain: list[tuple[str, int]] = [self.vertex()]
        links: list[_Link] = []
        while self.peek() in {"-", "<-", "->"}:
            links.append(self.link())
            chain.append(self.vertex())
        if not links:
            name, vertex_position = chain[0]
            if negated:
                self.fail("Only edges can be negated, not a vertex.", position)
            if not name:
                self.fail("A lone vertex needs a name: (a).", vertex_position)
            yield Vertex(name, vertex_position)
            return
        if negated and (len(links) > 1 or links[0].repeats or (links[0].forward and links[0].backward)):
            self.fail("Only a single edge can be negated: no chain, no repeat, no two-headed edge.", position)
        names = [name or self.nameless(shared=0 < index < len(links)) for index, (name, _) in enumerate(chain)]
        for link, (source, target) in zip(links, pairwise(names), strict=True):
            yield from self.edges(link, source, target, negated=negated)

    def edges(self, link: _Link, source: str, target: str, *, negated: bool) -> Iterator[Edge]:
        """Write one link as single edges."""
        there_and_back = link.forward and link.backward
        # Two heads are as if both edges were written out: what nobody named is not the same vertex in the two.
        back = tuple(
            self.nameless(shared=False) if there_and_back and not must_exist(end) else end for end in (target, source)
        )
        for index, (src, dst) in enumerate(((source, target), back)):
            if not (link.forward, link.backward)[index]:
                continue
            name = f"{link.name}{index + 1}" if there_and_back and link.name and not link.repeats else link.name
            if not link.repeats:
                yield Edge(name or self.nameless_edge(), src, dst, negated, link.position)
                continue
            chain = [src, *self.inner_vertices(link, src, dst), dst]
            for step, (begin, end) in enumerate(pairwise(chain), 1):
                yield Edge(f"_{name}{step}" if name else self.nameless_edge(), begin, end, position=link.position)

    def inner_vertices(self, link: _Link, src: str, dst: str) -> list[str]:
        """Name the vertices inside a repeat as GraphFrames does."""
        if not (_written(src) or _written(dst)):
            return [self.nameless(shared=True) for _ in range(1, link.repeats)]
        names = [f"_{_written(src)}{_written(dst)}{step}" for step in range(1, link.repeats)]
        for name in names:
            if name in self.generated:
                self.fail(
                    f"This repeat and another one would both call an inner vertex {name!r}.",
                    link.position,
                    "Write one of them as a chain with names of your own.",
                )
            self.generated[name] = link.position
        return names

    def vertex(self) -> tuple[str, int]:
        self.take("(", "A vertex is expected here, such as (a) or ().")
        position = self.position
        name = self.name()
        self.take(")", "A vertex ends with ')'.")
        return name, position

    def link(self) -> _Link:
        position = self.position
        first = self.peek()
        if first == "->":
            self.fail("An edge is written -[name]->, or -[]-> without a name.")
        self.next += 1
        backward = first == "<-"
        self.take("[", "An edge has brackets: -[name]-> or -[]->.")
        name = self.name()
        repeats = self.repeats() if self.peek() == "*" else 0
        self.take("]", "An edge's brackets end with ']'.")
        forward = self.peek() == "->"
        if not forward and self.peek() != "-":
            self.fail("After an edge's brackets comes '->', or '-' if it began with '<-'.")
        if not (forward or backward):
            self.fail(
                "An edge needs a direction.",
                hint="Write -[e]-> or <-[e]-; for either direction, ask twice and put the answers together.",
            )
        self.next += 1
        return _Link(name, repeats, forward, backward, position)

    def repeats(self) -> int:
        self.next += 1
        position = self.position
        digits = self.peek()
        if not digits.isdigit():
            self.fail("After '*' comes how often the edge is repeated, such as [e*3].")
        self.next += 1
        if self.peek() == "..":
            self.fail("Repeats have one fixed length.", hint="Ask once for each length; the columns differ anyway.")
        if len(digits) > len(str(MOST_REPEATS)) or not 1 <= int(digits) <= MOST_REPEATS:
            self.fail(f"A repeat has 1 to {MOST_REPEATS} edges.", position)
        return int(digits)

    def name(self) -> str:
        text, position = self.peek(), self.position
        if not _NAME.fullmatch(text):
            return ""
        if text.startswith(INNER):
            self.fail(f"Names that begin with {INNER} are taken.", position)
        self.next += 1
        return text

    def nameless(self, *, shared: bool) -> str:
        if shared:
            self.inner += 1
            return f"{INNER}{self.inner}"
        self.anonymous += 1
        return f"{_ANONYMOUS}{self.anonymous}"

    def nameless_edge(self) -> str:
        self.anonymous += 1
        return f"{_ANONYMOUS}{self.anonymous}"

    def peek(self) -> str:
        return self.tokens[self.next].text

    @property
    def position(self) -> int:
        return self.tokens[self.next].position

    def take(self, expected: str, problem: str) -> None:
        if self.peek() != expected:
            self.fail(problem)
        self.next += 1

    def fail(self, problem: str, position: int | None = None, hint: str | None = None) -> None:
        raise MotifSyntaxError.from_position(self.text, self.position if position is None else position, problem, hint)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while match := _TOKEN.match(text, position):
        yield _Token(match["token"], match.start("token"))
        position = match.end()
    unread = len(text) - len(text[position:].lstrip())
    if unread < len(text):
        raise MotifSyntaxError.from_position(text, unread, f"{text[unread]!r} has no meaning in a motif.")
    # The end is a token without text, so that errors can point at it.
    yield _Token("", len(text.rstrip()))


def _check(text: str, terms: Iterable[Term]) -> None:
    """Refuse names that stand for two things, and edges that nothing holds.

    Raises
    ------
    MotifSyntaxError
        Points at the term.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    kinds: dict[str, str] = {}
    spelled: dict[str, str] = {}

    def use(name: str, kind: str, position: int) -> None:
        if not is_column(name):
            return
        if kinds.setdefault(name, kind) != kind:
            raise MotifSyntaxError.from_position(text, position, f"{name!r} names both a vertex and an edge.")
        if spelled.setdefault(name.lower(), name) != name:
            first_spelling = spelled[name.lower()]
            raise MotifSyntaxError.from_position(
                text,
                position,
                f"{name!r} and {first_spelling!r} differ only in case, and Spark takes them for one column.",
            )

    for term in terms:
        if isinstance(term, Vertex):
            use(term.name, "vertex", term.position)
            continue
        if not (term.named or must_exist(term.src) or must_exist(term.dst)):
            problem = "An edge needs a name, its own or that of a vertex."
            raise MotifSyntaxError.from_position(text, term.position, problem, "Write ()-[e]->(), or count the edges.")
        if term.negated and term.named:
            problem = "A negated edge cannot have a name: it is never part of an answer."
            raise MotifSyntaxError.from_position(text, term.position, problem, "Write !(a)-[]->(b).")
        if term.named and term.name in kinds:
            problem = f"{term.name!r} is used already; every edge needs a name of its own."
            raise MotifSyntaxError.from_position(text, term.position, problem)
        if term.named:
            use(term.name, "edge", term.position)
        use(term.src, "vertex", term.position)
        use(term.dst, "vertex", term.position)
