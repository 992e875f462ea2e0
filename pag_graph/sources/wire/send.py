"""The side of a program that records: portions are handed over, and sent by a thread of its own.

Whoever hands over never waits. What was not acknowledged is sent again by the next connection, which goes on where the
spool is.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.errors import SinkError, TraceFormatError
from pag_graph.sources.wire import frames
from pag_graph.sources.wire.encrypted import Encrypted, reason_of
from pag_graph.sources.wire.frames import Code, Hello, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

    _Connection = socket.socket | Encrypted

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
"""How long to wait before one connects again: at first, and at most; doubled in between."""
_TIMEOUT_S = 30.0


class Portion(NamedTuple):
    """A file of events of one worker."""

    worker: int
    first: int
    last: int
    """Numbers of its first and last event."""
    published_ns: int
    """When it was handed over, Unix time."""
    file: Path
    """Stays until it was acknowledged."""
    lost: tuple[tuple[int, int], ...] = ()
    """Stretches of events before it, or in it, that are missing for good."""


class Sender:
    """Sends a trace to a follower.

    Parameters
    ----------
    address
        HOST:PORT.
    token
        What the follower expects.
    hello
        Who sends.
    tls
        Whom to trust, from `pag_graph.sources.wire.encrypted.client_context`; None: nothing is encrypted.
    pauses
        See `FIRST_PAUSE_S`.
    """

    def __init__(
        self,
        address: str,
        token: str,
        hello: Hello,
        *,
        tls: ssl.SSLContext | None = None,
        pauses: tuple[float, float] = (FIRST_PAUSE_S, LONGEST_PAUSE_S),
    ) -> None:
        self._place, self._token, self._hello, self._pauses = frames.place_of(address), token, hello, pauses
        self._tls, self._distrust = tls, ""
        self._changed = threading.Condition()
        self._description: bytes | None = None
        self._described = 0
        self._waiting: deque[Portion] = deque()
        self._ends: list[dict[str, Any]] = []
        self._next: dict[int, int] = {}
        self._ended: set[int] = set()
        self._credit = 0
        self._closed = self._broken = False
        self.refused: SinkError | None = None
        """Why the follower does not want the trace, if so."""
        self.connections = 0
        self._thread = threading.Thread(target=self._run, name="pag-send", daemon=True)
        self._thread.start()

    def describe(self, files: Mapping[str, bytes]) -> None:
        """Hand over what is known of the trace besides its events; again whenever it changes."""
        with self._changed:
            self._description = frames.pack_files(dict(files))
            self._described += 1
            self._changed.notify_all()

    def send(self, portion: Portion) -> None:
        """Hand a portion over; those of a worker in the order of its log."""
        with self._changed:
            self._waiting.append(portion)
            self._changed.notify_all()

    def finish(self, last: Mapping[int, int], *, finished: bool, timeout_s: float = 10.0) -> None:
        """Say that nothing more comes, and wait until all of it is in the spool. To be called once.

        Parameters
        ----------
        last
            Per worker, the number of its last event.
        finished
            Whether the logs are whole.
        timeout_s
            How long to wait without anything being taken.

        Raises
        ------
        SinkError
            If the follower did not take it, or not in time.
        """
        with self._changed:
            self._ends = [
                {"worker": worker, "last": number, "finished": finished} for worker, number in sorted(last.items())
            ]
            self._changed.notify_all()
            deadline, next_before = time.monotonic() + timeout_s, self._next
            while not (is_done := self._ended >= last.keys()) and self.refused is None:
                self._changed.wait(max(deadline - time.monotonic(), 0))
                if self._next != next_before:
                    deadline, next_before = time.monotonic() + timeout_s, self._next
                elif time.monotonic() >= deadline:
                    break
        self.close()
        if self.refused is not None:
            raise self.refused
        if not is_done:
            host, port = self._place
            message = (
                f"The follower at {host}:{port} accepted nothing for {timeout_s:g} s, and lacks a part.{self._distrust}"
            )
            raise SinkError(message, "Send it again when the follower listens: it accepts what is missing.")

    def close(self) -> None:
        """Send nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Self:
        """Return the sender itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Send nothing more."""
        self.close()

    # --- The thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = self._pauses[0]
        while not self._closed and self.refused is None:
            try:
                with socket.create_connection(self._place, timeout=_TIMEOUT_S) as plain:
                    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connection = plain if self._tls is None else Encrypted(plain, self._tls, self._place[0])
                    self._greet(connection)
                    pause, self._distrust = self._pauses[0], ""
                    self._talk(connection)
            except ssl.SSLError as error:
                # Somebody else is there, or does not speak TLS; who waits in vain wants to know.
                self._distrust = f" No encrypted connection to it: {reason_of(error)}."
            except (OSError, TraceFormatError):
                # The follower is not there, or speaks nonsense: he may be there, and speak sense, later.
                pass
            with self._changed:
                if not self._closed and self.refused is None:
                    self._changed.wait(pause)
            pause = min(2 * pause, self._pauses[1])

    def _greet(self, connection: _Connection) -> None:
        kind, nonce = _receive(connection)
        if kind is not Kind.NONCE:
            raise frames.malformed(kind, "a nonce was to come first")
        connection.sendall(frames.frame(Kind.HELLO, self._hello.body(self._token, nonce)))
        kind, body = _receive(connection)
        if kind is Kind.ERROR:
            self._hear_error(body)
            raise frames.malformed(kind, "refused")
        self._hear(body)
        self._broken = False
        self.connections += 1

    def _talk(self, connection: _Connection) -> None:
        """Send what waits, until nothing more comes or the connection breaks."""
        listener = threading.Thread(target=self._listen, args=(connection,), daemon=True)
        listener.start()
        sent, described, ended, unheard = 0, 0, False, 0
        marked = time.monotonic()
        try:
            while True:
                with self._changed:
                    if self._broken or self._closed or self.refused is not None:
                        return
                    # Acknowledged portions are at the front.
                    while self._waiting and self._waiting[0].last < self._next.get(self._waiting[0].worker, 0):
                        heard = self._waiting.popleft()
                        if sent:
                            sent, unheard = sent - 1, unheard - heard.file.stat().st_size
                    description = self._description if described < self._described else None
                    described = self._described
                    portion = self._waiting[sent] if sent < len(self._waiting) and described else None
                    if portion is not None and unheard and unheard + portion.file.stat().st_size > self._credit:
                        portion = None
                    ends = self._ends if sent == len(self._waiting) and described and not ended else []
                    if description is None and portion is None and not ends:
                        self._changed.wait(frames.MARK_EVERY_S)
                if description is not None:
                    connection.sendall(frames.frame(Kind.TABLES, description))
                if portion is not None:
                    content = portion.file.read_bytes()
                    self._send_portion(connection, portion, content)
                    sent, unheard = sent + 1, unheard + len(content)
                for end in ends:
                    connection.sendall(frames.json_frame(Kind.END, end))
                ended = ended or bool(ends)
                if time.monotonic() - marked >= frames.MARK_EVERY_S:
                    connection.sendall(frames.frame(Kind.MARK))
                    marked = time.monotonic()
        finally:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            listener.join()

    @staticmethod
    def _send_portion(connection: _Connection, portion: Portion, content: bytes) -> None:
        if portion.lost:
            lost = {"worker": portion.worker, "lost": portion.lost}
            connection.sendall(frames.json_frame(Kind.LOST, lost))
        head = frames.EVENTS_HEAD.pack(portion.worker, portion.first, portion.published_ns)
        connection.sendall(frames.frame(Kind.EVENTS, head, content))

    def _listen(self, connection: _Connection) -> None:
        """Hear what the follower says."""
        try:
            while True:
                kind, body = _receive(connection)
                with self._changed:
                    if kind is Kind.ERROR:
                        self._hear_error(body)
                        return
                    self._hear(body)
                    self._changed.notify_all()
        except (OSError, TraceFormatError):
            pass
        finally:
            with self._changed:
                self._broken = True
                self._changed.notify_all()

    def _hear(self, body: bytes) -> None:
        content = frames.read_json(body, Kind.ACK)
        credit, following = frames.number(content, "credit", Kind.ACK), content.get("next")
        ended = content.get("ended", [])
        if not isinstance(following, dict) or not isinstance(ended, list):
            raise frames.malformed(Kind.ACK, "it does not say what is next, or what has ended")
        expected = {
            worker: frames.number({"next": following.get(str(worker), 0)}, "next", Kind.ACK)
            for worker in self._hello.workers
        }
        ended_workers = {frames.number({"ended": worker}, "ended", Kind.ACK) for worker in ended}
        with self._changed:
            self._credit, self._next = credit, expected
            self._ended |= ended_workers

    def _hear_error(self, body: bytes) -> None:
        content = frames.read_json(body, Kind.ERROR)
        # As text, whatever it is: a list is in no set.
        if str(content.get("code")) in {Code.STORE, Code.TAKEN}:
            return
        host, port = self._place
        text = "".join(letter if letter.isprintable() else "?" for letter in str(content.get("text")))
        message = f"The follower at {host}:{port} refused the trace: {text}"
        with self._changed:
            self.refused = SinkError(message)
            self._changed.notify_all()


def _receive(connection: _Connection) -> tuple[Kind, bytes]:
    kind, length = frames.head(_exactly(connection, frames.HEAD.size))
    return kind, _exactly(connection, length)


def _exactly(connection: _Connection, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            message = "the connection was closed"
            raise ConnectionError(message)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
