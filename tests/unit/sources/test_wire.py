"""Traces that come by TCP: what is refused, what is cut off, and that in the end all is there once."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from typing import TYPE_CHECKING, ClassVar

import pytest

from pag_graph import api, samples
from pag_graph.errors import InvalidParameterError, SinkError, StoreConflictError, TraceFormatError
from pag_graph.model.enums import Severity
from pag_graph.sources.replay import replay
from pag_graph.sources.wire import frames
from pag_graph.sources.wire.encrypted import client_context, server_context
from pag_graph.sources.wire.frames import HEAD, Hello, Kind
from pag_graph.sources.wire.listen import listening
from pag_graph.sources.wire.send import Portion, Sender, _receive
from pag_graph.store.findings import findings
from pag_graph.store.trace import Trace, write_table
from tests.support.certificates import Identity, identity
from tests.support.compare import committed, differences
from tests.support.growing import rounds

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

TOKEN = "0123456789abcdef"
ANY = "127.0.0.1:0"


@pytest.fixture
def source(tmp_path: Path) -> Trace:
    """A trace of twelve rounds on two workers."""
    return Trace.open(rounds(12).write(tmp_path / "source"))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """What both sides know."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return file


@pytest.fixture(autouse=True)
def _hung_up() -> Iterator[None]:
    """Close what tests opened."""
    yield
    while Talk.open:
        Talk.open.pop().close()


