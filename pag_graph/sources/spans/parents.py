"""Whose child each span is: ids that stand twice, halves of a call under one id, parents that are absent, circles.

Definitions stand in `docs/spans.md`, "What is made of it".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.kernels.span_trees import climb
from pag_graph.sources.spans import oddities
from pag_graph.sources.spans.oddities import Odd
from pag_graph.sources.spans.table import CHILD_OF, CLIENT, FOLLOWS_FROM, LINK, NO_DURATION, SERVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.sources.spans.table import SpanTable

    I64 = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Spans without repeats, and who is whose parent; one element per span, of which others are told by their index."""

    row: I64
    """Row of the table."""
    parent: I64
    """Index of the parent, or -1."""
    follows: Flags
    """Whether the parent is one that the span only follows from."""
    root: I64
    depth: I64
    rank: I64
    """Order of spans that does not depend on the order of files."""
    orphan: Flags
    """Whether the root states a parent that is absent, or was cut out of a circle."""
    links: tuple[I64, I64]
    """Further references within a trace: from which span to which one."""
    odd: dict[str, Odd]
    """What is odd, by name."""


def family(table: SpanTable) -> Family:
    """Find the parent of every span.

    Parameters
    ----------
    table
        All spans.

    Returns
    -------
    Family
        Of spans that stand more than once the longest is kept; of one id with a client's and a server's half both are,
        and the server's is the client's child.

    Notes
    -----
    O(n log n). A parent is the first CHILD_OF that exists in the trace, else the first FOLLOWS_FROM.
    """
    rank = _ranks(table)
    rows_kept, client_of, repeats = _without_repeats(table, rank)
    place = np.full(table.rows, -1, np.int64)
    place[rows_kept] = np.arange(len(rows_kept))
    resolved, missing, foreign = _resolved(table, rows_kept, client_of)
    parent, follows, links = _parents(resolved, place, rows_kept, client_of)
    own_rank = rank[rows_kept]
    above, root, depth, cut = climb(parent, own_rank)
    stated = np.zeros(len(rows_kept), np.bool_)
    stated[place[missing]] = True
    parentless = (stated & (above < 0)) | cut
    return Family(
        row=rows_kept,
        parent=above,
        follows=follows,
        root=root,
        depth=depth,
        rank=own_rank,
        orphan=parentless[root],
        links=links,
        odd={
            oddities.TWICE: Odd(repeats),
            oddities.MISSING: Odd(int((parentless & ~cut).sum())),
            oddities.CYCLE: Odd(int(cut.sum())),
            oddities.ELSEWHERE: Odd(foreign),
            oddities.NO_DURATION: Odd(int(((table.spans["flags"] & NO_DURATION) > 0).sum())),
        },
    )


def _ranks(table: SpanTable) -> I64:
    """Return the place of each span by trace, start, length (longest first), and whatever else tells spans apart."""
    spans = table.spans
    trace, start, end = (spans[name].to_numpy() for name in ("trace", "start", "end"))
    order = np.lexsort((start - end, start, trace))
    alike = np.zeros(len(order) + 1, np.bool_)
    alike[1:-1] = True
    for column in (trace, start, end):
        alike[1:-1] &= column[order[1:]] == column[order[:-1]]
    # Few spans begin and end together; only they are compared by their ids, which are text.
    tied = np.flatnonzero(alike[:-1] | alike[1:])
    if len(tied):
        names = ("trace", "start", "length", "id", "kind", "process", "operation", "thread", "flags")
        ties = spans[order[tied]].with_columns(row=order[tied], length=pl.col("start") - pl.col("end"))
        order[tied] = ties.sort(*names, maintain_order=True)["row"].to_numpy()
    rank = np.empty(table.rows, np.int64)
    rank[order] = np.arange(table.rows)
    return rank


