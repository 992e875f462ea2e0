"""A server's home: everything of a server lies in it, and only its owner can enter it.

::

    version      of Neo4j that the data belongs to
    password     of the user `neo4j`
    server.json  the process that runs, with its start time, and its ports
    lock         held while a server is started or stopped, or its data administered
    importing    there while an import makes the data anew
    read-only    there if it is a copy, which nobody may write
    conf  data  import  logs  plugins
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pag_graph.errors import Neo4jError
from pag_graph.neo4j_server import browser
from pag_graph.neo4j_server.jars import file_lock, neo4j_version
from pag_graph.neo4j_server.java import WRITTEN, admin_command, environment
from pag_graph.runtime.folders import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
ANYWHERE = ("0.0.0.0", "::")  # noqa: S104  (compared with, not bound to)
_LOG_LINES = 12
_IMPORTING = "importing"
READ_ONLY = "read-only"
CONTENTS = (
    "data",
    "logs",
    "run",
    "import",
    "conf",
    "plugins",
    "password",
    "server.json",
    WRITTEN,
    _IMPORTING,
    READ_ONLY,
    "version",
)
"""What a home may have, the lock aside; the version goes last."""

# Advertised addresses carry the port, or the Browser would look for Bolt at 7687. Logs of transactions are not
# allocated in advance: that would take 512 MiB of disk before the first node is written. When the server ends, and all
# connections are closed, it does not listen for another five seconds whether something still moves.
_CONFIGURATION = """\
server.default_listen_address={listen}
server.default_advertised_address={advertised}
server.bolt.listen_address={listen}:{bolt_port}
server.bolt.advertised_address={advertised}:{bolt_port}
server.http.listen_address={listen}:{http_port}
server.http.advertised_address={advertised}:{http_port}
server.https.enabled=false
dbms.security.auth_enabled=true
dbms.usage_report.enabled=false
client.allow_telemetry=false
server.memory.pagecache.size=256m
db.tx_log.preallocate=false
internal.dbms.bolt.netty_server_shutdown_quiet_period=0
"""


def home_folder(home: Path | None = None) -> Path:
    """Return the absolute folder of the server: `home`, else the default one."""
    if home is not None:
        return home.expanduser().resolve()
    return data_folder() / "neo4j"


def own_command(words: str, home: Path) -> str:
    """Return the command that does something with the server of a home, for hints.

    Parameters
    ----------
    words
        What follows ``pag neo4j``, such as ``stop``.
    home
        The server's folder, absolute; it is named in the command unless it is the default one.

    Returns
    -------
    str
        For a shell: ``pag neo4j stop --home /srv/readers``.
    """
    option = "" if home == home_folder() else f" --home {shlex.quote(str(home))}"
    return f"pag neo4j {words}{option}"


def is_half_imported(home: Path) -> bool:
    """Tell whether an import into a home was interrupted."""
    return (home / _IMPORTING).exists()


def is_read_only(home: Path) -> bool:
    """Tell whether a home is that of a copy (`pag_graph.neo4j_server.copying`)."""
    return (home / READ_ONLY).exists()


@contextmanager
def importing(home: Path) -> Iterator[None]:
    """Mark that the data of a home is being made anew; if that is interrupted, the server does not start on it."""
    marker = home / _IMPORTING
    with held(home):
        marker.touch()
    yield
    marker.unlink()


@contextmanager
def held(home: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a home, which is made if need be.

    Parameters
    ----------
    home
        The server's folder, absolute. Only its owner can enter it from now on.
    on_wait
        Called once if another process holds the lock; it is waited for without a limit.

    Yields
    ------
    None
        With the folders of a home and the version that it belongs to in place.

    Raises
    ------
    Neo4jError
        When the folder is something else than a home, holds data of another version of Neo4j, or lies on a file system
        without locks.
    """
    check_home(home)
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    with file_lock(home / "lock", on_wait):
        if version_of(home) is None:
            write_private(home / "version", neo4j_version() + "\n")
        for name in ("conf", "data", "import", "logs", "plugins"):
            (home / name).mkdir(exist_ok=True)
        yield


