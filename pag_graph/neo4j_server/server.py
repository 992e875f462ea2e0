"""A real Neo4j Community server of one's own: made from jars, on loopback, with a password of its own."""

from __future__ import annotations

import shutil
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pag_graph.errors import MissingExtraError, Neo4jError
from pag_graph.neo4j_server import browser
from pag_graph.neo4j_server.home import (
    CONTENTS,
    HOST,
    admin_tool,
    configure,
    held,
    home_folder,
    is_half_imported,
    is_read_only,
    own_command,
    set_password,
    version_of,
)
from pag_graph.neo4j_server.jars import file_lock, install, installation, tail
from pag_graph.neo4j_server.java import keep_archive
from pag_graph.neo4j_server.ports import free_port
from pag_graph.neo4j_server.process import POLL_S, ServerProcess, bolt_uri, end, is_alive, launch, running_in
from pag_graph.neo4j_server.trouble import Trouble, disk_full, find_trouble, heaps, log_sizes, out_of_memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import neo4j

    from pag_graph.neo4j_server.jars import Progress

USER = "neo4j"

_LOG_LINES = 12
_STOPPING_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """What is known of the server of one home folder.

    `running` says that its process is alive, `responsive` that it answered a query just now. Process and
    addresses are `None` when it does not run, `version` when there has never been a server.
    """

    running: bool
    responsive: bool
    pid: int | None
    bolt_uri: str | None
    http_uri: str | None
    user: str
    home: Path
    version: str | None
    password_file: Path


def start(
    home: Path | None = None,
    *,
    bolt_port: int = 7687,
    http_port: int = 7474,
    fixed_ports: bool = False,
    heap: str = "512m",
    listen: str = HOST,
    progress: Progress | None = None,
    timeout_s: float = 240.0,
) -> ServerStatus:
    """Start the server of `home` and wait until it answers; if it runs already, return its status.

    Parameters
    ----------
    home
        The server's folder: ``$PAG_HOME/neo4j``, else ``pag-graph/neo4j`` in the user's data folder.
    bolt_port, http_port
        Where to listen, on loopback. A port that is taken makes way for the next free one, 0 stands for any.
    fixed_ports
        Take exactly these ports or fail.
    heap
        Memory, in Java's notation. Where the log says that it is too little, as to recover after a full disk, the
        server is started with twice as much, up to half of the machine's.
    listen
        Address of this machine to listen on; anything but loopback lets the network in, without TLS.
    progress
        Called while jars arrive and, with seconds, while the server starts.
    timeout_s
        How long to wait for the first answer.

    Raises
    ------
    Neo4jError
        When the server cannot be installed or started, with the last lines of its log; when `home` holds data
        of another version of Neo4j, or something else.
    MissingExtraError
        When the driver, or jgo for the installation, is not installed.
    InvalidParameterError
        When a port lies outside of 0 to 65535, `listen` is no address of this machine, or `heap` no amount of memory.
    """
    _require_driver()
    home = home_folder(home)
    report = progress or (lambda *_: None)
    with held(home, lambda: report("waiting for another start of this server", 0, round(timeout_s))):
        process = running_in(home)
        if process is not None:
            try:
                _wait_until_ready(home, process, report, timeout_s, log_sizes(home))
            except _OutOfMemoryError as error:
                lacking = out_of_memory(home, "what it was given", str(error))
                raise lacking from error
            return status(home)
        if is_half_imported(home):
            message = f"A bulk import into {home} was interrupted, so its data is incomplete."
            load_command = own_command("load STORE --bulk", home)
            import_command = f"pag neo4j copy {home} --replace" if is_read_only(home) else load_command
            hint = f"Repeat the import (`{import_command}`), or empty the server: `{own_command('reset', home)}`."
            raise Neo4jError(message, hint, {"home": str(home)})
        bolt = free_port(bolt_port, fixed=fixed_ports, host=listen)
        http = free_port(http_port, fixed=fixed_ports, besides=bolt, host=listen)
        advertised = configure(home, bolt, http, listen)
        jars = _equip(home, advertised, report)
        _launch_with_enough(home, jars, ServerProcess(0, 0, bolt, http, listen), heap, report, timeout_s)
    return status(home)


def prepare(home: Path | None = None, progress: Progress | None = None) -> None:
    """Do what the first start of a server does before its process, so that it starts sooner: jars, Browser, password.

    Parameters
    ----------
    home, progress
        As for `start`.

    Raises
    ------
    Neo4jError
        When it cannot be installed, or `home` is something else.
    """
    home = home_folder(home)
    with held(home):
        _equip(home, HOST, progress or (lambda *_: None))


