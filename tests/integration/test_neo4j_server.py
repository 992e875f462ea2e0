"""The embedded server, really started: two boots for the whole file, the second after a kill."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import neo4j.exceptions
import pytest

from pag_graph.neo4j_server import home as server_home
from pag_graph.neo4j_server import server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.neo4j


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a server on two free ports, the first choice for Bolt being taken; stop it in the end."""
    folder = tmp_path_factory.mktemp("neo4j") / "a home"
    with socket.create_server((server_home.HOST, 0)) as listener:
        taken = listener.getsockname()[1]
        started = server.start(folder, bolt_port=taken, http_port=0)
        assert started.bolt_uri != f"bolt://127.0.0.1:{taken}"
    yield folder
    assert server.stop(folder)
    assert not server.stop(folder)
    assert not server.status(folder).running


def get(uri: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(uri.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def listening_addresses(pid: int) -> set[tuple[str, int]]:
    """Read the addresses, in hexadecimal, and ports on which a process listens."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the connection of the last query is being closed
            link = str(descriptor.readlink())
            inodes.add(link.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{family}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[3] == "0A" and fields[9] in inodes:
                found.add((address, int(port, 16)))
    return found


def test_answers_queries_as_the_pinned_version(home: Path) -> None:
    started = server.start(home)

    assert (started.running, started.responsive) == (True, True)
    with server.driver(started) as driver:
        rows, _, _ = driver.execute_query("CALL dbms.components() YIELD versions, edition")
    assert rows[0].data() == {"versions": [started.version], "edition": "community"}


def test_start_is_idempotent(home: Path) -> None:
    assert server.start(home) == server.start(home, bolt_port=7000) == server.status(home)


def test_listens_on_loopback_only(home: Path) -> None:
    started = server.start(home)
    assert started.pid
    assert started.bolt_uri
    assert started.http_uri
    addresses = listening_addresses(started.pid)

    ports = {int(uri.rsplit(":", 1)[1]) for uri in (started.bolt_uri, started.http_uri)}
    assert {port for _, port in addresses} == ports
    # 127.0.0.1, also in the form in which an IPv6 socket has it; byte order is the machine's.
    assert {address for address, _ in addresses} <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_password_is_for_the_owner_only(home: Path) -> None:
    started = server.start(home)
    password = started.password_file.read_text(encoding="utf-8").strip()

    assert started.password_file.stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert len(password) == 48
    assert password not in Path(f"/proc/{started.pid}/cmdline").read_text(encoding="utf-8")
    assert password not in Path(f"/proc/{started.pid}/environ").read_text(encoding="utf-8")


@pytest.mark.parametrize("auth", [("neo4j", "neo4j"), None])
def test_wrong_password_is_refused(home: Path, auth: tuple[str, str] | None) -> None:
    started = server.start(home)
    assert started.bolt_uri

    with (
        neo4j.GraphDatabase.driver(started.bolt_uri, auth=auth) as driver,
        pytest.raises((neo4j.exceptions.AuthError, neo4j.exceptions.ClientError)),
    ):
        driver.execute_query("RETURN 1")


def test_browser_is_served_and_pointed_at_the_real_port(home: Path) -> None:
    started = server.start(home)
    assert started.http_uri

    code, text = get(started.http_uri, "/")
    assert code == 200
    assert f'"bolt_direct":"{started.bolt_uri}"' in text
    code, text = get(started.http_uri, "/browser/")
    assert code == 200
    assert "<title>Neo4j Browser</title>" in text


def test_killed_server_starts_again_with_its_data(home: Path) -> None:
    first = server.start(home)
    assert first.pid
    with server.driver(first) as driver:
        driver.execute_query("CREATE (:Kept {value: 42})")

    os.kill(first.pid, signal.SIGKILL)
    while server.status(home).running:
        time.sleep(0.05)
    assert (home / "server.json").exists()

    second = server.start(home, bolt_port=0, http_port=0)
    assert second.pid != first.pid
    with server.driver(second) as driver:
        rows, _, _ = driver.execute_query("MATCH (n:Kept) RETURN n.value AS value")
    assert [row["value"] for row in rows] == [42]


def test_killed_command_leaves_a_server_that_the_next_one_finds(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    code = (
        "import sys; from pathlib import Path; from pag_graph.neo4j_server import server; "
        "server.start(Path(sys.argv[1]), bolt_port=0, http_port=0)"
    )
    try:
        with subprocess.Popen([sys.executable, "-c", code, str(folder)]) as command:
            deadline = time.monotonic() + 240
            while not (folder / "server.json").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            pid = json.loads((folder / "server.json").read_text(encoding="utf-8"))["pid"]
            command.kill()
        found = server.start(folder)
        assert found.responsive
        assert found.pid == pid
        assert server.log_lines(folder)
    finally:
        assert server.reset(folder)
    assert not server.status(folder).running
    assert {path.name for path in folder.iterdir()} <= {"lock"}
