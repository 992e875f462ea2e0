"""Lines that are no message of the Model Context Protocol are answered with an error, as JSON-RPC wants it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from anyio.abc import ObjectSendStream

__all__ = ["AnsweringServer", "refusal"]

_HALF = re.compile("[\ud800-\udfff]")
"""Half a character, which cannot be written."""
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
            async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as tasks:
                sound, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
                tasks.start_soon(_pass_on, incoming, sound, outgoing)
                server = self._lowlevel_server
                await server.run(messages, outgoing, server.create_initialization_options())
        except BaseExceptionGroup as group:
            if group.split(BrokenPipeError)[1] is None:
                raise BrokenPipeError from group
            raise


async def _pass_on(
    incoming: AsyncIterable[SessionMessage | Exception],
    sound: ObjectSendStream[SessionMessage | Exception],
    outgoing: Any,
) -> None:
    async with sound:
        async for item in incoming:
            if not isinstance(item, ValidationError):
                await sound.send(item)
            elif (answer := refusal(item)) is not None:
                await outgoing.send(SessionMessage(answer))


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
    return number if isinstance(number, int) and not isinstance(number, bool) else None
