"""Requests to an ASGI application, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import anyio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def scope_of(address: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> dict[str, Any]:
    """Return what a server tells an application of a request."""
    path, _, query = address.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "server": ("127.0.0.1", 1),
        "client": ("127.0.0.1", 2),
    }


def get(
    app: ASGIApp,
    address: str,
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    leave_after: int | None = None,
) -> Answered:
    """Ask for an address, and return all of the answer; of a stream that does not end so many parts."""
    scope = scope_of(address, headers, method)
    messages: list[dict[str, Any]] = []

    async def ask() -> None:
        is_leaving = anyio.Event()

        async def receive() -> dict[str, Any]:
            if leave_after is not None:
                await is_leaving.wait()
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)
            if leave_after is not None and len(messages) > leave_after:
                is_leaving.set()

        await app(scope, receive, send)

    anyio.run(ask)
    start = messages[0]
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return Answered(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body)
