"""The library of Cypher queries: one query per file, whose first comment says what it is for.

The files stand in ``cypher/`` of the repository and in ``pag_graph/_cypher`` of an installed package. A query is called
by its path without the ending, such as ``analyses/critical_path``. Its header reads::

    // purpose: One sentence or two; lines that go on are indented.
    // param run: id of the run
    // param worker integer: a parameter with its type, which has to be given
    // param limit integer = 20: a parameter with a default; null makes it one that may be absent
    // param by type|worker = type: one of a few words
    // over: rounds
    // returns: the rows, their columns and their order
    // example: skewed --epoch 4 --limit 2
    //   worker | waiting_ns
    //   3      | 2899299
    //   2 rows

Types are ``integer``, ``number``, ``string`` and ``boolean``. `run` and `epoch` mean the same everywhere and need no
type. What loads data takes whole columns, which have none. ``over`` is one of `Over`, the epochs that an answer looks
at; it may be left out where that is the epoch asked for. An example names a bundled trace and the parameters; its last
line counts the rows, of which it may show fewer.

``python -m pag_graph.cli.cypher_page > docs/cypher.md`` writes the reference of all queries; a test compares the two.
"""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pag_graph.errors import InvalidParameterError, PagGraphError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIX = ".cypher"
_ENTRY = re.compile(
    r"// (?P<field>purpose|param (?P<param>\w+)(?: (?P<kind>[\w|]+))?(?: = (?P<default>[^:]+))?|over|returns|example):"
    r" *(?P<text>.*)"
)
_CONTINUED = re.compile(r"//  +(?P<text>\S.*)")
_ROWS = re.compile(r"(?P<count>\d+) rows?")
_PACKAGE = Path(__file__).parent
_KINDS: dict[str, type] = {"integer": int, "number": float, "string": str, "boolean": bool}
KNOWN = {"run": "string", "epoch": "integer"}
"""Parameters that mean the same everywhere, with their types."""
_FOR_PROGRAMS = ("load", "schema")
TOPICS = {
    "root_cause": "Root causes: what people on call ask",
    "patterns": "Patterns",
    "segments": "Waits, with the detail `waits`",
    "epochs": "Epoch over epoch",
    "runs": "Run over run",
    "analyses": "Analyses, the same as the engine's",
    "provenance": "Provenance: of events, and of the data",
    "browser": "Drawings for Neo4j Browser",
}
"""Folders of the library, in the order of the reference, with their titles."""


