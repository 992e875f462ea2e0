"""The library of Cypher queries: one query per file, whose first comment says what it is for.

The files stand in ``cypher/`` of the repository and in ``pag_graph/_cypher`` of an installed package. A query is called
by its path without the ending, such as ``analyses/critical_path``. Its header reads::

    // purpose: One sentence or two; lines that go on are indented.
    // param run: what to pass as $run
    // returns: the rows, their columns and their order
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pag_graph.errors import InvalidParameterError, PagGraphError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIX = ".cypher"
_ENTRY = re.compile(r"// (?P<field>purpose|param (?P<param>\w+)|returns): *(?P<text>.*)")
_CONTINUED = re.compile(r"//  +(?P<text>\S.*)")
_PACKAGE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A file of the library."""

    name: str
    """Path in the library without the ending, such as ``analyses/critical_path``."""
    purpose: str
    params: Mapping[str, str]
    """Meaning of each parameter, by name."""
    returns: str
    """The rows, their columns and their order."""
    text: str
    """The file as it is, with comments."""

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
    known = list_queries()
    if name not in known:
        message = f"There is no query {name!r}; there are {', '.join(known)}."
        raise InvalidParameterError(message, None, {"name": name, "known": list(known)})
    text = (cypher_library() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    return _parsed(name, text)


def _parsed(name: str, text: str) -> Query:
    """Read the header: the comment lines that the file begins with."""
    entries: dict[str, str] = {}
    params: dict[str, str] = {}
    into, key = entries, ""
    for line in text.splitlines():
        if entry := _ENTRY.fullmatch(line):
            into, key = (params, entry["param"]) if entry["param"] else (entries, entry["field"])
            into[key] = entry["text"]
        elif key and (continued := _CONTINUED.fullmatch(line)):
            into[key] += f" {continued['text']}"
        else:
            break
    return Query(
        name=name,
        purpose=entries.get("purpose", ""),
        params=MappingProxyType(params),
        returns=entries.get("returns", ""),
        text=text,
    )
