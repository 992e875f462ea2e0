"""The process of a server: started in a session of its own, found again by its record, ended politely first."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pag_graph.neo4j_server import java
from pag_graph.neo4j_server.home import ANYWHERE, HOST, write_private

POLL_S = 0.25
"""How often to look whether a server has come up or ended."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server process as `server.json` records it; the start time tells it from a later one with its pid."""

    pid: int
    start_ticks: int
    bolt_port: int
    http_port: int
    listen: str = HOST

    @property
    def host(self) -> str:
        """Where to reach it from this machine."""
        return HOST if self.listen in ANYWHERE else self.listen


def launch(home: Path, jars: Path, planned: ServerProcess, heap: str) -> ServerProcess:
    """Start the server's process, in a session of its own so that it outlives the terminal, and record it.

    Parameters
    ----------
    home
        The server's folder, held and configured. ``logs/console.log`` is begun anew, ``server.json`` replaced.
    jars
        Folder of Neo4j's jars.
    planned
        With the ports and the address that the configuration has; process and start time are filled in here.
    heap
        Its memory, in Java's notation.

    Returns
    -------
    ServerProcess
        Recorded; it need not answer yet, and may have ended already.

    Raises
    ------
    Neo4jError
        When there is no Java.
    """
    # Of a server that was killed while it wrote it.
    (home / java.WRITTEN).unlink(missing_ok=True)
    command = java.server_command(home, jars, heap)
    log = str(home / "logs" / "console.log")
    # Not Popen, whose object would warn, when it is collected, that its process still runs.
    pid = os.posix_spawn(
        command[0],
        command,
        java.environment(home, jars),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = replace(planned, pid=pid, start_ticks=start_ticks(pid) or 0)
    write_private(home / "server.json", json.dumps(asdict(process)) + "\n")
    return process


def running_in(home: Path) -> ServerProcess | None:
    """Return the process that `server.json` records if it is alive and is the server of this home."""
    try:
        process = ServerProcess(**json.loads((home / "server.json").read_text(encoding="utf-8")))
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, TypeError):
        return None
    return process if is_alive(process) and os.fsencode(f"--home-dir={home}") in command else None


def is_alive(process: ServerProcess) -> bool:
    """Tell whether it is this process that has its number."""
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


def end(home: Path, process: ServerProcess, timeout_s: float) -> bool:
    """End a process, politely first, so that it can write a checkpoint; then its record goes.

    Parameters
    ----------
    home
        The server's folder, held.
    process
        Its process; nothing is done to a later one that has the same number.
    timeout_s
        How long it may take before it is killed. After that it is waited for 10 s at most.

    Returns
    -------
    bool
        Whether it ended without being killed.
    """
    killed = False
    for kind, patience_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, 10.0)):
        deadline = time.monotonic() + patience_s
        with suppress(ProcessLookupError):
            if is_alive(process):
                os.kill(process.pid, kind)
                killed = kind is signal.SIGKILL
        while is_alive(process) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    with suppress(ChildProcessError):  # it is a child only of the process that started it
        os.waitpid(process.pid, os.WNOHANG)
    (home / "server.json").unlink(missing_ok=True)
    return not killed


def bolt_uri(process: ServerProcess) -> str:
    """Return where drivers reach a server."""
    return f"bolt://{process.host}:{process.bolt_port}"
