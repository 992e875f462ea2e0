"""Lines that the package `mcp` says nothing to are answered, as JSON-RPC wants it.

These are lines that are no message, and requests whose id is null or a fraction: JSON-RPC allows such ids. The Model
Context Protocol does not, and the package takes such a request for a notification.

Requests are answered though nothing comes after them: where the input ends, the package drops those that it works on.

A request with the id of one that is being answered is refused: nobody could say whose answer is whose. JSON-RPC takes
null for an id as well, though it advises against it, and so it is no exception.
"""

from __future__ import annotations

import json
import math
import os
import re
import selectors
from collections import Counter
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import anyio
from mcp.server import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

    from anyio.abc import ObjectSendStream

__all__ = ["AnsweringServer", "refusal"]

_PIECE = 1 << 16
"""Bytes that are read at a time."""
_HALF = re.compile("[\ud800-\udfff]")
"""Half a character, which cannot be written."""
_NEVER_ANSWERED = "subscriptions/listen"
"""A request that stays open as long as the connection."""
_OF_THE_MESSAGE = 2
"""Parts of the place of what is wrong with a message itself: kind of message, and field."""


class AnsweringServer(MCPServer[Any]):
    """A server that also answers lines of its input that are no message; its base class says nothing to them."""

    async def run_stdio_async(self) -> None:
        """Serve standard input/output until the input ends.

        Raises
        ------
        BrokenPipeError
            If nobody reads the answers any more.
        """
        try:
            lines = _Lines()
            # It takes anything that yields lines.
            async with (
                stdio_server(cast("anyio.AsyncFile[str]", lines)) as (incoming, outgoing),
                anyio.create_task_group() as tasks,
            ):
                sound, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
                answers, answered = anyio.create_memory_object_stream[SessionMessage](0)
                waiting = _Waiting()
                tasks.start_soon(_pass_on, incoming, sound, answers.clone(), waiting)
                tasks.start_soon(_answer, answered, outgoing, lines, waiting)
                server = self._lowlevel_server
                await server.run(messages, answers, server.create_initialization_options())
        except BaseExceptionGroup as group:
            if group.split(BrokenPipeError)[1] is None:
                raise BrokenPipeError from group
            raise


class _Answer(JSONRPCResponse):
    """An answer to a request with any id."""

    id: Any


class _RefusalError(JSONRPCError):
    """An error about a request with any id."""

    id: Any


class _Lines:
    """Standard input, in which requests with ids that the package does not know have others that it does.

    It is waited for without a thread: one that reads what stays open cannot be ended, and would keep the server running
    after Ctrl-C.
    """

    def __init__(self) -> None:
        # As the package does it: whatever else reads standard input finds nothing, and does not take lines away.
        self._wire = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self._waits = _can_wait_for(self._wire)
        self._read = bytearray()
        self._stated: dict[str, float | None] = {}
        self._asked: Counter[str] = Counter()

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield lines until the input ends."""
        while line := await self.readline():
            yield line

    async def _next(self) -> str:
        """Return the next line as it is, empty at the end."""
        looked = 0
        while (end := self._read.find(b"\n", looked) + 1) == 0:
            looked = len(self._read)
            await (anyio.wait_readable(self._wire) if self._waits else anyio.lowlevel.checkpoint())
            piece = os.read(self._wire, _PIECE)
            if not piece:
                end = looked
                break
            self._read += piece
        line = self._read[:end].decode(errors="replace")
        del self._read[:end]
        return line

    async def readline(self) -> str:
        """Return the next line, empty at the end.

        Returns
        -------
        str
            With an id in place of null or a fraction. A request whose id is neither text, number nor null is none.
        """
        line = await self._next()
        asked = _leniently(line)
        if not isinstance(asked, dict) or not asked.keys() >= {"id", "method"} or _known(asked["id"]):
            return line
        number = asked["id"]
        if number is not None and not (isinstance(number, float) and math.isfinite(number)):
            return "[]\n"
        # One id has one stand-in as long as it is in use, so that using it again is noticed.
        stand_in = next((known for known, stated in self._stated.items() if stated == number), uuid4().hex)
        self._stated[stand_in] = number
        self._asked[stand_in] += 1
        return json.dumps({**asked, "id": stand_in}) + "\n"

    def restated(self, item: SessionMessage) -> SessionMessage:
        """Return a message with the id that the line had.

        Parameters
        ----------
        item
            Goes out.
        """
        answer = item.message
        if not isinstance(answer, JSONRPCResponse | JSONRPCError) or answer.id not in self._stated:
            return item
        kind = _Answer if isinstance(answer, JSONRPCResponse) else _RefusalError
        fields = {name: getattr(answer, name) for name in answer.model_fields_set}
        stand_in = str(answer.id)
        number = self._stated[stand_in]
        self._asked[stand_in] -= 1
        if not self._asked[stand_in]:
            del self._stated[stand_in], self._asked[stand_in]
        return SessionMessage(kind(**{**fields, "id": number}), item.metadata)


class _Waiting:
    """Requests that an answer will come to."""

    def __init__(self) -> None:
        # Of each id how many answers will come: one more for each request that is refused because it is in use.
        self._ids: Counter[int | str | None] = Counter()
        self._nobody = anyio.Event()

    def asks(self, message: object) -> JSONRPCError | None:
        """Note a message that came in: a request waits, unless none answers it or it is cancelled.

        Returns
        -------
        JSONRPCError or None
            The answer to a request whose id is that of one that waits; it is not to be passed on.
        """
        if isinstance(message, JSONRPCRequest):
            in_use = message.id in self._ids
            if in_use or message.method != _NEVER_ANSWERED:
                self._ids[message.id] += 1
            return _refused(message.id) if in_use else None
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            # The package takes an id for the same as its text, here.
            cancelled = str((message.params or {}).get("requestId"))
            for number in [number for number in self._ids if str(number) == cancelled]:
                del self._ids[number]
        return None

    def is_answered(self, message: object) -> None:
        """Note a message that went out."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._ids -= Counter([message.id])
            if not self._ids:
                self._nobody.set()

    async def out(self) -> None:
        """Wait until nobody waits; no request may come meanwhile."""
        if self._ids:
            self._nobody = anyio.Event()
            await self._nobody.wait()