def _without_repeats(table: SpanTable, rank: I64) -> tuple[I64, dict[int, int], int]:
    """Return the rows to keep, the client's row of each server's that shares its id, and how many are left out."""
    spans = table.spans.select("trace", "id", "kind").with_row_index("row").with_columns(rank=pl.Series(rank))
    twice = spans.filter(pl.struct("trace", "id").is_duplicated()).sort("trace", "id", "rank")
    if not twice.height:
        return np.arange(table.rows), {}, 0
    dropped = np.zeros(table.rows, np.bool_)
    client_of: dict[int, int] = {}
    for _, group in twice.group_by("trace", "id", maintain_order=True):
        rows, kinds = group["row"].to_list(), group["kind"].to_list()
        halves = [
            next((row for row, kind in zip(rows, kinds, strict=True) if kind == half), None)
            for half in (CLIENT, SERVER)
        ]
        client, server = halves
        is_call = client is not None and server is not None
        stay = {client, server} if is_call else {rows[0]}
        dropped[[row for row in rows if row not in stay]] = True
        if client is not None and server is not None:
            client_of[server] = client
    return np.flatnonzero(~dropped), client_of, int(dropped.sum())


def _resolved(table: SpanTable, rows_kept: I64, client_of: dict[int, int]) -> tuple[pl.DataFrame, I64, int]:
    """Return references (row, type, order, target row), rows that state parents in vain, and links to other traces."""
    trace_of = table.spans["trace"]
    stays = np.zeros(table.rows, np.bool_)
    stays[rows_kept] = True
    references = table.references.with_row_index("order").filter(pl.Series(stays).gather(table.references["row"]))
    within = references["trace"] == trace_of.gather(references["row"])
    foreign = int((~within).sum())
    references = references.filter(within)
    stays[list(client_of)] = False
    targets = table.spans.select("trace", "id").with_row_index("target").filter(pl.Series(stays))
    joined = references.join(targets, on=["trace", "id"], how="left", maintain_order="left")
    # An id of zeros says that there is no parent, unless a span has it.
    names_parent = (pl.col("type") != LINK) & (pl.col("id").str.strip_chars("0") != "")
    in_vain = joined.filter(pl.col("target").is_null() & names_parent)["row"].unique().to_numpy()
    joined = joined.drop_nulls("target").select("row", "type", "order", "target")
    return _halved(table, joined, client_of), in_vain.astype(np.int64), foreign


def _halved(table: SpanTable, joined: pl.DataFrame, client_of: dict[int, int]) -> pl.DataFrame:
    """Let references to a shared id point to the half of the child's own service; a server's only to its client's."""
    if not client_of:
        return joined
    halves = pl.DataFrame(
        {"server": list(client_of), "target": list(client_of.values())},
        schema={"server": pl.UInt32, "target": pl.UInt32},
    )
    service = pl.Series([process.service for process in table.processes]).gather(table.spans["process"])
    joined = joined.join(halves, on="target", how="left", maintain_order="left")
    to_client = service.gather(joined["row"]) == service.gather(joined["target"])
    same_server = service.gather(joined["row"]) == service.gather(joined["server"].fill_null(0))
    chosen = pl.when(pl.col("server").is_null() | (to_client & ~same_server)).then("target").otherwise("server")
    # Halves of one service: whatever lies below was done by the server.
    rows = joined.with_columns(target=chosen).drop("server")
    return rows.filter(~pl.col("row").is_in(list(client_of)))


def _parents(
    resolved: pl.DataFrame, place: I64, rows_kept: I64, client_of: dict[int, int]
) -> tuple[I64, Flags, tuple[I64, I64]]:
    parent, follows = np.full(len(rows_kept), -1, np.int64), np.zeros(len(rows_kept), np.bool_)
    stated = resolved.filter(pl.col("type") != LINK).sort("row", "type", "order")
    best = stated.unique("row", keep="first", maintain_order=True)
    rows = place[best["row"].to_numpy()]
    parent[rows] = place[best["target"].to_numpy()]
    follows[rows] = best["type"].to_numpy() == FOLLOWS_FROM
    for server, client in client_of.items():
        parent[place[server]], follows[place[server]] = place[client], False
    further = resolved.join(best.select("order"), on="order", how="anti", maintain_order="left").filter(
        (pl.col("type") != CHILD_OF) & (pl.col("row") != pl.col("target"))
    )
    links = place[further["row"].to_numpy()], place[further["target"].to_numpy()]
    return parent, follows, links
