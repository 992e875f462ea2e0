"""Whoever follows a run listens here: recorders come by TCP, and what they send becomes files of the spool."""

from __future__ import annotations

import secrets
import ssl
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import SocketAttribute
from anyio.from_thread import start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSStream

from pag_graph.errors import InvalidParameterError, PagGraphError, SinkError, StoreConflictError, StoreError
from pag_graph.sources.wire import frames
from pag_graph.sources.wire.encrypted import reason_of
from pag_graph.sources.wire.frames import Code, Hello, Kind
from pag_graph.store.access import is_loopback
from pag_graph.store.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from anyio.abc import ByteStream, SocketStream, TaskStatus

CREDIT = 64 << 20
"""Bytes that a recorder may have sent without having heard that they are in the spool."""
SILENCE_S = 30.0
"""After how long without a frame, not even a mark, a connection is taken to be dead."""
HELLO_S = 10.0
"""How long somebody may take to say who he is."""
STRANGERS = 64
"""How many may be about to say who they are at the same time."""
LEAVE_S = 2.0
"""How long recorders that have ended may take to hear of it, when the follower ends."""
_DIGEST_HINT = "Give both sides the same token file."


class Listener:
    """Receives a trace into a spool.

    Parameters
    ----------
    spool
        Where it goes.
    token
        What recorders must know.
    tell
        Called, from another thread, with a line about each connection that was refused or cut off.
    tls
        How the follower proves who it is (`pag_graph.sources.wire.encrypted.server_context`); None: nothing is
        encrypted.
    credit
        See `CREDIT`.
    """

    def __init__(
        self,
        spool: Spool,
        token: str,
        tell: Callable[[str], None] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        credit: int = CREDIT,
    ) -> None:
        self._spool, self._token, self._tls, self._credit = spool, token, tls, credit
        self._tell = tell or (lambda _: None)
        self._talks: dict[int, tuple[anyio.CancelScope, anyio.Event]] = {}
        self._strangers = 0
        self.repeated = 0
        """Events that came although they were there, and were dropped."""

    async def serve(self, host: str, port: int, *, task_status: TaskStatus[int]) -> None:
        """Listen until cancelled.

        Parameters
        ----------
        host, port
            Address of this machine; port 0 takes a free one.
        task_status
            Hears the port as soon as recorders may come.

        Raises
        ------
        OSError
            If there is no such address, or its port is taken.
        """
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port, reuse_port=False)
        async with listener:
            task_status.started(int(listener.extra(SocketAttribute.local_port)))  # noqa: S610  (not Django's)
            await listener.serve(self._meet)

    async def leave(self) -> None:
        """Let recorders that have ended hear of it, for a while."""
        with anyio.move_on_after(LEAVE_S):
            for process, (_, ended_event) in list(self._talks.items()):
                following, ended = self._spool.state(process)
                if len(following) == len(ended):
                    await ended_event.wait()

    async def _meet(self, connection: SocketStream) -> None:
        """Talk to one recorder; whatever he does, others are not disturbed."""
        async with connection:
            stream: ByteStream = connection
            try:
                with self._stranger():
                    stream = await self._encrypted(connection)
                    received = BufferedByteReceiveStream(stream)
                    hello = await self._greet(stream, received)
                await self._talk(stream, received, hello)
            except ssl.SSLError as error:
                self._tell(f"A connection was closed that is not encrypted as it should be: {reason_of(error)}.")
            except PagGraphError as error:
                self._tell(f"A connection was closed: {error.message}")
                await _refuse(stream, error, _code_of(error))
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, TimeoutError):
                # The program went away, or the network: what came is there, and the next connection goes on.
                return

    async def _encrypted(self, connection: SocketStream) -> ByteStream:
        if self._tls is None:
            return connection
        with anyio.fail_after(HELLO_S):
            # Frames say how long they are, and what ends: a connection may end without a word.
            return await TLSStream.wrap(connection, server_side=True, ssl_context=self._tls, standard_compatible=False)

    async def _talk(self, stream: ByteStream, received: BufferedByteReceiveStream, hello: Hello) -> None:
        run = partial(anyio.to_thread.run_sync, abandon_on_cancel=False)
        last_talk = self._talks.get(hello.process)
        scope, ended_event = anyio.CancelScope(), anyio.Event()
        self._talks[hello.process] = scope, ended_event
        if last_talk is not None:
            # The program knows better than this side that its last connection is dead.
            last_talk[0].cancel()
            await last_talk[1].wait()
        try:
            with scope:
                await run(partial(self._spool.join, *hello))
                following, _ = self._spool.state(hello.process)
                await stream.send(frames.json_frame(Kind.WELCOME, {"next": following, "credit": self._credit}))
                while True:
                    with anyio.fail_after(SILENCE_S):
                        kind, body = await _receive(received)
                    if kind is Kind.MARK:
                        continue
                    await run(self._take, hello.process, kind, body)
                    following, ended = self._spool.state(hello.process)
                    answer = {"next": following, "ended": ended, "credit": self._credit}
                    await stream.send(frames.json_frame(Kind.ACK, answer))
            if scope.cancelled_caught:
                message = f"Process {hello.process} came again, by another connection."
                await _refuse(stream, StoreConflictError(message), Code.TAKEN)
        finally:
            ended_event.set()
            if self._talks.get(hello.process, (None,))[0] is scope:
                del self._talks[hello.process]

    @contextmanager
    def _stranger(self) -> Iterator[None]:
        """Count those who have not said who they are."""
        if self._strangers >= STRANGERS:
            message = "Too many recorders are connecting at once."
            raise StoreError(message, "Try again later.")
        self._strangers += 1
        try:
            yield
        finally:
            self._strangers -= 1

    async def _greet(self, stream: ByteStream, received: BufferedByteReceiveStream) -> Hello:
        """Find out who it is, and that he may."""
        nonce = secrets.token_bytes(frames.NONCE_BYTES)
        await stream.send(frames.frame(Kind.NONCE, nonce))
        with anyio.fail_after(HELLO_S):
            kind, body = await _receive(received, frames.MOST_HELLO_BYTES)
        if kind is not Kind.HELLO or not frames.knows(self._token, nonce, body):
            message = "A recorder connected without the right token."
            raise InvalidParameterError(message, _DIGEST_HINT)
        return Hello.of(body[frames.MAC_BYTES :])

    def _take(self, process: int, kind: Kind, body: bytes) -> None:
        """Do what a frame asks for."""
        if kind is Kind.EVENTS:
            if len(body) < frames.EVENTS_HEAD.size:
                raise frames.malformed(kind, "it ends too early")
            worker, first, published_ns = frames.EVENTS_HEAD.unpack_from(body)
            if published_ns < 0:
                raise frames.malformed(kind, "it was published before 1970")
            content = body[frames.EVENTS_HEAD.size :]
            self.repeated += self._spool.add(process, worker, first, published_ns, content)
            return
        if kind is Kind.TABLES:
            self._spool.describe(process, frames.unpack_files(body))
            return
        if kind not in {Kind.LOST, Kind.END}:
            raise frames.malformed(kind, "a recorder does not send it here")
        content_of = frames.read_json(body, kind)
        worker = frames.number(content_of, "worker", kind)
        if kind is Kind.LOST:
            self._spool.lose(process, worker, frames.stretches(content_of, "lost", kind))
        else:
            last = frames.number(content_of, "last", kind)
            self._spool.end(process, worker, last, finished=content_of.get("finished") is True)


