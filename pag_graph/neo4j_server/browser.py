"""Neo4j Browser: colours, a guide, and the query library as saved queries, served by the server itself.

Neo4j serves what lies under ``browser`` in the first jar that has it. The jar of Neo4j Browser is copied into the
server's ``plugins``, which come first, with the pages of `pages` added under ``browser/pag``. So they come from the
same place as Browser, and no other host has to be allowed. Browser itself asks other hosts for fonts, for scripts that
count its use, and for others that send its errors home: its page in the copy has a policy that keeps it from it.
"""

from __future__ import annotations

import hashlib
import html
import io
import json
import os
import re
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pag_graph.cypher import cypher_library, load_query, queries_for_people

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pag_graph.cypher import Query

_HOST = "127.0.0.1"
JAR = "pag-browser.jar"
_FOLDER = "browser/pag"
_PAGE = "browser/index.html"
# What the page may load. Databases are reached over WebSockets, wherever they are; guides of Neo4j only by who asks for
# one. Browser makes code and styles as it runs, and a page reached by another name has its guide on another host.
_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "img-src 'self' data: blob: https://guides.neo4j.com; "
    "connect-src 'self' data: blob: ws: wss: {hosts} https://guides.neo4j.com"
)
_QUERY_LINE = "QUERY "
# A query sets all parameters, because Browser takes numbers written into `:params` for floating-point ones. Of the run
# that started last: its slowest round, of those that are loaded with the most detail, so that every box has an answer.
_START = """\
:param [{names}] => {{
  MATCH (latest:Run)-[:HAS_EPOCH]->(window:Epoch {{published: true}})
  WITH latest, window
  ORDER BY latest.origin_unix_ns DESC, coalesce(window.detail, 'full') = 'full' DESC, window.role = 'round' DESC,
           window.end_ns - window.start_ns DESC, window.epoch
  LIMIT 1
  RETURN {values}
}}"""
# Parameters that have no value of their own; those that have one are written into the text of each query.
_VALUES = {
    "run": "latest.id",
    "epoch": "window.epoch",
    "worker": "head(COLLECT { MATCH (at:Worker {run: latest.id}) RETURN at.worker ORDER BY at.worker })",
    "at_ns": "(window.start_ns + window.end_ns) / 2",
}
_TYPES = {"html": "text/html; charset=utf-8", "grass": "text/plain; charset=utf-8", "zip": "application/zip"}
_EPOCH_1980 = (1980, 1, 1, 0, 0, 0)


def pages() -> dict[str, bytes]:
    """Return the files that are served, by name: ``guide.html``, ``style.grass`` and ``saved.zip``.

    Returns
    -------
    dict
        The same bytes every time, as long as the library is the same.
    """
    folder = cypher_library() / "browser"
    return {
        "guide.html": _guide((folder / "guide.html").read_text(encoding="utf-8")).encode(),
        "style.grass": (folder / "style.grass").read_bytes(),
        "saved.zip": saved_queries(),
    }


def saved_queries() -> bytes:
    """Return all queries for people as the archive that Browser takes for saved queries, a folder for each topic.

    Returns
    -------
    bytes
        Drop the file onto Browser, and they stand under Favorites.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for query in queries_for_people():
            # Browser calls a query by its first comment.
            title = f"// {query.name.rpartition('/')[2].replace('_', ' ')}\n"
            text = title + for_browser(query, query.text)
            _add(archive, f"{query.folder}/{query.name.rpartition('/')[2]}.cypher", text.encode())
    return packed.getvalue()


def settings(http_port: int, host: str = _HOST) -> str:
    """Return the lines of ``neo4j.conf`` that make Browser open the guide, in our colours, after the login.

    Parameters
    ----------
    http_port
        Port that the server listens on for HTTP.
    host
        Name or address under which others reach it.

    Returns
    -------
    str
        The lines; the host is allowed as a source of guides beside the usual ones.
    """
    base = f"http://{f'[{host}]' if ':' in host else host}:{http_port}/{_FOLDER}"
    return (
        f"browser.post_connect_cmd=style {base}/style.grass; play {base}/guide.html\n"
        f"browser.remote_content_hostname_whitelist={host},localhost,guides.neo4j.com\n"
    )


def guide_uri(http_uri: str) -> str:
    """Return where the guide of a server of ours is, to be given to Browser's ``:play``."""
    return f"{http_uri}/{_FOLDER}/guide.html"


def style_uri(http_uri: str) -> str:
    """Return where the colours of a server of ours are, to be given to Browser's ``:style``."""
    return f"{http_uri}/{_FOLDER}/style.grass"


