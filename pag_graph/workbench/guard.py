"""Access to the workbench: for browsers on this machine that have the link, and for no page of another origin."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load and run: what this server sends, and nothing written into the page itself."""
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LINK = "Open the link that `pag serve` printed: it holds the token that this address asks for."


class Guard:
    """Refuses what does not come from a page of this server.

    Parameters
    ----------
    app
        What answers the others.
    hosts
        Values of the header ``Host`` under which the server is known. Another one means that a name somewhere else
        points to this machine.
    token
        A secret. A link that holds it sets a cookie, which every other request must bring.
    cookie
        Name of the cookie; cookies do not know ports, so two servers need two names.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], token: str, cookie: str) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        refused = self._refused(scope)
        answer = refused or self._app

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await answer(scope, receive, guarded)

    def _refused(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("This server has another name.", 421)
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("The workbench only reads.", 405, {"Allow": "GET, HEAD"})
        if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
            return PlainTextResponse("Only pages of this server may ask it.", 403)
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["path"] == "/" and tokens and self._is_token(tokens[0]):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
            return answer
        # Pages of other ports of this machine have cookies here as well, and some of them break the rules.
        if not self._is_token(HTTPConnection(scope).cookies.get(self._cookie, "")):
            return PlainTextResponse(_LINK, 403)
        return None

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode("utf-8", "replace"), self._token.encode())