class Talk:
    """A client that says what it likes."""

    open: ClassVar[list[socket.socket]] = []

    def __init__(self, port: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.open.append(self.connection)
        kind, self.nonce = _receive(self.connection)
        assert kind is Kind.NONCE

    def say(self, kind: Kind, *parts: bytes) -> tuple[Kind, dict[str, object]]:
        """Send a frame, and return the answer."""
        self.connection.sendall(frames.frame(kind, *parts))
        return self.hear()

    def hear(self) -> tuple[Kind, dict[str, object]]:
        """Return what comes next."""
        kind, body = _receive(self.connection)
        return kind, json.loads(body)

    def greet(self, source: Trace, token: str = TOKEN, **changes: object) -> tuple[Kind, dict[str, object]]:
        """Say who it is."""
        hello = Hello(source.meta.trace_id, 0, 1, (0, 1))._replace(**changes)  # type: ignore[arg-type]
        return self.say(Kind.HELLO, hello.body(token, self.nonce))


def description(source: Trace) -> bytes:
    files = [source.path / name for name in ("meta.json", "operators.parquet", "channels.parquet", "workers.parquet")]
    return frames.pack_files({file.name: file.read_bytes() for file in files})


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[tuple[Path, int, list[str]]]:
    """A place that listens: its spool, its port, and what it says of those it refused."""
    told: list[str] = []
    with listening(tmp_path / "spool", ANY, TOKEN, told.append) as port:
        yield tmp_path / "spool", port, told


def test_what_is_replayed_by_tcp_is_followed_as_what_is_recorded(
    tmp_path: Path, source: Trace, token_file: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = {"speed": 4e-7, "flush_every_s": 0.05, "token_file": token_file}
    sending = threading.Thread(target=replay, args=(source.path, f"tcp://{address}"), kwargs=options)
    # Who sends may be there first.
    sending.start()
    report = api.follow(tmp_path / "spool", tmp_path / "store", listen=address, token_file=token_file, commit_every_s=0)
    sending.join(30)
    assert report.complete
    received = Trace.open(tmp_path / "spool")
    assert received.events().equals(source.events())
    assert (received.meta, received.workers) == (source.meta, source.workers)
    api.build(source.path, tmp_path / "once", engine="local")
    assert differences(committed(tmp_path / "store"), committed(tmp_path / "once")) == ""


def test_that_due_times_are_not_sent_is_said(tmp_path: Path, token_file: Path) -> None:
    source = Trace.open(samples.path("elastic"))
    sent = tmp_path / "sent"
    shutil.copytree(source.path, sent)
    odd = findings("worker_misspelt", Severity.WARNING, "kept as it is", file="workers.csv")
    write_table(sent / "findings.parquet", odd)
    with listening(tmp_path / "spool", ANY, TOKEN) as port:
        replay(sent, f"tcp://127.0.0.1:{port}", speed=None, token_file=token_file)
    received = Trace.open(tmp_path / "spool")
    assert received.meta.complete
    assert received.findings["finding"].to_pylist() == ["worker_misspelt", "inputs_not_sent"]
    with pytest.raises(TraceFormatError, match="does not say when input was due"):
        api.latency(received.path)
    # As the finding says.
    shutil.copytree(sent / "inputs", received.path / "inputs")
    assert api.latency(received.path).table.equals(api.latency(source.path).table)


def test_whoever_does_not_know_the_token_is_refused(source: Trace, spool: tuple[Path, int, list[str]]) -> None:
    root, port, told = spool
    kind, said = Talk(port).greet(source, "another token 0123")
    assert (kind, said["code"]) == (Kind.ERROR, "TOKEN")
    # The proof of one connection proves nothing in another.
    first, second = Talk(port), Talk(port)
    kind, said = second.say(Kind.HELLO, Hello(source.meta.trace_id, 0, 1, (0, 1)).body(TOKEN, first.nonce))
    assert (kind, said["code"]) == (Kind.ERROR, "TOKEN")
    assert len(told) == 2
    assert not list((root / "events").iterdir())
    assert [path.name for path in (root / "received").iterdir()] == ["lock"]
    with (
        pytest.raises(SinkError, match="without the right token"),
        sender(port, source, "wrong wrong wrong") as sending,
    ):
        sending.finish({0: 0}, finished=False)


def sender(port: int, source: Trace, token: str = TOKEN, tls: ssl.SSLContext | None = None) -> Sender:
    hello = Hello(source.meta.trace_id, 0, 1, (0, 1))
    return Sender(f"127.0.0.1:{port}", token, hello, tls=tls, pauses=(0.01, 0.02))


@pytest.mark.parametrize(
    "junk",
    [
        HEAD.pack(1 << 30, Kind.HELLO),
        HEAD.pack((1 << 16) + 1, Kind.HELLO),
        HEAD.pack(0, 200),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        frames.frame(Kind.HELLO, b""),
        frames.frame(Kind.EVENTS, bytes(100)),
    ],
)
def test_junk_of_strangers_is_refused_before_it_is_read(spool: tuple[Path, int, list[str]], junk: bytes) -> None:
    talk = Talk(spool[1])
    talk.connection.sendall(junk)
    kind, said = talk.hear()
    assert kind is Kind.ERROR
    assert said["code"] in {"TOKEN", "TRACE"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.HELLO, b"{}"),
        (Kind.TABLES, b"\xff"),
        (Kind.TABLES, frames.pack_files({"../evil": b""})),
        (Kind.TABLES, frames.pack_files(dict.fromkeys(("meta.json", "operators.parquet"), b""))),
        (Kind.EVENTS, b"short"),
        (Kind.EVENTS, frames.EVENTS_HEAD.pack(0, 1, 0) + b"PAR1"),
        (Kind.EVENTS, frames.EVENTS_HEAD.pack(0, 1, -1)),
        (Kind.EVENTS, frames.EVENTS_HEAD.pack(7, 1, 0)),
        (Kind.LOST, b'{"worker": 0, "lost": [[5, 4]]}'),
        (Kind.LOST, b'{"worker": 0, "lost": [5, 6]}'),
        (Kind.LOST, b"[" * 5000),
        (Kind.END, b'{"worker": 0, "last": 3, "finished": true}'),
        (Kind.END, b'{"worker": 0, "last": NaN}'),
        (Kind.WELCOME, b"{}"),
    ],
)
def test_nonsense_of_who_knows_the_token_changes_nothing(
    source: Trace, spool: tuple[Path, int, list[str]], kind: Kind, body: bytes
) -> None:
    root, port, _ = spool
    talk = Talk(port)
    assert talk.greet(source)[0] is Kind.WELCOME
    if kind is not Kind.TABLES:
        assert talk.say(Kind.TABLES, description(source))[0] is Kind.ACK
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    heard, said = talk.say(kind, body)
    assert (heard, said["code"]) == (Kind.ERROR, "TRACE")
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert before == {path: content for path, content in after.items() if "coming" not in str(path)}


