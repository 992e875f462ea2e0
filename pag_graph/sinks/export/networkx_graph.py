"""The graph as networkx has it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from pag_graph.errors import MissingExtraError
from pag_graph.model.tables import PAG_EDGES

if TYPE_CHECKING:
    from pag_graph.sinks.export.pieces import Content


def networkx_graph(content: Content) -> Any:
    """Return a part of the graph as a `networkx.MultiDiGraph`.

    Parameters
    ----------
    content
        Which part.

    Returns
    -------
    networkx.MultiDiGraph
        Nodes are the vertices' ids; attributes of nodes and edges are the columns of the tables, None included. Edges
        also have `critical`: whether they lie on a critical path. ``graph.graph`` has the run's identity under `run`,
        and the rows of the small tables under their names.

    Raises
    ------
    MissingExtraError
        If networkx is not installed.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    if importlib.util.find_spec("networkx") is None:
        raise MissingExtraError.from_extra(what="A networkx graph", extra="graph")
    import networkx as nx

    graph = nx.MultiDiGraph(**content.about())
    for vertices in content.vertices():
        graph.add_nodes_from((row.pop("id"), row) for row in vertices.iter_rows(named=True))
    names = [name for name in PAG_EDGES.names if name not in {"src", "dst"}]
    for edges in content.edges():
        ends = zip(edges["src"].to_list(), edges["dst"].to_list(), strict=True)
        rows = edges.select(*names, "critical").iter_rows(named=True)
        graph.add_edges_from((src, dst, row) for (src, dst), row in zip(ends, rows, strict=True))
    return graph