class Over(StrEnum):
    """Which epochs of a run a query looks at; all have to be loaded, with enough detail, for its answer to be whole."""

    RUN = "run"
    """Whatever is loaded: it asks what that is."""
    EPOCH = "epoch"
    """The one asked for."""
    EPOCHS = "epochs"
    """All whose numbers lie from `first_epoch` to `last_epoch`; events are chosen by the epoch that they carry."""
    ROUNDS = "rounds"
    """All but startup and shutdown."""
    ROUNDS_OF_BOTH = "rounds of both runs"
    """All rounds of the run, and of `against` or the run that started before it."""
    ROUNDS_BEFORE = "epoch and rounds before"
    """The one asked for, and as many rounds before it as `rounds` says."""
    AGAINST = "epoch and against"
    """The one asked for, and `against` or the one before it."""
    INSTANT = "instant"
    """The one whose window holds `at_ns`."""
    EVENT_BACK = "event and back_ns"
    """Those between `event` and `back_ns` before it."""
    EVENT_AHEAD = "event and ahead_ns"
    """Those between `event` and `ahead_ns` after it."""
    EVENT_ROUNDS = "event and rounds"
    """The one of `event`, and as many before it as `rounds` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """A parameter that a query declares."""

    name: str
    meaning: str
    kind: str | None
    """``integer``, ``number``, ``string``, ``boolean``, or words with bars between; `None` for a whole column."""
    default: Any
    """`dataclasses.MISSING` where one must be given; of `run` and `epoch` what is loaded decides."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it can be, where they are few."""
        return tuple(self.kind.split("|")) if self.kind and "|" in self.kind else ()

    @property
    def required(self) -> bool:
        """Whether it has to be given."""
        return self.default is MISSING

    def convert(self, value: Any) -> Any:
        """Return a value of the parameter's type.

        Parameters
        ----------
        value
            As it is, or as text from a command line.

        Returns
        -------
        object
            The value that the query gets.

        Raises
        ------
        InvalidParameterError
            If it has another type, or is none of the words.

        Examples
        --------
        >>> QueryParameter(name="limit", meaning="rows", kind="integer", default=20).convert("30")
        30
        """
        if self.kind is None or (value is None and self.default is None):
            return value
        if self.choices:
            if value in self.choices:
                return value
            self._refuse(value, f"must be {' or '.join(self.choices)}")
        kind = _KINDS[self.kind]
        if isinstance(value, bool) != (kind is bool) and not isinstance(value, str):
            self._refuse(value, f"must be of type {self.kind}")
        if isinstance(value, kind):
            return value
        if kind is float and isinstance(value, int):
            return float(value)
        if isinstance(value, str):
            if kind is bool and value in {"true", "false"}:
                return value == "true"
            try:
                number = kind(value) if kind is not bool else None
            except ValueError:
                number = None
            # No NaN: nothing would be equal to it.
            if number is not None and number == number:  # noqa: PLR0124
                return number
        return self._refuse(value, f"must be of type {self.kind}")

    def _refuse(self, value: Any, reason: str) -> Any:
        message = f"The parameter {self.name} is {value!r}, and {reason}."
        hint = f"{self.name}: {self.meaning}."
        raise InvalidParameterError(message, hint, {"parameter": self.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What a query returns for a bundled trace, as its header shows it."""

    sample: str
    """Name of the bundled trace; ``any`` stands for a run of its own making, which the text says."""
    parameters: Mapping[str, str]
    """Parameters other than the run, as text."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Cells as `cell` writes them; perhaps not all rows."""
    count: int
    """How many rows there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A file of the library."""

    name: str
    """Path in the library without the ending, such as ``analyses/critical_path``."""
    purpose: str
    params: Mapping[str, QueryParameter]
    """What it takes, by name, in the order of the header."""
    returns: str
    """The rows, their columns and their order."""
    text: str
    """The file as it is, with comments."""
    over: Over | None = None
    """Which epochs it looks at; none for what is no question about a run."""
    example: Example | None = None

    @property
    def folder(self) -> str:
        """The part of the library that it belongs to."""
        return self.name.rpartition("/")[0]

    @property
    def is_for_people(self) -> bool:
        """Whether people ask it; the others load data and make constraints."""
        return self.folder not in _FOR_PROGRAMS

    @property
    def code(self) -> str:
        """The text without comments."""
        return re.sub(r"(?m)^\s*//.*\n|\s+// .*$", "", self.text)

    @property
    def details(self) -> tuple[str, ...]:
        """The details of an epoch that it can answer for; empty where any will do."""
        if "detail: 'full'" in self.code:
            return ("full",)
        if match := re.search(r"\.detail IN \[(.*?)\]", self.code):
            return tuple(re.findall(r"'(\w+)'", match[1]))
        return ()

    @property
    def is_summary(self) -> bool:
        """Whether it asks only for what an epoch is loaded with in the least detail."""
        return not self.details and re.search(r":(?:Segment|THEN|RELEASED)\b|\|RELEASED\b", self.code) is None

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements of the text, in order; each ends a line with a semicolon."""
        parts = (part.strip() for part in re.split(r";\s*(?:\n|$)", self.text))
        return tuple(part for part in parts if part)


def cypher_library() -> Path:
    """Return the folder of the query library.

    Returns
    -------
    Path
        ``pag_graph/_cypher`` of an installed package, else ``cypher`` of the repository.

    Raises
    ------
    PagGraphError
        If there is neither.
    """
    for folder in (_PACKAGE / "_cypher", _PACKAGE.parent / "cypher"):
        if folder.is_dir():
            return folder
    message = f"The library of Cypher queries is missing: {_PACKAGE / '_cypher'} does not exist."
    raise PagGraphError(message, "Install the package again.", {"folder": str(_PACKAGE / "_cypher")})


def list_queries() -> tuple[str, ...]:
    """Return the names of all queries of the library, sorted."""
    library = cypher_library()
    files = library.rglob(f"*{_SUFFIX}")
    return tuple(sorted(file.relative_to(library).with_suffix("").as_posix() for file in files))


def load_query(name: str) -> Query:
    """Read a query of the library.

    Parameters
    ----------
    name
        Out of `list_queries`; nothing else is read.

    Returns
    -------
    Query
        The text with what its header says.

    Raises
    ------
    InvalidParameterError
        If there is no such query; the message lists those that there are.

    Examples
    --------
    >>> list(load_query("analyses/critical_path").params)
    ['run', 'epoch']
    """
    query_names = list_queries()
    if name not in query_names:
        message = f"There is no query {name!r}; there are {', '.join(query_names)}."
        raise InvalidParameterError(message, None, {"name": name, "known": list(query_names)})
    return _read(name)


def _read(name: str) -> Query:
    return _parsed(name, (cypher_library() / f"{name}{_SUFFIX}").read_text(encoding="utf-8"))


def queries_for_people() -> tuple[Query, ...]:
    """Return the queries that people ask, by topic and name."""
    topics = list(TOPICS)
    queries = [_read(name) for name in list_queries()]

    def place(query: Query) -> tuple[int, str]:
        return topics.index(query.folder) if query.folder in topics else len(topics), query.name

    return tuple(sorted((query for query in queries if query.is_for_people), key=place))


def find_query(name: str) -> Query:
    """Read a query that people ask, by its name or the last part of it.

    Parameters
    ----------
    name
        Such as ``root_cause/held_up_by``; ``held_up_by`` will do where no other query is called so.

    Returns
    -------
    Query
        The text with what its header says.

    Raises
    ------
    InvalidParameterError
        If there is none, or several; the message says which come near.
    """
    sought = name.replace("-", "_")
    queries = queries_for_people()
    matches = [query for query in queries if sought in {query.name, query.name.rpartition("/")[2]}]
    if len(matches) == 1:
        return matches[0]
    if matches:
        message = f"{name!r} may be {' or '.join(query.name for query in matches)}."
        raise InvalidParameterError(message, "Give the whole name.", {"name": name})
    similar = [query.name for query in queries if sought in query.name]
    message = f"There is no query {name!r}" + (f"; did you mean {' or '.join(similar)}?" if similar else ".")
    raise InvalidParameterError(message, "List them: `pag neo4j queries`.", {"name": name})


def cell(value: Any) -> str:
    """Return a value as an example shows it: nothing for null, lists and maps as JSON.

    Examples
    --------
    >>> cell(None), cell(True), cell(0.25), cell([1, None])
    ('', 'true', '0.25', '[1, null]')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, str):
        return value.replace("|", "¦").replace("\n", " ")
    return json.dumps(value, default=str, ensure_ascii=False)


def _parsed(name: str, text: str) -> Query:
    """Read the header: the comment lines that the file begins with."""
    entries: dict[str, str] = {}
    params: dict[str, dict[str, Any]] = {}
    shown: list[str] = []
    add = None
    for line in text.splitlines():
        if entry := _ENTRY.fullmatch(line):
            if entry["param"]:
                target, key = params.setdefault(entry["param"], entry.groupdict()), "text"
            elif entry["field"] == "example":
                shown.append(entry["text"])
                add = shown
                continue
            else:
                target, key = entries, entry["field"]
                entries[key] = entry["text"]
            add = None
        elif (continued := _CONTINUED.fullmatch(line)) and (add is not None or entries or params):
            if add is not None:
                add.append(continued["text"])
            else:
                target[key] += f" {continued['text']}"
        else:
            break
    declared = {entry_of_param["param"]: _parameter(entry_of_param) for entry_of_param in params.values()}
    return Query(
        name=name,
        purpose=entries.get("purpose", ""),
        params=MappingProxyType(declared),
        over=_looks_over(entries.get("over", Over.EPOCH if "epoch" in declared else None)),
        returns=entries.get("returns", ""),
        text=text,
        example=_example(shown) if shown else None,
    )


def _looks_over(text: str | None) -> Over | None:
    """Return what a query looks over.

    Raises
    ------
    PagGraphError
        If the header says something else than a member of `Over`.
    """
    if text is None:
        return None
    if text in list(Over):
        return Over(text)
    message = f"A query looks over {text!r}; there are {', '.join(Over)}."
    raise PagGraphError(message)


def _parameter(entry: Mapping[str, Any]) -> QueryParameter:
    kind, default = entry["kind"] or KNOWN.get(entry["param"]), entry["default"]
    if kind is not None and "|" not in kind and kind not in _KINDS:
        message = f"The parameter {entry['param']} has the type {kind}; there are {', '.join(_KINDS)}."
        raise PagGraphError(message)
    parameter = QueryParameter(name=entry["param"], meaning=entry["text"], kind=kind, default=MISSING)
    if default is None:
        return parameter
    value = None if default == "null" else parameter.convert(default)
    return QueryParameter(name=parameter.name, meaning=parameter.meaning, kind=kind, default=value)


def _example(lines: list[str]) -> Example:
    sample, *words = lines[0].split()
    parameters = {words[n].removeprefix("--"): words[n + 1] for n in range(0, len(words) - 1, 2)}
    table = [tuple(part.strip() for part in line.split("|")) for line in lines[1:-1]]
    counted = _ROWS.fullmatch(lines[-1])
    return Example(
        sample=sample,
        parameters=MappingProxyType(parameters),
        columns=table[0] if table else (),
        rows=tuple(table[1:]),
        count=int(counted["count"]) if counted else -1,
    )