def test_another_run_another_version_and_another_place_are_told(
    tmp_path: Path, source: Trace, spool: tuple[Path, int, list[str]]
) -> None:
    root, port, _ = spool
    assert Talk(port).greet(source)[0] is Kind.WELCOME
    kind, said = Talk(port).greet(source, trace_id="other")
    assert (kind, said["code"]) == (Kind.ERROR, "CONFLICT")
    kind, said = Talk(port).greet(source, process=1, processes=2)
    assert (kind, said["code"]) == (Kind.ERROR, "CONFLICT")
    assert "one of process 0" in str(said["text"])
    talk = Talk(port)
    body = Hello(source.meta.trace_id, 0, 1, (0, 1)).body(TOKEN, talk.nonce).replace(b'"protocol": 1', b'"protocol": 2')
    kind, said = talk.say(Kind.HELLO, body)
    assert "protocol 2" in str(said["text"])
    with pytest.raises(StoreConflictError, match="Another process receives"), listening(root, ANY, TOKEN):
        pass
    with pytest.raises(InvalidParameterError, match="not encrypted"), listening(tmp_path / "x", "0.0.0.0:0", TOKEN):
        pass
    with pytest.raises(SinkError, match="no free port"), listening(tmp_path / "y", f"127.0.0.1:{port}", TOKEN):
        pass


def test_a_process_that_comes_again_takes_the_place_of_its_last_connection(
    source: Trace, spool: tuple[Path, int, list[str]]
) -> None:
    first = Talk(spool[1])
    assert first.greet(source)[0] is Kind.WELCOME
    second = Talk(spool[1])
    assert second.greet(source)[0] is Kind.WELCOME
    kind, said = first.hear()
    assert (kind, said["code"]) == (Kind.ERROR, "TAKEN")
    assert second.say(Kind.TABLES, description(source))[0] is Kind.ACK


def portions(source: Trace, folder: Path, rows: int) -> Iterator[Portion]:
    """Cut a trace into files of some rows, those of both workers in turns."""
    import pyarrow.parquet as pq

    logs = {worker: source.events(workers=[worker]) for worker in (0, 1)}
    for begin in range(0, max(log.num_rows for log in logs.values()), rows):
        for worker, log in logs.items():
            if (table := log.slice(begin, rows)).num_rows:
                file = folder / f"{worker}-{begin}.parquet"
                pq.write_table(table, file)
                first, last = table["seq"][0].as_py(), table["seq"][-1].as_py()
                yield Portion(worker, first, last, time.time_ns(), file)