def _equip(home: Path, advertised: str, report: Progress) -> Path:
    """Bring what the process of a server needs; return the folder of the jars."""
    jars = install(progress=report)
    browser.install(home, jars, advertised)
    report("setting the password", 0, 1)
    set_password(home, jars)
    report("setting the password", 1, 1)
    return jars


class _OutOfMemoryError(Exception):
    """A server that was started needs more memory than it was given; holds the line of its log."""


def _launch_with_enough(
    home: Path, jars: Path, planned: ServerProcess, heap: str, report: Progress, timeout_s: float
) -> None:
    """Start the process and wait for it; with more memory where its log says that it needs that to recover.

    Raises
    ------
    Neo4jError
        When it does not come up.
    """
    line = ""
    for memory in heaps(heap):
        if memory != heap:
            report(f"starting Neo4j again with {memory} of memory, which it lacked", 0, round(timeout_s))
        heap = memory
        before = log_sizes(home)
        process = launch(home, jars, planned, memory)
        try:
            _wait_until_ready(home, process, report, timeout_s, {**before, "console.log": 0})
        except _OutOfMemoryError as error:
            end(home, process, timeout_s=1.0)
            line = str(error)
        except BaseException:  # an interrupt as well must not leave a server behind that nobody waits for
            end(home, process, timeout_s=10.0)
            raise
        else:
            return
    lacking = out_of_memory(home, heap, line)
    raise lacking


def stop(home: Path | None = None, timeout_s: float = _STOPPING_S) -> bool:
    """Stop the server of a home; what was committed is kept.

    Parameters
    ----------
    home
        The server's folder; the default one where absent.
    timeout_s
        How long it may take before it is killed.

    Returns
    -------
    bool
        Whether one was running; where none was, nothing happens.

    Raises
    ------
    Neo4jError
        When the file system of `home` has no locks.
    """
    home = home_folder(home)
    if not (home / "server.json").exists():
        return False
    with file_lock(home / "lock"):
        process = running_in(home)
        if process is not None and end(home, process, timeout_s):
            keep_archive(home, installation())
    return process is not None


def status(home: Path | None = None) -> ServerStatus:
    """Say whether the server of `home` runs, where, and whether it answers."""
    home = home_folder(home)
    process = running_in(home)
    return ServerStatus(
        running=process is not None,
        responsive=process is not None and _trouble(home, process) is None,
        pid=process.pid if process else None,
        bolt_uri=bolt_uri(process) if process else None,
        http_uri=f"http://{process.host}:{process.http_port}" if process else None,
        user=USER,
        home=home,
        version=version_of(home),
        password_file=home / "password",
    )


def reset(home: Path | None = None) -> bool:
    """Stop the server of `home` and remove its data, password and logs; say whether there was anything.

    Raises
    ------
    Neo4jError
        When `home` is something else than the home of a server.
    """
    home = home_folder(home)
    if not home.exists():
        return False
    if version_of(home) is None and {path.name for path in home.iterdir()} - {"lock"}:
        message = f"{home} is not the home of a Neo4j server; nothing was removed."
        raise Neo4jError(message, "Name the server's folder.", {"home": str(home)})
    with file_lock(home / "lock"):
        process = running_in(home)
        if process is not None and end(home, process, _STOPPING_S):
            keep_archive(home, installation())
        anything = False
        for name in CONTENTS:
            path = home / name
            anything = anything or path.exists()
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return anything


def log_lines(home: Path | None = None, count: int = 40) -> list[str]:
    """Return the last lines of the server's log, or of what it printed before it had one.

    Parameters
    ----------
    home
        The server's folder; the default one where absent. The server may run.
    count
        How many lines; empty ones and frames of Java's stacks are left out.

    Returns
    -------
    list of str
        Oldest first; none if it never ran.
    """
    home = home_folder(home)
    return tail(home / "logs" / "neo4j.log", count) or tail(home / "logs" / "console.log", count)


def driver(server: ServerStatus) -> neo4j.Driver:
    """Open a driver to a running server; the caller closes it.

    Notifications are off: the driver would log one for each label that a query names before it is in use.

    Raises
    ------
    Neo4jError
        When the server does not run.
    """
    if server.bolt_uri is None:
        message = f"No Neo4j server runs in {server.home}."
        raise Neo4jError(message, f"Start it: `{own_command('start', server.home)}`.", {"home": str(server.home)})
    return _open(server.bolt_uri, server.password_file)


