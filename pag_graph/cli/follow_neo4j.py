"""`pag follow --neo4j`: the command that keeps Neo4j current beside the follower, as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pag_graph.cli.output import stderr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pag_graph.graph.following import Committed


class Loader:
    """Runs `pag neo4j follow` from a follower's first commit on; an observer of commits.

    Parameters
    ----------
    store
        Directory of the store.
    stopped
        Exit code of a loader that was asked to stop.
    """

    def __init__(self, store: Path, stopped: int) -> None:
        self._store, self._stopped = store, stopped
        self._process: subprocess.Popen[bytes] | None = None

    def committed(self, commit: Committed) -> None:
        """Begin, if it has not begun: from now on the store is that of this run."""
        del commit
        self._begin()

    def _begin(self) -> None:
        if self._process is None:
            code = "from pag_graph.cli.app import main; main()"
            command = [sys.executable, "-c", code, "neo4j", "follow", str(self._store)]
            # What it prints is no answer of this command.
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())

    def end(self, *, complete: bool) -> int:
        """Wait until the database has all of a store that is complete, or ask to stop; return the exit code.

        Parameters
        ----------
        complete
            Whether the store holds all of its run.

        Returns
        -------
        int
            0 as well for a loader that was asked to stop, and where there was nothing to load.
        """
        if complete:
            self._begin()
        if self._process is None:
            return 0
        if not complete:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
        code = self._process.wait()
        if code == self._stopped and not complete:
            return 0
        if code:
            message = f"pag neo4j follow ended with exit code {code}; the store is as it should be."
            stderr().print(message, style="yellow", markup=False)
        return code


@contextmanager
def loading(store: Path, *, wanted: bool, stopped: int) -> Iterator[Loader | None]:
    """Keep Neo4j current inside the block, if that is wanted; a block that fails ends the loader as well.

    Parameters
    ----------
    store
        Directory of the store that is followed.
    wanted
        Whether to.
    stopped
        As for `Loader`.

    Yields
    ------
    Loader or None
        To be ended by the block.

    Raises
    ------
    Neo4jError
        If there is no server to load into.
    """
    if not wanted:
        yield None
        return
    from pag_graph.cli.neo4j_reach import reach
    from pag_graph.sinks.neo4j.query import plain_errors

    with reach(None, None).open() as driver, plain_errors("follow into Neo4j"):
        driver.verify_connectivity()
    loader = Loader(store, stopped)
    try:
        yield loader
    except BaseException:
        loader.end(complete=False)
        raise
