"""Motifs searched for by hand: terms in order, one row at a time, as GraphFrames' documentation defines them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import networkx as nx
from hypothesis import strategies as st

from pag_graph.motif.syntax import Edge, must_exist

if TYPE_CHECKING:
    import polars as pl

    from pag_graph.motif.syntax import Motif

Row = dict[str, dict[str, Any]]


def search(graph: nx.MultiDiGraph, motif: Motif) -> list[Row]:
    """Return every match, vertices and edges as dictionaries."""
    positive = [term for term in motif.terms if not (isinstance(term, Edge) and term.negated)]
    held = {name for term in positive for name in ([term.src, term.dst] if isinstance(term, Edge) else [term.name])}
    lonely = sorted(
        {
            name
            for term in motif.terms
            if isinstance(term, Edge) and term.negated
            for name in (term.src, term.dst)
            if must_exist(name) and name not in held
        }
    )
    real = {key: data for key, data in graph.nodes(data=True) if data.get("exists")}
    rows: list[Row] = [{}]
    for name in lonely:
        rows = [{**row, name: vertex} for row in rows for vertex in real.values()]
    for term in motif.terms:
        if not isinstance(term, Edge):
            rows = [
                {**row, term.name: vertex}
                for row in rows
                for vertex in (real.values() if term.name not in row else [row[term.name]])
            ]
            continue
        if term.negated:
            kept = [row for row in rows if not extend(graph, real, row, term)]
            rows = [dict(each) for each in {str(row): row for row in kept}.values()]
            continue
        rows = [new for row in rows for new in extend(graph, real, row, term)]
    return [{name: row[name] for name in motif.columns} for row in rows]


def extend(graph: nx.MultiDiGraph, real: dict[int, Any], row: Row, term: Edge) -> list[Row]:
    found = []
    for src, dst, data in graph.edges(data=True):
        new = dict(row)
        for name, end in ((term.src, src), (term.dst, dst)):
            if not must_exist(name):
                continue
            if end not in real or (name in new and new[name]["id"] != end):
                break
            new[name] = real[end]
        else:
            if term.named:
                new[term.name] = {"src": src, "dst": dst, **data}
            found.append(new)
    return found


def as_networkx(vertices: pl.DataFrame, edges: pl.DataFrame) -> nx.MultiDiGraph:
    graph = nx.MultiDiGraph()
    for vertex in vertices.to_dicts():
        graph.add_node(vertex["id"])
        # The node's data is the row itself, but for a mark of those that exist.
        graph.nodes[vertex["id"]].update(vertex)
        graph.nodes[vertex["id"]]["exists"] = True
    for edge in edges.to_dicts():
        graph.add_edge(edge.pop("src"), edge.pop("dst"), **edge)
    return graph


@st.composite
def motifs(draw: st.DrawFn) -> str:
    """Draw the text of a motif that GraphFrames also takes, so without chains."""
    names = st.sampled_from(["a", "b", "c", ""])
    terms: list[str] = []
    held: set[str] = set()
    repeated: set[str] = set()
    for index in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 7)) == 0:
            name = draw(st.sampled_from(["a", "b", "z"]))
            terms.append(f"({name})")
            held.add(name)
            continue
        src, dst = draw(names), draw(names)
        label = draw(st.sampled_from(["", f"e{index}"]))
        inner = f"{src}{dst}"
        repeat = 0
        if inner and inner not in repeated and draw(st.integers(0, 4)) == 0:
            repeat = draw(st.integers(1, 2))
            repeated.add(inner)
        if not (src or dst or label):
            label = f"e{index}"
        body = f"{label}*{repeat}" if repeat else label
        heads = draw(st.integers(0, 6))
        if heads == 0 and not repeat:
            terms.append(f"({src})<-[{body}]->({dst})")
        elif heads <= 1:
            terms.append(f"({dst})<-[{body}]-({src})")
        else:
            terms.append(f"({src})-[{body}]->({dst})")
        held |= {src, dst} - {""}
    for _ in range(draw(st.integers(0, 2))):
        src = draw(st.sampled_from([*sorted(held), "n"]))
        dst = draw(st.sampled_from([*sorted(held), "", src]))
        at = draw(st.integers(0, len(terms)))
        terms.insert(at if draw(st.booleans()) else len(terms), f"!({src})-[]->({dst})")
    return draw(st.sampled_from(["; ", ";"])).join(terms)


def in_order(motif: Motif) -> bool:
    """Tell whether GraphFrames can take the terms in this order: what is negated is known by then."""
    bound: set[str] = set()
    later = {
        name
        for term in motif.terms
        if not (isinstance(term, Edge) and term.negated)
        for name in ((term.src, term.dst) if isinstance(term, Edge) else (term.name,))
    }
    for term in motif.terms:
        names = {term.src, term.dst} if isinstance(term, Edge) else {term.name}
        if isinstance(term, Edge) and term.negated and (names & later) - bound:
            return False
        bound |= names
    return True