def _can_wait_for(file: int) -> bool:
    """Say whether the system tells when there is something to read, as of pipes; files keep nobody waiting."""
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(file, selectors.EVENT_READ)
        except PermissionError:
            return False
    return True


async def _answer(answered: AsyncIterable[SessionMessage], outgoing: Any, lines: _Lines, waiting: _Waiting) -> None:
    async with outgoing:
        async for item in answered:
            await outgoing.send(lines.restated(item))
            waiting.is_answered(item.message)


async def _pass_on(
    incoming: AsyncIterable[SessionMessage | Exception],
    sound: ObjectSendStream[SessionMessage | Exception],
    answers: ObjectSendStream[SessionMessage],
    waiting: _Waiting,
) -> None:
    async with sound, answers:
        async for item in incoming:
            if not isinstance(item, ValidationError):
                refused = waiting.asks(item.message) if isinstance(item, SessionMessage) else None
                await (sound.send(item) if refused is None else answers.send(SessionMessage(refused)))
            elif (answer := refusal(item)) is not None:
                await answers.send(SessionMessage(answer))
        # The package ends where `sound` does, whatever it works on.
        await waiting.out()


def refusal(error: ValidationError) -> JSONRPCError | None:
    r"""Return the answer to a line that is no message.

    Parameters
    ----------
    error
        What was found when it was read.

    Returns
    -------
    JSONRPCError or None
        With the id that the line states, so that who asked knows what was refused; without one where it states none
        that could be written. None for an empty line, which asks for nothing.

    Examples
    --------
    >>> from mcp.types import jsonrpc_message_adapter
    >>> try:
    ...     jsonrpc_message_adapter.validate_json(r'{"jsonrpc": "2.0", "id": 4, "method": "\ud800"}')
    ... except ValidationError as error:
    ...     answer = refusal(error)
    >>> answer.id, answer.error.code
    (4, -32700)
    """
    problems = error.errors(include_url=False)
    if problems[0]["type"] == "json_invalid":
        line = problems[0]["input"]
        if not line.strip():
            return None
        code, said, stated = PARSE_ERROR, f"no JSON: {problems[0]['ctx']['error']}", _leniently(line)
    else:
        # One of the kinds of messages always lacks something, and that says what the line holds.
        whole = (problem["input"] for problem in problems if len(problem["loc"]) <= _OF_THE_MESSAGE)
        stated = next((value for value in whole if isinstance(value, dict)), None)
        code, said = INVALID_REQUEST, "no request, notification or response of JSON-RPC 2.0"
    message = f"The line is {said}."
    return JSONRPCError(jsonrpc="2.0", id=_id_of(stated), error=ErrorData(code=code, message=message))


def _refused(number: int | str) -> JSONRPCError:
    message = "A request with this id is being answered: each request needs an id of its own."
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=INVALID_REQUEST, message=message))


def _leniently(line: str) -> Any:
    """Return the value of a line that Python takes for JSON, such as one with half a character; else None."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _id_of(stated: Any) -> int | str | None:
    number = stated.get("id") if isinstance(stated, dict) else None
    if isinstance(number, str):
        return number if _HALF.search(number) is None else None
    return number if _known(number) else None


def _known(number: Any) -> bool:
    """Say whether the package knows ids like this one."""
    return isinstance(number, int | str) and not isinstance(number, bool)
