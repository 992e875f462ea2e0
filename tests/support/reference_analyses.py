"""Critical paths and k-hops by brute force, from the definitions alone, over the rows of a reference graph."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pag_graph.model.enums import LOCAL_TYPES
from pag_graph.testing.reference import inside_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.testing.reference import Row

_LOCAL = {str(kind) for kind in LOCAL_TYPES}


def reference_path(
    edges: Sequence[Row], *, start: int, end: int, end_vertex: int | None = None
) -> list[tuple[int, int, int, int]]:
    """Walk the critical path of a window, vertex by vertex.

    Parameters
    ----------
    edges
        Rows of `PAG_EDGES` of the whole run.
    start, end
        The window.
    end_vertex
        Vertex that closes it, for rounds.

    Returns
    -------
    list
        (src, dst, start, duration) of the edges in time order, cut at the window's borders.

    Raises
    ------
    RuntimeError
        If the walk comes back to where it was, or everybody waits and nothing is under way.
    """
    local = {edge["dst"]: edge for edge in edges if edge["type"] in _LOCAL}
    waits = {dst for dst, edge in local.items() if edge["type"] == "waiting"}
    messages_to_waits = [
        edge for edge in edges if edge["type"] not in _LOCAL and edge["dst"] in waits and edge["duration_ns"] >= 0
    ]
    # Of several messages to a wait's end the one sent last ended it.
    enders = {
        edge["dst"]: edge for edge in sorted(messages_to_waits, key=lambda edge: (edge["start_ns"], -edge["src"]))
    }
    # A worker that was born has no past of its own.
    local |= {edge["dst"]: edge for edge in edges if edge["type"] == "spawn"}
    edge: Row | None
    if end_vertex is not None:
        edge = local[end_vertex]
        if edge["type"] == "waiting":
            # The window closes with the end of a wait: with what ended it, the path begins.
            edge = enders[end_vertex]
    else:
        across = [edge for edge in edges if edge["start_ns"] < end <= edge["start_ns"] + edge["duration_ns"]]
        active = [edge for edge in across if edge["type"] in _LOCAL - {"waiting"}]
        under_way = [edge for edge in across if edge["type"] not in _LOCAL]
        at_work = [edge for edge in active if edge["type"] not in {"idle", "input_wait", "unknown"}]
        if at_work:
            edge = min(at_work, key=lambda edge: edge["dst"] // 2**40)
        elif active:
            # Nobody works: whoever did so last.
            edge = min(active, key=lambda edge: (-edge["start_ns"], edge["dst"] // 2**40))
        elif under_way:
            edge = min(under_way, key=lambda edge: (-edge["start_ns"], edge["src"], edge["dst"]))
        else:
            message = "everybody waits and nothing is under way"
            raise RuntimeError(message)
    path: list[Row] = []
    while edge is not None:
        if edge in path:
            message = f"the path comes back to {edge['dst']}"
            raise RuntimeError(message)
        path.append(edge)
        if edge["start_ns"] <= start:
            break
        edge = local[edge["src"]]
        if edge["type"] == "waiting":
            edge = enders[edge["dst"]]
    return [
        (edge["src"], edge["dst"], max(edge["start_ns"], start), inside_ns(edge, start, end)) for edge in reversed(path)
    ]


def projection(edges: Sequence[Row], *, start: int, end: int) -> list[tuple[object, object, int, Row]]:
    """Project a graph on a window (CPA Def. 3.4): what crosses a border is cut there, what lies outside is dropped.

    Parameters
    ----------
    edges
        Rows of `PAG_EDGES` of the whole run.
    start, end
        The window.

    Returns
    -------
    list
        (src, dst, duration inside, edge); a cut end has a vertex of its own. Messages with negative transfer are
        left out.
    """
    projected: list[tuple[object, object, int, Row]] = []
    for number, edge in enumerate(edges):
        begin, finish = edge["start_ns"], edge["start_ns"] + edge["duration_ns"]
        if finish < begin or finish < start or begin > end:
            continue
        src: object = edge["src"] if begin >= start else ("cut", number, "start")
        dst: object = edge["dst"] if finish <= end else ("cut", number, "end")
        projected.append((src, dst, inside_ns(edge, start, end), edge))
    return projected


def longest_path_ns(edges: Sequence[Row], *, start: int, end: int) -> int:
    """Return the length of the longest path without waits through the projection, found by networkx.

    Parameters
    ----------
    edges
        Rows of `PAG_EDGES` of the whole run.
    start, end
        The window.

    Returns
    -------
    int
        Nanoseconds; 0 if there is no edge.
    """
    import networkx as nx

    graph = nx.MultiDiGraph()
    for src, dst, weight, edge in projection(edges, start=start, end=end):
        if edge["type"] != "waiting":
            graph.add_edge(src, dst, weight=weight)
    return int(nx.dag_longest_path_length(graph, weight="weight")) if graph else 0


def reference_k_hops(
    edges: Sequence[Row], *, start: int, end: int, k: int, through_waits: bool, weight: str
) -> Counter[tuple[int, str, int, int | None, str]]:
    """List all walks of up to `k` edges that end in a seed, and count.

    Parameters
    ----------
    edges
        Rows of `PAG_EDGES` of the whole run.
    start, end
        The window.
    k
        Number of edges of the longest walks.
    through_waits
        Whether walks go along waits.
    weight
        ``delivered`` or ``transfer``.

    Returns
    -------
    Counter
        Per (hop, type, worker, operator, column) the value of the columns `walks`, `edges`, `walk_ns` and `edge_ns`.
    """
    # An edge that crosses the window's end ends at a cut vertex, from where no walk comes back to a wait.
    window_edges = [
        edge
        for edge in edges
        if start < edge["start_ns"] + edge["duration_ns"] <= end
        or (start == 0 == edge["start_ns"] + edge["duration_ns"])
    ]
    waits = sorted(edge["dst"] for edge in window_edges if edge["type"] == "waiting")
    edges_to: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(window_edges):
        if through_waits or edge["type"] != "waiting":
            edges_to[edge["dst"]].append(number)

    def opens_with_wait(read: int) -> bool:
        return any(wait // 2**40 == read // 2**40 and wait <= read for wait in waits)

    seeds = [
        number
        for number, edge in enumerate(window_edges)
        if edge["type"] != "waiting"
        and (edge["dst"] in waits or (edge["type"] == "data_message" and opens_with_wait(edge["read"])))
    ]
    sums: Counter[tuple[int, str, int, int | None, str]] = Counter()
    counted: set[tuple[int, int]] = set()

    def visit(number: int, hop: int) -> None:
        edge = window_edges[number]
        group = (hop, edge["type"], edge["src"] // 2**40, edge["operator"])
        duration = _weight(edge, start, weight)
        sums[*group, "walks"] += 1
        sums[*group, "walk_ns"] += duration
        if (number, hop) not in counted:
            counted.add((number, hop))
            sums[*group, "edges"] += 1
            sums[*group, "edge_ns"] += duration
        if hop < k and (edge["start_ns"] > start or start == 0):
            for earlier in edges_to[edge["src"]]:
                visit(earlier, hop + 1)

    for seed in seeds:
        visit(seed, 1)
    return sums


def _weight(edge: Row, start: int, weight: str) -> int:
    """Duration inside the window; a message's until it is read, or until it arrives."""
    inside: int = edge["start_ns"] + edge["duration_ns"] - max(edge["start_ns"], start)
    if edge["read"] is None:
        return inside
    ended_wait = edge["read"] != edge["dst"]
    buffered = edge["receive_buffer_ns"]
    if weight == "delivered":
        return inside + (buffered or 0 if ended_wait else 0)
    if ended_wait or buffered is None:
        return inside
    return 0
