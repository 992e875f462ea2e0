"""A real Neo4j Community server of one's own: made from jars, on loopback, with a password of its own.

Everything of a server lies in its home folder, which only its owner can enter::

    version      of Neo4j that the data belongs to
    password     of the user `neo4j`
    server.json  the process that runs, with its start time, and its ports
    lock         held while a server is started or stopped, or its data administered
    conf  data  import  logs  plugins
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.errors import MissingExtraError, Neo4jError
from pag_graph.neo4j_server import browser
from pag_graph.neo4j_server.jars import file_lock, find_java, install, neo4j_version, tail
from pag_graph.runtime.folders import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import neo4j

    from pag_graph.neo4j_server.jars import Progress

HOST = "127.0.0.1"
USER = "neo4j"

_PORTS_TRIED = 100
_FIXED_TRIES, _FIXED_PAUSE_S = 25, 0.2
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104  (compared with, not bound to)
_POLL_S = 0.25
_LOG_LINES = 12
_IMPORTING = "importing"

# Advertised addresses carry the port, or the Browser would look for Bolt at 7687. Logs of transactions are not
# allocated in advance: that would take 512 MiB of disk before the first node is written.
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
server.memory.pagecache.size={page_cache}
db.tx_log.preallocate=false
"""


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


@dataclass(frozen=True, slots=True)
class _Process:
    """A server process as `server.json` records it; the start time tells it from a later one with its pid."""

    pid: int
    start_ticks: int
    bolt_port: int
    http_port: int
    listen: str = HOST

    @property
    def host(self) -> str:
        """Where to reach it from this machine."""
        return HOST if self.listen in _ANYWHERE else self.listen


