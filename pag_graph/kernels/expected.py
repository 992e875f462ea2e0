"""Kernels that a command will call: compiled together, in several processes, when the first of them is missing.

Which variants those are stands in ``expected.txt`` beside this module, the slow ones first: the command's part, the
kernel, and the types of its arguments (as of `pag_graph.kernels.compiling.spelled`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.runtime.threads import CORES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Tell = Callable[[str, int, int], None]

LABEL = "compiling"
"""What is told while kernels are compiled."""

_LINES = Path(__file__).with_name("expected.txt")


class _Now:
    """What the command that runs will call, and whom to tell."""

    parts: frozenset[str] = frozenset()
    tell: Tell | None = None


def variants(parts: frozenset[str]) -> list[tuple[str, str]]:
    """Return the kernels that some parts call, as ``module.function``, and the types of their arguments.

    Parameters
    ----------
    parts
        Names of parts, as for `expecting`.

    Returns
    -------
    list
        ``(module.function, types)`` per variant, in the order of ``expected.txt``.
    """
    kernels_called = []
    for line in _LINES.read_text(encoding="ascii").splitlines():
        part, name, *types = line.split()
        if not parts.isdisjoint(part.split(",")):
            kernels_called.append((name, " ".join(types)))
    return kernels_called


@contextmanager
def expecting(*parts: str, tell: Tell | None = None) -> Iterator[None]:
    """Announce what is called in the block.

    Parameters
    ----------
    *parts
        ``build``, ``why``, ``spans``, ``spark`` or ``torch``: the kernels that building a graph calls, and so on;
        ``follow`` and ``standing``: those that a follower calls, and those of its most common queries.
    tell
        Called with (`LABEL`, kernels that are ready, all of them); not at all where nothing is to be compiled.

    Yields
    ------
    None
        While the block runs; what was announced before holds again after it.
    """
    before = _Now.parts, _Now.tell
    _Now.parts, _Now.tell = frozenset(parts), tell
    try:
        yield
    finally:
        _Now.parts, _Now.tell = before


def missing(name: str, types: str) -> bool:
    """Compile all that is expected, if this missing variant of a kernel is among it.

    Parameters
    ----------
    name
        ``module.function``.
    types
        As of `pag_graph.kernels.compiling.spelled`.

    Returns
    -------
    bool
        Whether it was: the cache has it now. A second time within one block nothing is compiled together any more.
    """
    if not _Now.parts:
        return False
    expected = variants(_Now.parts)
    if (name, types) not in expected:
        return False
    # Only once: kernels that are missing after that are compiled when they are called.
    _Now.parts = frozenset()
    _compile(expected, _Now.tell or (lambda *_: None))
    return True


def _compile(kernels: Sequence[tuple[str, str]], tell: Tell) -> None:
    """Compile variants of kernels in as many processes as there are cores: numba compiles one at a time in each."""
    todo_read, todo_write = os.pipe()
    done_read, done_write = os.pipe()
    tell(LABEL, 0, len(kernels))
    # A free process takes the next one: a byte each, which no two processes can read.
    os.write(todo_write, bytes(range(len(kernels))))
    os.close(todo_write)
    code = "import sys; from pag_graph.kernels.compiling import serve; serve(sys.argv[1])"
    lines = "\n".join(f"{name} {types}" for name, types in kernels)
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    workers = [
        subprocess.Popen([sys.executable, "-c", code, lines], stdin=todo_read, stdout=done_write, env=paths)
        for _ in range(min(CORES, len(kernels)))
    ]
    os.close(todo_read)
    os.close(done_write)
    kernels_read = 0
    while read := os.read(done_read, len(kernels)):
        kernels_read += len(read)
        tell(LABEL, kernels_read, len(kernels))
    os.close(done_read)
    for worker in workers:
        # A process that could not compile a kernel printed the reason; the caller of that kernel gets the same error.
        worker.wait()