async def _receive(received: BufferedByteReceiveStream, most: int = frames.MOST_BYTES) -> tuple[Kind, bytes]:
    kind, length = frames.head(await received.receive_exactly(frames.HEAD.size), most)
    return kind, await received.receive_exactly(length) if length else b""


async def _refuse(stream: ByteStream, error: PagGraphError, code: Code) -> None:
    """Say why a connection ends; what still comes is read, for otherwise the other side might not get to read it."""
    text = error.message if error.hint is None else f"{error.message} {error.hint}"
    connection_errors = suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
    with connection_errors, anyio.move_on_after(1):
        await stream.send(frames.json_frame(Kind.ERROR, {"code": code, "text": text}))
        # With TLS no side can end alone.
        with suppress(NotImplementedError):
            await stream.send_eof()
        while True:
            await stream.receive()


def _code_of(error: PagGraphError) -> Code:
    if isinstance(error, InvalidParameterError):
        return Code.TOKEN
    if isinstance(error, StoreConflictError):
        return Code.CONFLICT
    return Code.STORE if isinstance(error, StoreError) else Code.TRACE


@contextmanager
def listening(
    root: Path, address: str, token: str, tell: Callable[[str], None] | None = None, **options: Any
) -> Iterator[int]:
    """Receive a trace by TCP as long as the block runs, in a thread of its own.

    Parameters
    ----------
    root
        The spool: a directory in which the trace grows.
    address
        HOST:PORT, of this machine; port 0 takes a free one.
    token
        What recorders must know.
    tell, options
        As for `Listener`.

    Yields
    ------
    int
        The port.

    Raises
    ------
    InvalidParameterError
        If others than this machine would reach it, and nothing is encrypted.
    SinkError
        If the port is taken.
    """
    host, port = frames.place_of(address)
    if not is_loopback(host) and options.get("tls") is None:
        message = f"Everybody who can reach {host} could read and forge what recorders send: frames are not encrypted."
        hint = "Give --certificate and --key, or listen on 127.0.0.1 and let others come through a tunnel (ssh -R)."
        raise InvalidParameterError(message, hint)
    spool = Spool(root)
    try:
        listener = Listener(spool, token, tell, **options)
        with start_blocking_portal() as portal:
            try:
                future, chosen = portal.start_task(listener.serve, host, port)
            except OSError as error:
                message = f"{host} has no free port {port}: {error}."
                raise SinkError(message, "Choose another one.") from error
            try:
                yield chosen
            finally:
                portal.call(listener.leave)
                future.cancel()
    finally:
        spool.close()