def start(
    home: Path | None = None,
    *,
    bolt_port: int = 7687,
    http_port: int = 7474,
    fixed_ports: bool = False,
    heap: str = "512m",
    page_cache: str = "256m",
    listen: str = HOST,
    cache: Path | None = None,
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
    heap, page_cache
        Memory, in Java's notation.
    listen
        Address of this machine to listen on; anything but loopback lets the network in, without TLS.
    cache
        Where the jars are kept; see `jars.install`.
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
    """
    _require_driver()
    home = home_folder(home)
    report = progress or (lambda *_: None)
    with _held(home, lambda: report("waiting for another start of this server", 0, round(timeout_s))):
        process = _running(home)
        if process is not None:
            _wait_until_ready(home, process, report, timeout_s)
            return status(home)
        if is_half_imported(home):
            message = f"A bulk import into {home} was interrupted, and its data is not whole."
            hint = "Do the import again (`pag neo4j load STORE --bulk`), or empty the server: `pag neo4j reset`."
            raise Neo4jError(message, hint, {"home": str(home)})
        bolt = free_port(bolt_port, fixed=fixed_ports, host=listen)
        http = free_port(http_port, fixed=fixed_ports, besides=bolt, host=listen)
        _configure(home, bolt, http, page_cache, listen)
        jars = install(cache, progress)
        browser.install(home, jars)
        _set_password(home, jars)
        process = _launch(home, jars, _Process(0, 0, bolt, http, listen), heap)
        try:
            _wait_until_ready(home, process, report, timeout_s)
        except BaseException:  # an interrupt as well must not leave a server behind that nobody waits for
            _end(home, process, timeout_s=10.0)
            raise
    return status(home)


def stop(home: Path | None = None, timeout_s: float = 60.0) -> bool:
    """Stop the server of `home`; kill it when it has not ended after `timeout_s`. Say whether one was running."""
    home = home_folder(home)
    if not (home / "server.json").exists():
        return False
    with file_lock(home / "lock"):
        process = _running(home)
        if process is not None:
            _end(home, process, timeout_s)
    return process is not None


def status(home: Path | None = None) -> ServerStatus:
    """Say whether the server of `home` runs, where, and whether it answers."""
    home = home_folder(home)
    process = _running(home)
    return ServerStatus(
        running=process is not None,
        responsive=process is not None and _trouble(home, process) is None,
        pid=process.pid if process else None,
        bolt_uri=_bolt_uri(process) if process else None,
        http_uri=f"http://{process.host}:{process.http_port}" if process else None,
        user=USER,
        home=home,
        version=_version(home),
        password_file=home / "password",
    )


def reset(home: Path | None = None, timeout_s: float = 60.0) -> bool:
    """Stop the server of `home` and remove its data, password and logs; say whether there was anything.

    Raises
    ------
    Neo4jError
        When `home` is something else than the home of a server.
    """
    home = home_folder(home)
    if not home.exists():
        return False
    if _version(home) is None and {path.name for path in home.iterdir()} - {"lock"}:
        message = f"{home} is not the home of a Neo4j server; nothing was removed."
        raise Neo4jError(message, "Name the server's folder.", {"home": str(home)})
    with file_lock(home / "lock"):
        process = _running(home)
        if process is not None:
            _end(home, process, timeout_s)
        found = False
        for name in (
            "data",
            "logs",
            "run",
            "import",
            "conf",
            "plugins",
            "password",
            "server.json",
            _IMPORTING,
            "version",
        ):
            path = home / name
            found = found or path.exists()
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return found


def log_lines(home: Path | None = None, count: int = 40) -> list[str]:
    """Return the last lines of the server's log, or of what it printed before it had one; none if it never ran."""
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
        raise Neo4jError(message, "Start it: `pag neo4j start`.", {"home": str(server.home)})
    return _open(server.bolt_uri, server.password_file)


def administer(
    arguments: Sequence[str], home: Path | None = None, *, heap: str = "512m", cache: Path | None = None
) -> str:
    """Run one command of ``neo4j-admin``, such as ``database import full``, and return what it prints.

    The server of `home` has to be stopped; it need not ever have been started.

    Raises
    ------
    Neo4jError
        When the server runs or the command fails.
    """
    home = home_folder(home)
    with _held(home):
        if _running(home) is not None:
            message = f"The Neo4j server in {home} runs; its data can be administered when it is stopped."
            raise Neo4jError(message, "Stop it: `pag neo4j stop`.", {"home": str(home)})
        return _admin_tool(home, install(cache), arguments, heap)


def is_half_imported(home: Path) -> bool:
    """Tell whether an import into a home was interrupted."""
    return (home / _IMPORTING).exists()


@contextmanager
def importing(home: Path) -> Iterator[None]:
    """Mark that the data of a home is being made anew; if that is interrupted, the server does not start on it."""
    marker = home / _IMPORTING
    with _held(home):
        marker.touch()
    yield
    marker.unlink()


def home_folder(home: Path | None = None) -> Path:
    """Return the absolute folder of the server: `home`, else the default one."""
    if home is not None:
        return home.expanduser().resolve()
    return data_folder() / "neo4j"


def free_port(wanted: int, *, fixed: bool = False, besides: int | None = None, host: str = HOST) -> int:
    """Return `wanted` or, unless `fixed`, the next port on `host` that is free and not `besides`.

    Raises
    ------
    Neo4jError
        When there is none.
    """
    # A server that was killed holds its port until the system has taken it apart.
    tried = [wanted] * _FIXED_TRIES if fixed else range(wanted, min(wanted + _PORTS_TRIED, 65536))
    for number, port in enumerate(tried):
        if fixed and number:
            time.sleep(_FIXED_PAUSE_S)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe, suppress(OSError):
            # As Java does: a port that only waits for the last packets of a closed connection counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            found = int(probe.getsockname()[1])
            if found != besides:
                return found
    message = f"Port {wanted} is taken." if fixed else f"No port from {wanted} to {port} is free."
    raise Neo4jError(message, "Name other ports: `pag neo4j start --bolt-port ... --http-port ...`.", {"port": wanted})


@contextmanager
def _held(home: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a home, which is made if need be."""
    _check_home(home)
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    with file_lock(home / "lock", on_wait):
        if _version(home) is None:
            _write(home / "version", neo4j_version() + "\n")
        for name in ("conf", "data", "import", "logs", "plugins"):
            (home / name).mkdir(exist_ok=True)
        yield


def _check_home(home: Path) -> None:
    """Check that `home` is new or a server's home, with data of the version that this release runs.

    Raises
    ------
    Neo4jError
        When it is not.
    """
    found, ours = _version(home), neo4j_version()
    # The two files are all there is while another process makes this home.
    if found is None and home.exists() and {path.name for path in home.iterdir()} - {"lock", "version.new"}:
        message = f"{home} is not empty and is not the home of a Neo4j server."
        raise Neo4jError(message, "Name another folder, which may be new.", {"home": str(home)})
    if found not in {None, ours}:
        message = f"The data in {home} was made by Neo4j {found}; this release runs Neo4j {ours}."
        hint = (
            f"Empty {home} with `pag neo4j reset`, or name another home, and load the runs again from their stores "
            "with `pag neo4j load`; to keep the old data, use the release that made it."
        )
        raise Neo4jError(message, hint, {"home": str(home), "found": found, "expected": ours})


def _version(home: Path) -> str | None:
    """Return the version of Neo4j that the data of `home` belongs to."""
    file = home / "version"
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def _configure(home: Path, bolt_port: int, http_port: int, page_cache: str, listen: str = HOST) -> None:
    """Write the configuration; the heap is no part of it, Java gets that as an option."""
    # Others cannot come to "anywhere"; they can to the machine's name.
    advertised = socket.getfqdn() if listen in _ANYWHERE else listen
    text = _CONFIGURATION.format(
        listen=f"[{listen}]" if ":" in listen else listen,
        advertised=advertised,
        bolt_port=bolt_port,
        http_port=http_port,
        page_cache=page_cache,
    )
    text += browser.settings(http_port, advertised)
    _write(home / "conf" / "neo4j.conf", text)


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner can read; whoever reads it sees the old text or the new one."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(new, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    new.replace(path)


def _set_password(home: Path, jars: Path) -> None:
    """Give a new server its password.

    It takes effect only before the first start. The tool reads its arguments from the file that an argument with
    an @ names, so the password is never seen in the list of processes; hexadecimal needs no quotes there.

    Raises
    ------
    Neo4jError
        When there is data of a server, but no password.
    """
    password = home / "password"
    if not (home / "data" / "databases" / "system").exists():
        _write(password, secrets.token_hex(24) + "\n")
        _admin_tool(home, jars, ["dbms", "set-initial-password", f"@{password}"], "128m")
    elif not password.exists():
        message = f"{password} is gone, and the data in {home} cannot be read without it."
        hint = f"Put it back, or remove {home} and load the runs again with `pag neo4j load`."
        raise Neo4jError(message, hint, {"home": str(home)})


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "NEO4J_HOME": str(home), "NEO4J_CONF": str(home / "conf")}


def _admin_tool(home: Path, jars: Path, arguments: Sequence[str], heap: str) -> str:
    """Run ``neo4j-admin`` and return what it prints.

    Raises
    ------
    Neo4jError
        When it fails, with the last lines of what it printed.
    """
    # Nobody minds that an import pauses, and the collector that pauses takes less of the processor.
    java = [str(find_java()), f"-Xmx{heap}", "-XX:+UseParallelGC", "-cp", f"{home}/plugins/*:{home}/conf:{jars}/*"]
    done = subprocess.run(
        [*java, "org.neo4j.cli.AdminTool", *arguments],
        env=_environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        said = "".join(f"\n    {line}" for line in done.stdout.splitlines()[-_LOG_LINES:])
        message = f"neo4j-admin {' '.join(arguments[:2])} failed with exit code {done.returncode}:{said}"
        raise Neo4jError(message, None, {"home": str(home), "exit_code": done.returncode})
    return done.stdout


def _launch(home: Path, jars: Path, planned: _Process, heap: str) -> _Process:
    """Start the server's process, in a session of its own so that it outlives the terminal, and record it."""
    command = [str(find_java()), f"-Xmx{heap}", "-cp", f"{home}/plugins/*:{home}/conf:{jars}/*"]
    command += ["org.neo4j.server.CommunityEntryPoint", f"--home-dir={home}", f"--config-dir={home}/conf"]
    log = str(home / "logs" / "console.log")
    # Not Popen, whose object would warn, when it is collected, that its process still runs.
    pid = os.posix_spawn(
        command[0],
        command,
        _environment(home),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = replace(planned, pid=pid, start_ticks=start_ticks(pid) or 0)
    _write(home / "server.json", json.dumps(asdict(process)) + "\n")
    return process


def _running(home: Path) -> _Process | None:
    """Return the process that `server.json` records if it is alive and is the server of this home."""
    try:
        process = _Process(**json.loads((home / "server.json").read_text(encoding="utf-8")))
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, TypeError):
        return None
    return process if _is_alive(process) and os.fsencode(f"--home-dir={home}") in command else None


def _is_alive(process: _Process) -> bool:
    return start_ticks(process.pid) == process.start_ticks


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; `None` when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The fields are counted after the command's name, which stands in parentheses and may itself hold some.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _end(home: Path, process: _Process, timeout_s: float) -> None:
    """End a process: politely first, so that it can write a checkpoint."""
    for kind, patience_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, 10.0)):
        deadline = time.monotonic() + patience_s
        with suppress(ProcessLookupError):
            if _is_alive(process):
                os.kill(process.pid, kind)
        while _is_alive(process) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    with suppress(ChildProcessError):  # it is a child only of the process that started it
        os.waitpid(process.pid, os.WNOHANG)
    (home / "server.json").unlink(missing_ok=True)


