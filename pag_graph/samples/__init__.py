"""The bundled traces, by name: real programs on two cores, recorded as README.md beside this file says.

Examples
--------
>>> from pag_graph import samples
>>> samples.names()
('bfs', 'elastic', 'ground_truth', 'skewed', 'triangles')
>>> samples.path("skewed").name
'skewed'
"""

from __future__ import annotations

from pathlib import Path

from pag_graph.errors import InvalidParameterError

__all__ = ["FOLDER", "names", "path"]

FOLDER = Path(__file__).parent
"""Folder of the bundled traces, a directory each."""


def names() -> tuple[str, ...]:
    """Return the names of the bundled traces, sorted."""
    return tuple(sorted(entry.parent.name for entry in FOLDER.glob("*/meta.json")))


def path(name: str) -> Path:
    """Return the directory of a bundled trace, to be built or converted like any other.

    Parameters
    ----------
    name
        One of `names`.

    Returns
    -------
    Path
        The trace.

    Raises
    ------
    InvalidParameterError
        If there is no such trace; lists those that there are.
    """
    if name not in names():
        message = f"There is no bundled trace {name!r}; there are {', '.join(names())}."
        raise InvalidParameterError(message, None, {"trace": name})
    return FOLDER / name
