"""Servers that are reached through a network: encrypted, with the wrong certificate, and with lines that break."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from pag_graph.errors import Neo4jError
from pag_graph.neo4j_server import server
from pag_graph.sinks.neo4j.connection import Connection, connection_from_environment
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.loader import LoadOptions, load_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import neo4j

    from pag_graph.graph.run import Run
    from pag_graph.neo4j_server.server import ServerStatus

pytestmark = pytest.mark.neo4j

CUTS = 6 if os.environ.get("PAG_PROVE") == "1" else 3


class Forwarder:
    """Takes connections on a port of loopback and passes all bytes on to a server's; can break every line at once."""

    def __init__(self, target: str, context: ssl.SSLContext | None = None) -> None:
        address = urlsplit(target)
        self.target, self.context = (address.hostname, address.port), context
        self.lines: list[socket.socket] = []
        self.passed = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        if self.context is not None:
            try:
                near = self.context.wrap_socket(near, server_side=True)
            except OSError:  # the client does not trust us
                near.close()
                return
        far = socket.create_connection(self.target)
        self.lines += [near, far]
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65_536):
                self.passed += len(content)
                sink.sendall(content)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        """Break every line; new ones can be made."""
        lines, self.lines = self.lines, []
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.close()
        self.cut()


@contextmanager
def forwarder(target: ServerStatus, context: ssl.SSLContext | None = None) -> Iterator[Forwarder]:
    assert target.bolt_uri is not None
    opened = Forwarder(target.bolt_uri, context)
    try:
        yield opened
    finally:
        opened.close()


def authority(folder: Path) -> tuple[Path, Path]:
    """Make a certificate that signs itself, for localhost, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("a certificate is made with openssl, which is not on the path")
    folder.mkdir()
    certificate, key = folder / "ca.pem", folder / "key.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-out", certificate, "-keyout", key, *name]
    subprocess.run([openssl, *map(str, made)], check=True, capture_output=True, timeout=60)
    return certificate, key


def contents(driver: neo4j.Driver) -> list[str]:
    text = (
        "MATCH (n) WHERE NOT n:Lease OPTIONAL MATCH (n)-[r]->(m) "
        "RETURN labels(n) AS labels, properties(n) AS has, type(r) AS type, properties(r) AS of, properties(m) AS end"
    )
    records = driver.execute_query(text).records
    return sorted(repr([sorted(v.items()) if isinstance(v, dict) else v for v in record]) for record in records)


def test_a_server_with_tls_is_trusted_by_its_certificate(
    neo4j_server: ServerStatus,
    neo4j_driver: neo4j.Driver,
    skewed: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_pag: Callable[..., tuple[int, str, str]],
) -> None:
    del neo4j_driver  # it empties the database
    certificate, key = authority(tmp_path / "right")
    other, _ = authority(tmp_path / "wrong")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("NEO4J_PASSWORD_FILE", str(neo4j_server.password_file))
    monkeypatch.delenv("NEO4J_PASSWORD", raising=False)
    for ca, code in ((certificate, 0), (other, 6)):
        # A line of its own for each: the goodbye of the one before would still be under way.
        with forwarder(neo4j_server, context) as line:
            uri = f"bolt+s://localhost:{line.port}"
            monkeypatch.setenv("NEO4J_CA", str(ca))
            ended, out, err = run_pag("neo4j", "load", skewed.info.path, "-e", "4", "--uri", uri, "--format", "json")
            assert ended == code, err
            if code == 0:
                assert json.loads(out)["epochs"] == [4]
                assert line.passed > 0
            else:
                assert "SSLCertVerificationError" in err
                # Nothing was said to a server that is not the right one, the password least of all.
                assert line.passed == 0
    # What is encrypted is not spoken without.
    monkeypatch.delenv("NEO4J_CA")
    with forwarder(neo4j_server, context) as line:
        plain = connection_from_environment(f"bolt://localhost:{line.port}")
        with plain.open() as driver, pytest.raises(Neo4jError, match="Could not load run"):
            load_run(skewed, driver, epochs=[4], again=True)


def test_a_load_goes_on_when_lines_break(
    neo4j_server: ServerStatus, neo4j_driver: neo4j.Driver, first_rounds: Run
) -> None:
    options = LoadOptions(detail=Detail.FULL, batch_rows=100, group_edges=400, sessions=2)
    load_run(first_rounds, neo4j_driver, options=options)
    expected = contents(neo4j_driver)
    neo4j_driver.execute_query("MATCH (n) DETACH DELETE n")
    chance = random.Random(7)
    assert neo4j_server.bolt_uri is not None
    password = neo4j_server.password_file.read_text(encoding="utf-8").strip()
    with forwarder(neo4j_server) as line:
        whole = Connection(uri=f"bolt://127.0.0.1:{line.port}", user=server.USER, password=password)
        cuts: list[int] = []
        done = threading.Event()

        def cutter() -> None:
            # Again and again after some bytes, so that it hits different transactions, on slow machines as well.
            while len(cuts) < CUTS and not done.is_set():
                limit = line.passed + chance.randrange(20_000, 60_000)
                while line.passed < limit and not done.is_set():
                    done.wait(0.002)
                cuts.append(line.passed)
                line.cut()

        thread = threading.Thread(target=cutter)
        thread.start()
        try:
            with whole.open() as driver:
                report = load_run(first_rounds, driver, options=options)
        finally:
            done.set()
            thread.join()
    assert len(cuts) >= CUTS // 2
    assert set(report.epochs) | set(report.skipped) == set(first_rounds.epochs["epoch"])
    assert contents(neo4j_driver) == expected
