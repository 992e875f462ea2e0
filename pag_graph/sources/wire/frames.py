"""The frames in which a trace travels: a length, a kind and a body, little endian.

A recorder is the client, a follower the server. The server begins with `Kind.NONCE`; nothing else is read before the
client has shown, with `Kind.HELLO`, that it knows the token.

=========  =========  ===============================================================================================
frame      from       body
=========  =========  ===============================================================================================
NONCE      server     32 random bytes
HELLO      client     HMAC-SHA256(token, nonce), then JSON: `Hello`
WELCOME    server     JSON: ``next`` sequence number per worker, ``credit`` in bytes
TABLES     client     files: a length (u8) and a name, a length (u32) and the content, for each file of the description
EVENTS     client     worker (u32), first number (i64), Unix time of publication (i64), a file of events
ACK        server     JSON: ``next`` per worker, all before it is in the spool; ``ended`` workers; ``credit``
LOST       client     JSON: worker, ``lost`` stretches: first and last number of each
END        client     JSON: worker, last, finished
MARK       client     empty: it lives
ERROR      server     JSON: ``code`` and ``text``; the server closes then
=========  =========  ===============================================================================================
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import TRACE_FORMAT_VERSION
from pag_graph.store.safe_files import parse_json

PROTOCOL = 1
"""Version of the frames."""
MOST_BYTES = 16 << 20
"""Length of the longest body."""
MOST_HELLO_BYTES = 1 << 16
"""Length of the longest body before the token is known to be right."""
NONCE_BYTES = 32
MAC_BYTES = 32
HEAD = struct.Struct("<IB")
EVENTS_HEAD = struct.Struct("<Iqq")
MARK_EVERY_S = 0.1
"""How often a client says that it lives."""
_LENGTHS = struct.Struct("<B"), struct.Struct("<I")
SCHEME = "tcp://"


class Kind(IntEnum):
    """What a frame says."""

    NONCE = 0
    HELLO = 1
    WELCOME = 2
    TABLES = 3
    EVENTS = 4
    ACK = 5
    LOST = 6
    END = 7
    MARK = 8
    ERROR = 9


class Code(StrEnum):
    """Why a server closes a connection, for the client."""

    TOKEN = "TOKEN"  # noqa: S105  (the name of an error)
    PROTOCOL = "PROTOCOL"
    TRACE = "TRACE"
    CONFLICT = "CONFLICT"
    TAKEN = "TAKEN"
    """The same process came again, by another connection."""
    STORE = "STORE"
    """The spool cannot be written now; whoever comes later may have more luck."""


class Hello(NamedTuple):
    """Who sends."""

    trace_id: str
    process: int
    processes: int
    workers: tuple[int, ...]
    """The workers whose events come this way."""

    def body(self, token: str, nonce: bytes) -> bytes:
        """Return the body of the frame.

        Parameters
        ----------
        token, nonce
            What both sides know, and what the server sent: the body begins with the proof (`answer`).
        """
        content = {"protocol": PROTOCOL, "format_version": TRACE_FORMAT_VERSION, **self._asdict()}
        return answer(token, nonce) + json.dumps(content).encode()

    @classmethod
    def of(cls, body: bytes) -> Hello:
        """Read the JSON of a frame.

        Raises
        ------
        TraceFormatError
            If it is no such statement, or of another version.
        """  # noqa: DOC501  (what makes an error is taken for one)
        content = read_json(body, Kind.HELLO)
        for name, known in (("protocol", PROTOCOL), ("format_version", TRACE_FORMAT_VERSION)):
            if content.get(name) != known:
                message = f"The recorder speaks {name} {content.get(name)!r}; this release reads {known}."
                raise TraceFormatError(message, "Use a recorder and a follower of one release.", {"found": name})
        workers = content.get("workers")
        if not isinstance(workers, list) or not workers or len(workers) != len(set(map(str, workers))):
            raise malformed(Kind.HELLO, "it names no workers, or one twice")
        process, processes = number(content, "process", Kind.HELLO), number(content, "processes", Kind.HELLO)
        if not process < processes <= 1 << 20:
            raise malformed(Kind.HELLO, f"process {process} is none of {processes}")
        trace_id = content.get("trace_id")
        if not isinstance(trace_id, str) or not trace_id:
            raise malformed(Kind.HELLO, "it has no trace_id")
        worker_numbers = tuple(number({"worker": worker}, "worker", Kind.HELLO, MAX_WORKER) for worker in workers)
        return cls(trace_id, process, processes, worker_numbers)


def answer(token: str, nonce: bytes) -> bytes:
    """Return what proves that one knows the token: HMAC-SHA256 of the nonce.

    Parameters
    ----------
    token
        What both sides know.
    nonce
        What the server sent for this connection, so that an answer that was overheard is of no use.

    Returns
    -------
    bytes
        `MAC_BYTES` of them.
    """
    return hmac.new(token.encode(), nonce, hashlib.sha256).digest()


def knows(token: str, nonce: bytes, body: bytes) -> bool:
    """Say whether the body of a HELLO begins with the proof that the client knows the token.

    Parameters
    ----------
    token, nonce
        What the client must know, and what it was sent.
    body
        The whole body; of one that is too short the answer is no.

    Notes
    -----
    Takes the same time wherever the proof differs.
    """
    return hmac.compare_digest(answer(token, nonce), body[:MAC_BYTES])


def frame(kind: Kind, *parts: bytes | memoryview) -> bytes:
    """Return a whole frame."""
    return b"".join((HEAD.pack(sum(map(len, parts)), kind), *parts))


def json_frame(kind: Kind, content: dict[str, Any]) -> bytes:
    """Return a whole frame with a body of JSON.

    Parameters
    ----------
    kind
        What the frame says.
    content
        The body, an object. Its length is not checked: who receives it refuses more than `MOST_BYTES`.
    """
    return frame(kind, json.dumps(content).encode())


def head(data: bytes, most: int = MOST_BYTES) -> tuple[Kind, int]:
    """Read the first bytes of a frame.

    Parameters
    ----------
    data
        As many as `HEAD` has.
    most
        The longest body that may come.

    Returns
    -------
    kind, length
        What comes, and how many bytes the body has.

    Raises
    ------
    TraceFormatError
        If the kind is unknown, or the body too long.
    """
    length, kind = HEAD.unpack(data)
    if kind not in list(Kind):
        message = f"A frame of the unknown kind {kind} came."
        raise TraceFormatError(message, "Is the other side a recorder or a follower of this release?", {"kind": kind})
    if length > most:
        message = f"A frame {Kind(kind).name} of {length} bytes came; at most {most} are read."
        raise TraceFormatError(message, "Send smaller portions.", {"kind": kind, "bytes": length})
    return Kind(kind), length


def read_json(body: bytes, kind: Kind) -> dict[str, Any]:
    """Read a body of JSON, which must be an object.

    Parameters
    ----------
    body
        In UTF-8.
    kind
        Of its frame, for the message.

    Raises
    ------
    TraceFormatError
        If it is none.
    """  # noqa: DOC501  (what makes an error is taken for one)
    try:
        content = parse_json(body.decode())
    except ValueError as error:
        raise malformed(kind, str(error)) from error
    if not isinstance(content, dict):
        raise malformed(kind, "it is not an object")
    return content


def number(content: dict[str, Any], name: str, kind: Kind, most: int = 1 << 62) -> int:
    """Return an entry that must be a whole number.

    Parameters
    ----------
    content
        What a body says.
    name
        Of the entry.
    kind
        Of the frame, for the message.
    most
        The largest that may be; the least is 0.

    Raises
    ------
    TraceFormatError
        If it is absent, none (true and 1.0 are none), or out of these bounds.
    """  # noqa: DOC501  (what makes an error is taken for one)
    value = content.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise malformed(kind, f"{name} is {value!r}")
    return value


def stretches(content: dict[str, Any], name: str, kind: Kind) -> list[tuple[int, int]]:
    """Return an entry that must be a list of stretches.

    Parameters
    ----------
    content
        What a body says.
    name
        Of the entry.
    kind
        Of the frame, for the message.

    Returns
    -------
    list of (first, last)
        Numbers as for `number`; which one of a pair is larger is not looked at.

    Raises
    ------
    TraceFormatError
        If it is no list of pairs of such numbers.
    """  # noqa: DOC501  (what makes an error is taken for one)
    value = content.get(name)
    if not isinstance(value, list) or any(not isinstance(pair, list) or len(pair) != len("ab") for pair in value):
        raise malformed(kind, f"{name} is not a list of pairs")
    return [(number({name: first}, name, kind), number({name: last}, name, kind)) for first, last in value]


def malformed(kind: Kind, problem: str) -> TraceFormatError:
    """Return what to raise where a body is not as it should be.

    Parameters
    ----------
    kind
        Of its frame.
    problem
        What is wrong with it, without a full stop.
    """
    return TraceFormatError(f"A frame {kind.name} cannot be read: {problem}.", None, {"kind": kind.name})


def pack_files(files: dict[str, bytes]) -> bytes:
    """Return the body of TABLES."""
    parts = []
    for name, content in files.items():
        encoded = name.encode()
        parts += [_LENGTHS[0].pack(len(encoded)), encoded, _LENGTHS[1].pack(len(content)), content]
    return b"".join(parts)


def unpack_files(body: bytes) -> dict[str, bytes]:
    """Read the body of TABLES.

    Raises
    ------
    TraceFormatError
        If it ends too early, or names a file twice.
    """  # noqa: DOC501  (what makes an error is taken for one)
    files: dict[str, bytes] = {}
    place = 0

    def take(form: struct.Struct) -> bytes:
        nonlocal place
        if place + form.size > len(body):
            raise malformed(Kind.TABLES, "it ends too early")
        begin = place + form.size
        place = begin + form.unpack_from(body, place)[0]
        if place > len(body):
            raise malformed(Kind.TABLES, "it ends too early")
        return body[begin:place]

    while place < len(body):
        name = take(_LENGTHS[0]).decode(errors="replace")
        if name in files:
            raise malformed(Kind.TABLES, f"it holds {name} twice")
        files[name] = take(_LENGTHS[1])
    return files


def place_of(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, with or without ``tcp://``.

    Raises
    ------
    InvalidParameterError
        If it is neither.
    """
    host, colon, port = address.removeprefix(SCHEME).rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) >= 1 << 16:
        message = f"{address!r} is not an address."
        raise InvalidParameterError(message, "Write HOST:PORT, such as 127.0.0.1:7070.")
    return host.removeprefix("[").removesuffix("]"), int(port)