def check_home(home: Path) -> None:
    """Check that `home` is new or a server's home, with data of the version that this release runs.

    Raises
    ------
    Neo4jError
        When it is not.
    """
    home_version, own_version = version_of(home), neo4j_version()
    # The two files are all there is while another process makes this home.
    if home_version is None and home.exists() and {path.name for path in home.iterdir()} - {"lock", "version.new"}:
        message = f"{home} is not empty and is not the home of a Neo4j server."
        raise Neo4jError(message, "Name another folder, which may be new.", {"home": str(home)})
    if home_version not in {None, own_version}:
        message = f"The data in {home} was made by Neo4j {home_version}; this release runs Neo4j {own_version}."
        hint = (
            f"Empty {home} with `{own_command('reset', home)}`, or name another home, and load the runs again from "
            "their stores with `pag neo4j load`; to keep the old data, use the release that made it."
        )
        raise Neo4jError(message, hint, {"home": str(home), "found": home_version, "expected": own_version})


def version_of(home: Path) -> str | None:
    """Return the version of Neo4j that the data of `home` belongs to."""
    file = home / "version"
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def configure(home: Path, bolt_port: int, http_port: int, listen: str = HOST) -> str:
    """Write the configuration; the heap is no part of it, Java gets that as an option.

    Parameters
    ----------
    home
        The server's folder, with a folder ``conf``. What stood there before is replaced, and a copy stays read-only.
    bolt_port, http_port
        Where to listen; nothing is done to find out whether they are free.
    listen
        Name or address of this machine to listen on, without brackets; those in `ANYWHERE` stand for all of them.

    Returns
    -------
    str
        The name or address under which others reach the server: `listen`, or the machine's name where that is anywhere.
    """
    # Others cannot come to "anywhere"; they can to the machine's name.
    advertised = socket.getfqdn() if listen in ANYWHERE else listen
    text = _CONFIGURATION.format(
        listen=f"[{listen}]" if ":" in listen else listen,
        advertised=advertised,
        bolt_port=bolt_port,
        http_port=http_port,
    )
    text += browser.settings(http_port, advertised)
    if is_read_only(home):
        text += "server.databases.default_to_read_only=true\n"
    write_private(home / "conf" / "neo4j.conf", text)
    return advertised


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; readers see either the old text or the new one.

    Parameters
    ----------
    path
        The file, in a folder that is there. Beside it ``NAME.new`` is written and takes its place; of two who write at
        once one may fail, so hold the home (`held`).
    text
        All of it.
    """
    new_file = path.with_name(path.name + ".new")
    new_file.unlink(missing_ok=True)
    with open(new_file, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    new_file.replace(path)


def set_password(home: Path, jars: Path) -> None:
    """Give a new server its password; a server that has data and a password keeps both.

    Parameters
    ----------
    home
        The server's folder, which is held. The password is 48 random hexadecimal digits in its file ``password``.
    jars
        Folder of Neo4j's jars.

    Raises
    ------
    Neo4jError
        When there is data of a server, but no password; when there is no Java, or its tool fails.

    Notes
    -----
    It takes effect only before the first start. The tool reads its arguments from the file that an argument with an @
    names, so the password is never seen in the list of processes; hexadecimal needs no quotes there.
    """
    password, first_password = home / "password", home / "data" / "dbms" / "auth.ini"
    if not (home / "data" / "databases" / "system").exists():
        if first_password.exists() and password.exists():
            return
        # If this is interrupted, one of the two is missing, and both are made again.
        first_password.unlink(missing_ok=True)
        write_private(password, secrets.token_hex(24) + "\n")
        admin_tool(home, jars, ["dbms", "set-initial-password", f"@{password}"], "128m")
    elif not password.exists():
        message = f"{password} is gone, and the data in {home} cannot be read without it."
        hint = f"Put it back, or remove {home} and load the runs again with `pag neo4j load`."
        raise Neo4jError(message, hint, {"home": str(home)})


def admin_tool(home: Path, jars: Path, arguments: Sequence[str], heap: str) -> str:
    """Run ``neo4j-admin`` and return what it prints.

    Parameters
    ----------
    home
        Folder of the server that it works on, which is held.
    jars
        Folder of Neo4j's jars.
    arguments
        Its words, such as ``["dbms", "set-initial-password", "@FILE"]``; the first two are named in errors.
    heap
        Its memory, in Java's notation, such as ``128m``.

    Returns
    -------
    str
        Output and errors, in the order in which they came.

    Raises
    ------
    Neo4jError
        When it fails, with the last lines of what it printed; when there is no Java.
    """
    process = subprocess.run(
        [*admin_command(jars, heap), *arguments],
        env=environment(home, jars),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if process.returncode:
        last_lines = "".join(f"\n    {line}" for line in process.stdout.splitlines()[-_LOG_LINES:])
        message = f"neo4j-admin {' '.join(arguments[:2])} failed with exit code {process.returncode}:{last_lines}"
        raise Neo4jError(message, None, {"home": str(home), "exit_code": process.returncode})
    return process.stdout