def _wait_until_ready(home: Path, process: _Process, report: Progress, timeout_s: float) -> None:
    """Wait until the server answers a query.

    Raises
    ------
    Neo4jError
        When it ends, refuses the password or does not answer in time.
    """
    import neo4j.exceptions

    began = time.monotonic()
    while (trouble := _trouble(home, process)) is not None:
        passed = time.monotonic() - began
        report("starting Neo4j", round(passed), round(timeout_s))
        console, own = home / "logs" / "console.log", home / "logs" / "neo4j.log"
        context = {"home": str(home), "pid": process.pid, "log": str(console)}
        if isinstance(trouble, neo4j.exceptions.AuthError):
            message = f"The Neo4j server in {home} refuses the password in {home / 'password'}."
            raise Neo4jError(message, f"Write the right one into that file: {trouble.message}", context) from trouble
        alive = _is_alive(process)
        if not alive or passed > timeout_s:
            what = f"does not answer after {timeout_s:g} s" if alive else "ended while it was starting"
            # The console has words only if things went wrong before the server had a log, or badly.
            lines = tail(console, _LOG_LINES) or tail(own, _LOG_LINES)
            said = "".join(f"\n    {line}" for line in lines)
            message = f"The Neo4j server in {home} {what}. The last lines of its log:{said}"
            hint = "Give it more time (timeout) or memory (heap)." if alive else f"See {console} and {own}."
            raise Neo4jError(message, hint, context) from trouble
        time.sleep(_POLL_S)


def _trouble(home: Path, process: _Process) -> Exception | None:
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
        with _open(_bolt_uri(process), home / "password") as connection, connection.session() as session:
            session.run("RETURN 1").consume()
    except (neo4j.exceptions.DriverError, neo4j.exceptions.Neo4jError, OSError) as error:
        return error
    return None


def _bolt_uri(process: _Process) -> str:
    return f"bolt://{process.host}:{process.bolt_port}"


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