def administer(arguments: Sequence[str], home: Path | None = None, *, heap: str = "512m") -> str:
    """Run one command of ``neo4j-admin``, such as ``database import full``, and return what it prints.

    Parameters
    ----------
    arguments
        Words of the command.
    home
        The server's folder; the default one where absent. The server has to be stopped; it need not ever have been
        started.
    heap
        Memory of the command, in Java's notation.

    Returns
    -------
    str
        Output and errors, in the order in which they came.

    Raises
    ------
    Neo4jError
        When the server runs, the command fails, or the jars or Java are missing; when `home` is no home of this
        version.
    MissingExtraError
        When jgo, which fetches the jars, is needed and not installed.
    """
    home = home_folder(home)
    with held(home):
        if running_in(home) is not None:
            message = f"The Neo4j server in {home} runs; its data can be administered when it is stopped."
            raise Neo4jError(message, f"Stop it: `{own_command('stop', home)}`.", {"home": str(home)})
        return admin_tool(home, install(), arguments, heap)


def _wait_until_ready(
    home: Path, process: ServerProcess, report: Progress, timeout_s: float, before: Mapping[str, int]
) -> None:
    """Wait until the server answers a query; `before` says how long its logs were when it was started.

    Raises
    ------
    Neo4jError
        When it ends, refuses the password, does not answer in time, or its disk is full.
    _OutOfMemoryError
        When its log says that it ran out of memory.
    """
    import neo4j.exceptions

    began = time.monotonic()
    while (trouble := _trouble(home, process)) is not None:
        passed = time.monotonic() - began
        report("starting Neo4j", round(passed), round(timeout_s))
        console, server_log = home / "logs" / "console.log", home / "logs" / "neo4j.log"
        context = {"home": str(home), "pid": process.pid, "log": str(console)}
        if isinstance(trouble, neo4j.exceptions.AuthError):
            message = f"The Neo4j server in {home} refuses the password in {home / 'password'}."
            raise Neo4jError(message, f"Write the right one into that file: {trouble.message}", context) from trouble
        alive = is_alive(process)
        # A database that a full disk has stopped says no more about it; what it said stands further up.
        stopped = getattr(trouble, "code", None) == "Neo.DatabaseError.Transaction.TransactionStartFailed"
        lacks = find_trouble(home, {} if stopped else before)
        if lacks is not None and lacks[0] is Trouble.DISK:
            error = disk_full(home, lacks[1])
            raise error from trouble
        if lacks is not None:
            raise _OutOfMemoryError(lacks[1]) from trouble
        if not alive or passed > timeout_s:
            problem = f"does not answer after {timeout_s:g} s" if alive else "ended while it was starting"
            # The console has words only if things went wrong before the server had a log, or badly.
            lines = tail(console, _LOG_LINES) or tail(server_log, _LOG_LINES)
            last_lines = "".join(f"\n    {line}" for line in lines)
            message = f"The Neo4j server in {home} {problem}. The last lines of its log:{last_lines}"
            hint = "Give it more time (timeout) or memory (heap)." if alive else f"See {console} and {server_log}."
            raise Neo4jError(message, hint, context) from trouble
        time.sleep(POLL_S)


def _trouble(home: Path, process: ServerProcess) -> Exception | None:
    """Ask the server a query; return `None` if it answers, else what went wrong."""
    try:
        # The driver would take its time to find out that nobody listens yet; HTTP comes a little later than Bolt.
        for port in (process.bolt_port, process.http_port):
            socket.create_connection((process.host, port), timeout=5.0).close()
    except OSError as error:
        return error
    _require_driver()
    import neo4j.exceptions

    try:
        with _open(bolt_uri(process), home / "password") as connection, connection.session() as session:
            session.run("RETURN 1").consume()
    except (neo4j.exceptions.DriverError, neo4j.exceptions.Neo4jError, OSError) as error:
        return error
    return None


def _open(uri: str, password_file: Path) -> neo4j.Driver:
    _require_driver()
    import neo4j

    password = password_file.read_text(encoding="utf-8").strip()
    return neo4j.GraphDatabase.driver(
        uri,
        auth=(USER, password),
        connection_timeout=10.0,
        notifications_min_severity="OFF",
        telemetry_disabled=True,
    )


def _require_driver() -> None:
    """Import Neo4j's driver.

    Raises
    ------
    MissingExtraError
        When it is not installed.
    """
    try:
        import neo4j  # noqa: F401
    except ImportError as error:
        missing = MissingExtraError.from_extra(what="Neo4j", extra="neo4j")
        raise missing from error
