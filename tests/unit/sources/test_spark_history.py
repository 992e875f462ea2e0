"""Logs from a History Server: what it sends is taken in within bounds, and what it could do wrong is refused."""

from __future__ import annotations

import io
import json
import socket
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from pag_graph.cli.app import app
from pag_graph.errors import InvalidParameterError, StoreError, TraceFormatError
from pag_graph.sources.spark.history import HEADER, Bounds, choose_applications, fetch_application, spool
from pag_graph.sources.spark.logfiles import find_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG = Path(__file__).parents[2] / "data" / "spark" / "forms" / "two-jobs.zstd"


def archive(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as members:
        for name, content in files.items():
            members.writestr(name, content)
    return out.getvalue()


def applications(*rows: tuple[str, str, int]) -> bytes:
    listed = [{"id": i, "name": name, "attempts": [{"startTimeEpoch": start}]} for i, name, start in rows]
    return json.dumps(listed).encode()


class Server:
    """A server with fixed answers that remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers.get("X-Secret")))
                status, content, headers = outer.answers.get(self.path, (404, b"", {}))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: Any) -> None:
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def has(self, path: str, content: bytes, status: int = 200, **headers: str) -> None:
        self.answers[f"/api/v1/applications{path}"] = (status, content, headers)

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv(HEADER, raising=False)
    started = Server()
    yield started
    started.close()


def test_a_log_and_a_rolling_one_are_fetched(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADER, "X-Secret: 1234")
    server.has("/app-1/logs", archive(**{"app-1.zstd": LOG.read_bytes()}))
    rolled = {f"eventlog_v2_app-2/events_{n}_app-2": b'{"Event":"x"}\n' for n in (1, 2)}
    server.has("/app-2/logs", archive(**rolled, **{"eventlog_v2_app-2/appstatus_app-2": b""}))
    (log,) = find_logs(fetch_application(server.url, "app-1", tmp_path))
    assert log.files[0].read_bytes() == LOG.read_bytes()
    (log,) = find_logs(fetch_application(server.url + "/", "app-2", tmp_path))
    assert [file.name for file in log.files] == ["events_1_app-2", "events_2_app-2"]
    assert {secret for _, secret in server.asked} == {"1234"}
    assert not list(tmp_path.glob("*.zip"))


def test_the_newest_of_a_name_are_chosen(server: Server) -> None:
    rows = [("app-1", "daily load", 5), ("app-2", "daily load", 9), ("app-3", "other", 7), ("../x", "daily load", 99)]
    server.has("", applications(*rows))
    assert choose_applications(server.url, name="daily.*", last=5) == ["app-2", "app-1"]
    assert choose_applications(server.url) == ["app-2"]
    with pytest.raises(InvalidParameterError, match="not a regular expression"):
        choose_applications(server.url, name="(")


def test_it_is_not_sent_elsewhere_and_the_header_is_never_told(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HEADER, "X-Secret: hunter2")
    server.has("/app-1/logs", b"", 302, Location="http://127.0.0.2:1/elsewhere")
    server.has("/app-2/logs", b"", 403)
    for application, said in (("app-1", "redirects"), ("app-2", "HTTP 403"), ("app-3", "HTTP 404")):
        with pytest.raises(TraceFormatError, match=said) as caught:
            fetch_application(server.url, application, tmp_path)
        assert "hunter2" not in f"{caught.value} {caught.value.__cause__} {caught.value.hint}"
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (Bounds(archive_bytes=100), "The archive is larger"),
        (Bounds(content_bytes=1_000_000), "A file of the archive is larger"),
        (Bounds(ratio=2), "A file of the archive is larger"),
        (Bounds(members=1), "more than 1 files"),
    ],
)
def test_bombs_are_refused(server: Server, tmp_path: Path, bounds: Bounds, said: str) -> None:
    server.has("/app-1/logs", archive(a=bytes(5_000_000), b=b"x"))
    with pytest.raises(TraceFormatError, match=said):
        fetch_application(server.url, "app-1", tmp_path, bounds=bounds)


def test_nothing_leaves_the_folder(server: Server, tmp_path: Path) -> None:
    names = ("../../up.log", "/root.log", "a/../../b.log", "..\\win.log")
    server.has("/app-1/logs", archive(**dict.fromkeys(names, b'{"Event":"x"}\n')))
    place = fetch_application(server.url, "app-1", tmp_path / "in")
    assert {path.name for path in place.rglob("*.log")} == {"up.log", "root.log", "b.log", "win.log"}
    assert [path for path in tmp_path.rglob("*") if path.is_file() and place not in path.parents] == []


def test_what_is_no_archive_no_list_and_no_address(server: Server, tmp_path: Path) -> None:
    server.has("/app-1/logs", b"<html>")
    server.has("/app-2/logs", archive())
    server.has("", b'{"a": 1}')
    for application, said in (("app-1", "not an archive"), ("app-2", "holds no file")):
        with pytest.raises(TraceFormatError, match=said):
            fetch_application(server.url, application, tmp_path)
    with pytest.raises(TraceFormatError, match="cannot be read"):
        choose_applications(server.url)
    with pytest.raises(TraceFormatError, match="does not answer"):
        choose_applications("http://127.0.0.1:1")
    for address in ("file:///etc", "http://user:secret@127.0.0.1", "127.0.0.1:18080", "http://[::1"):
        with pytest.raises(InvalidParameterError, match="address"):
            choose_applications(address)
    with pytest.raises(InvalidParameterError, match="not an id"):
        fetch_application(server.url, "../x", tmp_path)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a/app-1/events", "b/app-1/events"), "two files of one name: app-1/events"),
        (("app-1", "app-1/events"), "two files of one name: app-1/events"),
        (("app-1/events", "app-1"), "two files of one name: app-1"),
    ],
)
def test_files_that_would_be_one_are_refused(server: Server, tmp_path: Path, names: tuple[str, str], said: str) -> None:
    server.has("/app-1/logs", archive(**dict.fromkeys(names, b'{"Event":"x"}\n')))
    with pytest.raises(TraceFormatError, match=said):
        fetch_application(server.url, "app-1", tmp_path)


def test_a_damaged_archive_is_named(server: Server, tmp_path: Path) -> None:
    content = bytearray(archive(log=b'{"Event":"x"}\n' * 1_000))
    # No block of deflate is of the type 3.
    content[content.index(b"log") + 3] = 0b111
    server.has("/app-1/logs", bytes(content))
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w", zipfile.ZIP_BZIP2) as members:
        members.writestr("log", b'{"Event":"x"}\n' * 1_000)
    server.has("/app-2/logs", other.getvalue().replace(b"BZh", b"BZ?"))
    for application in ("app-1", "app-2"):
        with pytest.raises(TraceFormatError, match="not an archive of logs"):
            fetch_application(server.url, application, tmp_path)


class Full(io.BytesIO):
    """A file on a disk that is full."""

    def write(self, _content: object) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_not_blamed_on_who_sends() -> None:
    with pytest.raises(StoreError, match=r"The archive cannot be kept: .*No space left"):
        spool(io.BytesIO(b"log"), Full(), 10, "The archive")


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def breaking_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], str]]:
    """Give the address of a server that sends some bytes to whoever asks, and hangs up."""
    monkeypatch.delenv(HEADER, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)

        def serve(sent: bytes) -> None:
            with listening.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(sent)

        threads: list[threading.Thread] = []

        def address(sent: bytes) -> str:
            threads.append(threading.Thread(target=serve, args=(sent,)))
            threads[-1].start()
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield address
        for thread in threads:
            thread.join(10)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer: BadStatusLine"),
        (CHUNKED + b"100\r\nPK", "broke off: IncompleteRead"),
        (CHUNKED + b"a hundred bytes\r\n", "broke off: IncompleteRead"),
    ],
)
def test_a_server_that_breaks_off_or_is_none_is_a_typed_error(
    breaking_off: Callable[[bytes], str], tmp_path: Path, sent: bytes, said: str
) -> None:
    with pytest.raises(TraceFormatError, match=said):
        choose_applications(breaking_off(sent))
    with pytest.raises(TraceFormatError, match=said):
        fetch_application(breaking_off(sent), "app-1", tmp_path)


def test_the_command_answers_for_what_a_server_has(server: Server) -> None:
    server.has("", applications(("app-1", "load", 5)))
    server.has("/app-1/logs", archive(**{"app-1.zstd": LOG.read_bytes()}))
    for words in (["--app", "app-1"], ["--name", "lo.*"]):
        result = CliRunner().invoke(app, ["spark", "--history", server.url, *words, "--format", "json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["log"] == "app-1.zstd"
    assert isinstance(CliRunner().invoke(app, ["spark"]).exception, InvalidParameterError)
    missing = CliRunner().invoke(app, ["spark", "--history", server.url, "--name", "none"])
    assert isinstance(missing.exception, TraceFormatError)
