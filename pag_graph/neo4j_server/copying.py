"""A second server with a copy of the data, which can be asked and not written: for those who only ask.

Neo4j Community has no roles: everybody with the password may write. A server that is read-only as a whole is what keeps
the data as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.errors import Neo4jError
from pag_graph.neo4j_server import server
from pag_graph.neo4j_server.home import (
    READ_ONLY,
    held,
    home_folder,
    importing,
    is_half_imported,
    is_read_only,
    own_command,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.neo4j_server.jars import Progress


def copy(target: Path, home: Path | None = None, *, replace: bool = False, progress: Progress | None = None) -> Path:
    """Make a read-only server's home with what a stopped server holds.

    Parameters
    ----------
    target
        Home of the copy: a new folder, or with `replace` that of an earlier copy.
    home
        Home of the server to copy, which has to be stopped; the default one where absent.
    replace
        Whether an earlier copy is exchanged for a new one; its password stays.
    progress
        Called with (label, done, all).

    Returns
    -------
    Path
        The absolute folder of the copy, for `server.start`. It has a password of its own.

    Raises
    ------
    Neo4jError
        If either server runs, there is nothing to copy, `target` holds something else than a copy, or the data was not
        left cleanly.
    """
    report = progress or (lambda *_: None)
    source, target = home_folder(home), home_folder(target)
    database = ("data", "databases", "neo4j")
    if not source.joinpath(*database).exists() or is_half_imported(source):
        message = f"The Neo4j server in {source} has no database to copy."
        commands = (own_command(words, source) for words in ("start", "load STORE"))
        raise Neo4jError(
            message, f"Load a run first: {', '.join(f'`{each}`' for each in commands)}.", {"home": str(source)}
        )
    if target.joinpath(*database).exists() and not (replace and is_read_only(target)):
        owner = "an earlier copy" if is_read_only(target) else "a server that is no copy"
        message = f"{target} is the home of {owner}."
        raise Neo4jError(message, "Name a new folder, or replace an earlier copy by --replace.", {"home": str(target)})
    for folder in (source, target):
        if server.status(folder).running:
            message = f"The Neo4j server in {folder} runs; copying needs it stopped."
            raise Neo4jError(message, f"Stop it: `{own_command('stop', folder)}`.", {"home": str(folder)})
    with held(target):
        (target / READ_ONLY).touch()
    # A dump that a killed call left is overwritten.
    between, overwrite = target / "import", "--overwrite-destination=true"
    report("dump", 0, 1)
    server.administer(["database", "dump", "neo4j", f"--to-path={between}", overwrite], source)
    report("dump", 1, 1)
    report("load", 0, 1)
    with importing(target):
        server.administer(["database", "load", "neo4j", f"--from-path={between}", overwrite], target)
    (between / "neo4j.dump").unlink()
    report("load", 1, 1)
    return target
