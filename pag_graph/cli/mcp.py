"""`pag mcp`: why Spark applications were slow, for programs that speak the Model Context Protocol."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path  # noqa: TC003 Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph.errors import MissingExtraError, PagGraphError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server import MCPServer

    from pag_graph.diagnosis.spark.assistant import LogFolder

__all__ = ["mcp", "mcp_server"]


def mcp(
    root: Annotated[Path, typer.Option(metavar="DIR", help="Folder of event logs; nothing outside of it is read.")],
) -> None:
    """Answer assistants' questions about Spark's event logs, by the Model Context Protocol on standard input/output.

    There are four tools: list_logs, why, evidence and compare. They only read; answers are JSON of at most 8 KB.

    Example: pag mcp --root eventlogs
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    if find_spec("mcp") is None:
        raise MissingExtraError.from_extra(what="`pag mcp`", extra="mcp")
    from pag_graph.runtime import memory

    # Before Polars is loaded, as by `pag spark`.
    memory.spare()
    from pag_graph.diagnosis.spark.assistant import LogFolder

    mcp_server(LogFolder(root)).run("stdio")


def mcp_server(logs: LogFolder) -> MCPServer[Any]:
    """Return a server whose tools ask a folder of logs.

    Parameters
    ----------
    logs
        Where the logs are.

    Returns
    -------
    MCPServer
        Of the package ``mcp``; ``run("stdio")`` serves until its input ends.
    """
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    from pag_graph import __version__
    from pag_graph.cli.mcp_lines import AnsweringServer
    from pag_graph.diagnosis.spark.assistant import UNTRUSTED

    def as_json(ask: Callable[[], dict[str, Any]]) -> str:
        try:
            return json.dumps(ask(), ensure_ascii=False)
        except (PagGraphError, OSError) as error:
            # Logs may come and go while a question is answered; that is no error of this program.
            raise ToolError(str(error)) from error

    def list_logs(start: int = 0) -> str:
        """List the event logs that can be asked about; `start` passes over the first ones."""
        return as_json(lambda: logs.list_logs(start))

    def why(log: str) -> str:
        """Say why a Spark application was slow: causes by what they cost, what to change, and where the time went."""
        return as_json(lambda: logs.why(log))

    def evidence(log: str, cause: str, rank: int = 1) -> str:
        """Show one cause that `why` names: its numbers, what was ruled out, recorded and proposed settings."""
        return as_json(lambda: logs.evidence(log, cause, rank))

    def compare(new: str, base: str) -> str:
        """Say where the time of two runs of one Spark program differs, changed settings first."""
        return as_json(lambda: logs.compare(new, base))

    server = AnsweringServer(
        "pag",
        version=__version__,
        instructions=f"Why Spark applications were slow, from their event logs. Times are nanoseconds. {UNTRUSTED}",
        log_level="ERROR",
    )
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    for tool in (list_logs, why, evidence, compare):
        server.add_tool(tool, annotations=reads, structured_output=False)
    return server