def install(home: Path, jars: Path, host: str = _HOST) -> None:
    """Put Browser with our pages into the plugins of a server that does not run; leave it if it is current.

    Parameters
    ----------
    home
        The server's folder.
    jars
        The folder with Neo4j's jars.
    host
        Name or address under which others reach the server, as for `settings`.
    """
    original = next(iter(sorted(jars.glob("neo4j-browser-*.jar"))), None)
    target = home / "plugins" / JAR
    if original is None:
        target.unlink(missing_ok=True)
        return
    files = {f"{_FOLDER}/{name}": content for name, content in pages().items()}
    with zipfile.ZipFile(original) as archive:
        files[_PAGE] = confined(archive.read(_PAGE), host)
        digest = hashlib.sha256(original.name.encode())
        for name, content in files.items():
            digest.update(name.encode() + content)
        comment = digest.hexdigest().encode()
        if target.exists():
            with zipfile.ZipFile(target) as present:
                if present.comment == comment:
                    return
        new_jar = target.with_suffix(".new")
        with zipfile.ZipFile(new_jar, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as copy:
            for entry in archive.infolist():
                if entry.filename not in files:
                    copy.writestr(entry, archive.read(entry), compresslevel=1)
            for name, content in files.items():
                _add(copy, name, content)
            copy.comment = comment
    os.replace(new_jar, target)  # noqa: PTH105  (atomic, as everywhere in a server's home)


def confined(page: bytes, host: str = _HOST) -> bytes:
    """Return a page of Browser that loads nothing from other hosts.

    Parameters
    ----------
    page
        Its HTML.
    host
        Name or address of the server that it comes from; its guide may be fetched from there.

    Returns
    -------
    bytes
        The page with a Content Security Policy in its head, before anything that it loads.
    """
    # A policy has no form for addresses of IPv6; a page that comes from one is itself its host.
    host_names = dict.fromkeys((_HOST, "localhost", *([] if ":" in host else [host])))
    policy = _POLICY.format(hosts=" ".join(f"http://{name}:*" for name in host_names))
    meta = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}"/>'
    return re.sub(rb"<head[^>]*>", lambda head: head[0] + meta.encode(), page, count=1)


@contextmanager
def served(port: int = 0) -> Iterator[str]:
    """Serve the pages on loopback, for Browser on a server that is not ours, as long as the context lasts.

    Parameters
    ----------
    port
        Port to listen on; 0 for any.

    Yields
    ------
    str
        Address to which ``guide.html`` or ``style.grass`` is added.
    """
    files = pages()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            content = files.get(name)
            self.send_response(200 if content is not None else 404)
            # Browser comes from another port, so the page has to be open to it.
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Access-Control-Allow-Headers", "*")
            self.send_header("Content-Type", _TYPES.get(name.rpartition(".")[2], "text/plain"))
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def do_OPTIONS(self) -> None:
            self.send_response(204)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Access-Control-Allow-Headers", "*")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing: requests are Browser's, not the user's."""

    with ThreadingHTTPServer((_HOST, port), Pages) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{_HOST}:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH_1980)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def for_browser(query: Query, text: str) -> str:
    """Return text of a query with the defaults of its parameters in their places.

    Parameters
    ----------
    query
        The query.
    text
        Its text, or a part of it.

    Returns
    -------
    str
        What is left to be set are the parameters that the guide's first box sets. Two queries may call parameters the
        same that have different defaults, and Browser has one value for a name.
    """
    defaults = {param.name: json.dumps(param.default) for param in query.params.values() if not param.required}
    lines = text.splitlines(keepends=True)
    # Comments say `$name` of nothing, but the header's text stays as it is.
    return "".join(
        line if line.startswith("//") else re.sub(r"\$(\w+)", lambda match: defaults.get(match[1], match[0]), line)
        for line in lines
    )


def _guide(text: str) -> str:
    """Put the queries into the guide."""
    lines = []
    for line in text.splitlines():
        name = line.strip().removeprefix(_QUERY_LINE)
        if line.strip().startswith(_QUERY_LINE):
            query = load_query(name)
            needs = f" <em>Needs the detail {' or '.join(query.details)}.</em>" if query.details else ""
            box = _box(for_browser(query, query.text))
            lines.append(f"<p>{html.escape(query.purpose)}{needs}</p>{box}")
        else:
            lines.append(line)
    start = html.escape(
        _START.format(
            names=f"{{{', '.join(_VALUES)}}}",
            values=", ".join(f"{value} AS {name}" for name, value in _VALUES.items()),
        ),
        quote=False,
    )
    return "\n".join(lines).replace(">START<", f">{start}<") + "\n"


def _box(text: str) -> str:
    # Its header is for readers of the file; the guide has said what it is for.
    code = "\n".join(line for line in text.splitlines() if not line.startswith("//")).strip()
    return f'<pre class="pre-scrollable code runnable">{html.escape(code, quote=False)}</pre>'