class Cutting:
    """Stands between recorder and follower, and cuts connections after so many bytes."""

    def __init__(self, port: int, after: list[int]) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port, self._target, self._after = self._server.getsockname()[1], port, after
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            left = self._after.pop(0) if self._after else 1 << 40
            back = threading.Thread(target=self._pass, args=(far, near, 1 << 40), daemon=True)
            back.start()
            self._pass(near, far, left)
            back.join()
            near.close()
            far.close()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, left: int) -> None:
        try:
            while left > 0 and (data := source.recv(min(left, 1 << 16))):
                target.sendall(data)
                left -= len(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._server.close()


def listening_to(root: Path, who: Identity, told: list[str] | None = None) -> AbstractContextManager[int]:
    tell = None if told is None else told.append
    return listening(root, ANY, TOKEN, tell, tls=server_context(who.certificate, who.key))


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("step", [400, 3001])
def test_connections_that_are_cut_anywhere_lose_and_double_nothing(
    tmp_path: Path,
    source: Trace,
    step: int,
    encrypted: bool,  # noqa: FBT001
) -> None:
    root, who = tmp_path / "spool", identity(tmp_path)
    with listening_to(root, who) if encrypted else listening(root, ANY, TOKEN) as port:
        # Later ones live longer, so that in the end all comes through.
        between = Cutting(port, [step * (number + 1) for number in range(12)])
        tls = client_context(who.authority) if encrypted else None
        with sender(between.port, source, tls=tls) as sending:
            send_all(sending, source, tmp_path)
            assert sending.connections > 3
        between.close()
    received = Trace.open(root)
    assert received.events().equals(source.events())
    assert received.meta == source.meta


def send_all(sending: Sender, source: Trace, folder: Path) -> None:
    sending.describe(frames.unpack_files(description(source)))
    for portion in portions(source, folder, 7):
        sending.send(portion)
    last = {worker: source.events(["seq"], [worker])["seq"][-1].as_py() for worker in (0, 1)}
    sending.finish(last, finished=True)


def test_what_is_encrypted_is_followed_as_what_is_recorded(tmp_path: Path, source: Trace, token_file: Path) -> None:
    who = identity(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = {"speed": None, "flush_every_s": 0.05, "token_file": token_file, "authority": who.authority}
    sending = threading.Thread(target=replay, args=(source.path, f"tcp://{address}"), kwargs=options)
    sending.start()
    report = api.follow(
        tmp_path / "spool",
        tmp_path / "store",
        listen=address,
        token_file=token_file,
        certificate=who.certificate,
        key=who.key,
    )
    sending.join(30)
    assert report.complete
    assert Trace.open(tmp_path / "spool").events().equals(source.events())


@pytest.mark.parametrize(
    ("other", "told_why"),
    [
        ("another authority", "unable to get local issuer certificate"),
        ("another host", "IP address mismatch"),
        ("no encryption", "WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE"),
    ],
)
def test_who_cannot_be_trusted_gets_nothing(tmp_path: Path, source: Trace, other: str, told_why: str) -> None:
    ours, theirs = identity(tmp_path, "ours"), identity(tmp_path, "theirs", "127.0.0.2")
    root, told = tmp_path / "spool", list[str]()
    shown = {"another authority": ours, "another host": theirs}.get(other)
    trusted = ours if other == "no encryption" else theirs
    with (
        listening(root, ANY, TOKEN, told.append) if shown is None else listening_to(root, shown, told) as port,
        sender(port, source, tls=client_context(trusted.authority)) as sending,
        pytest.raises(SinkError, match=rf"accepted nothing.*No encrypted connection to it: .*({told_why})"),
    ):
        sending.finish({0: 0}, finished=False, timeout_s=0.5)
    assert not list((root / "events").iterdir())
    assert [path.name for path in (root / "received").iterdir()] == ["lock"]
    if shown is not None:
        assert "is not encrypted as it should be" in told[0]


def test_strangers_that_do_not_speak_tls_are_cut_off(tmp_path: Path, source: Trace) -> None:
    who, told = identity(tmp_path), list[str]()
    with listening_to(tmp_path / "spool", who, told) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while plain.recv(1 << 10):
                continue
        assert "is not encrypted as it should be" in told[0]
        # Others are not disturbed, and their tokens still matter.
        with (
            sender(port, source, "wrong wrong wrong", client_context(who.authority)) as sending,
            pytest.raises(SinkError, match="without the right token"),
        ):
            sending.finish({0: 0}, finished=False)


def test_certificates_and_keys_that_cannot_be_used_are_refused(tmp_path: Path, source: Trace, token_file: Path) -> None:
    who, other = identity(tmp_path), identity(tmp_path, "other")
    junk = tmp_path / "junk.pem"
    junk.write_text("nothing")
    junk.chmod(0o600)
    for certificate, key in ((junk, who.key), (who.certificate, junk), (who.certificate, other.key)):
        with pytest.raises(InvalidParameterError, match="are no certificate with its key"):
            server_context(certificate, key)
    with pytest.raises(SinkError, match="cannot be read"):
        server_context(tmp_path / "absent", who.key)
    with pytest.raises(SinkError, match="cannot be read"):
        server_context(who.certificate, tmp_path / "absent")
    with pytest.raises(SinkError, match="cannot be read"):
        client_context(tmp_path / "absent")
    with pytest.raises(InvalidParameterError, match="No certificate is in"):
        client_context(junk)
    other.key.chmod(0o644)
    with pytest.raises(InvalidParameterError, match="Other users can read"):
        server_context(other.certificate, other.key)
    for options in ({"listen": ANY, "token_file": token_file, "key": who.key}, {"certificate": junk, "key": junk}):
        with pytest.raises(InvalidParameterError, match="A certificate needs its key"):
            api.follow(tmp_path / "spool", tmp_path / "store", **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="nothing is encrypted"):
        replay(source.path, "tcp://192.0.2.1:7070", token_file=token_file)


def test_rows_that_come_again_are_dropped_and_missing_ones_must_be_lost(
    tmp_path: Path, source: Trace, spool: tuple[Path, int, list[str]]
) -> None:
    root, port, _ = spool
    file = tmp_path / "0-0.parquet"
    low = next(iter(portions(source, tmp_path, 10)))
    content = file.read_bytes()
    talk = Talk(port)
    talk.greet(source)
    talk.say(Kind.TABLES, description(source))
    events = frames.EVENTS_HEAD.pack(0, low.first, 5) + content
    assert talk.say(Kind.EVENTS, events)[1]["next"] == {"0": low.last + 1, "1": 0}
    assert talk.say(Kind.EVENTS, events)[1]["next"] == {"0": low.last + 1, "1": 0}
    # A portion that begins with what is there and goes on.
    longer = next(iter(portions(source, tmp_path, 15)))
    body = frames.EVENTS_HEAD.pack(0, longer.first, 6) + file.read_bytes()
    assert talk.say(Kind.EVENTS, body)[1]["next"] == {"0": longer.last + 1, "1": 0}
    received = Trace.open(root).events(workers=[0])
    assert received.equals(source.events(workers=[0]).slice(0, 15))
    # Both portions are in one file, which was published when the last of them was.
    assert [path.stat().st_mtime_ns for path in sorted((root / "events").iterdir())] == [6]


@pytest.mark.parametrize("address", ["", "7070", ":7070", "host:", "host:seventy", "host:70000"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidParameterError):
        frames.place_of(address)


def test_addresses() -> None:
    assert frames.place_of("tcp://127.0.0.1:70") == ("127.0.0.1", 70)
    assert frames.place_of("[::1]:70") == ("::1", 70)


def test_a_token_that_others_may_read_is_refused(tmp_path: Path, source: Trace, token_file: Path) -> None:
    token_file.chmod(0o644)
    with pytest.raises(InvalidParameterError, match="Other users can read"):
        api.follow(tmp_path / "spool", tmp_path / "store", listen=ANY, token_file=token_file)
    with pytest.raises(InvalidParameterError, match="Other users can read"):
        replay(source.path, "tcp://127.0.0.1:9", token_file=token_file)
    with pytest.raises(InvalidParameterError, match="token"):
        replay(source.path, "tcp://127.0.0.1:9")
    with pytest.raises(InvalidParameterError, match="token"):
        api.follow(tmp_path / "spool", tmp_path / "store", listen=ANY)
    assert not (tmp_path / "spool").exists()


def test_files_are_packed_and_unpacked() -> None:
    files = {"a": b"", "b": bytes(1000)}
    assert frames.unpack_files(frames.pack_files(files)) == files
    for end in range(1, 10):
        with pytest.raises(TraceFormatError):
            frames.unpack_files(frames.pack_files(files)[:-end])


@pytest.mark.parametrize(
    "answer",
    [
        {"next": {"0": "x"}, "credit": 1},
        {"next": {"0": [1]}, "credit": 1},
        {"next": [], "credit": 1},
        {"next": {}, "credit": 1, "ended": 7},
        {"next": {}, "credit": 1, "ended": [[0]]},
        {"next": {}, "credit": -1},
        {"next": {"0": 10**30}, "credit": 1},
        [],
    ],
)
def test_a_follower_that_speaks_nonsense_is_asked_again(answer: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with Sender(address, TOKEN, Hello("t", 0, 1, (0,)), pauses=(0.01, 0.01)) as sender:
            for said in (frames.frame(Kind.WELCOME, json.dumps(answer).encode()), frames.json_frame(Kind.ERROR, {})):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(frames.frame(Kind.NONCE, bytes(frames.NONCE_BYTES)))
                    assert _receive(connection)[0] is Kind.HELLO
                    connection.sendall(said)
            sender._thread.join(20)
            assert isinstance(sender.refused, SinkError)
