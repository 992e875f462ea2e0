"""GraphML: vertices and edges with all their columns, and the small tables as data of the graph."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO
from xml.sax.saxutils import escape

import polars as pl
import pyarrow as pa

from pag_graph.model.tables import PAG_EDGES, PAG_VERTICES
from pag_graph.sinks.export.pieces import SMALL_TABLES
from pag_graph.sinks.export.text_files import text_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pag_graph.sinks.export.pieces import Content

_KINDS = {pa.int64(): "long", pa.int32(): "int", pa.string(): "string", pa.float64(): "double", pa.bool_(): "boolean"}
_NODE = [name for name in PAG_VERTICES.names if name != "id"]
_EDGE = [*(name for name in PAG_EDGES.names if name not in {"src", "dst"}), "critical"]


def write(content: Content, target: Path) -> dict[str, int]:
    """Write a graph as GraphML.

    Parameters
    ----------
    content
        What to export.
    target
        File; compressed with gzip if its name ends in ``.gz``.

    Returns
    -------
    dict
        Counts of vertices and edges.

    Notes
    -----
    A node's id is ``n`` and the vertex's id. Nulls are left out: GraphML has none. Node comes before node, then edge
    after edge; `critical` marks the edges on critical paths.
    """
    rows = {"vertices": 0, "edges": 0}
    with text_file(target) as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        file.write('<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n')
        file.writelines(_keys())
        file.write('<graph id="pag" edgedefault="directed">\n')
        for name, value in content.about().items():
            file.write(f'<data key="g_{name}">{_clean(escape(json.dumps(value)))}</data>\n')
        for vertices in content.vertices():
            rows["vertices"] += vertices.height
            _write_rows(file, vertices, pl.format('<node id="n{}">', "id"), _NODE, "v", "</node>")
        for edges in content.edges():
            rows["edges"] += edges.height
            head = pl.format('<edge source="n{}" target="n{}">', "src", "dst")
            _write_rows(file, edges, head, _EDGE, "e", "</edge>")
        file.write("</graph>\n</graphml>\n")
    return rows


def _keys() -> Iterator[str]:
    yield from (
        f'<key id="g_{name}" for="graph" attr.name="{name}" attr.type="string"/>\n' for name in ("run", *SMALL_TABLES)
    )
    for mark, target, schema, names in (("v", "node", PAG_VERTICES, _NODE), ("e", "edge", PAG_EDGES, _EDGE)):
        for name in names:
            kind = _KINDS[schema.field(name).type] if name in schema.names else "boolean"
            yield f'<key id="{mark}_{name}" for="{target}" attr.name="{name}" attr.type="{kind}"/>\n'


def _write_rows(file: TextIO, frame: pl.DataFrame, head: pl.Expr, names: list[str], mark: str, tail: str) -> None:
    if not frame.height:
        return
    data = []
    for name in names:
        value = pl.col(name)
        if frame.schema[name] == pl.String:
            value = value.str.replace_all("&", "&amp;").str.replace_all("<", "&lt;").str.replace_all(">", "&gt;")
        elif frame.schema[name] == pl.Boolean:
            value = pl.when(value).then(pl.lit("true")).otherwise(pl.lit("false"))
        spelled = pl.concat_str(pl.lit(f'<data key="{mark}_{name}">'), value.cast(pl.String), pl.lit("</data>"))
        data.append(spelled.fill_null(""))
    lines = frame.select(pl.concat_str(head, *data, pl.lit(tail)).str.join("\n")).item()
    file.write(lines + "\n")


def _clean(text: str) -> str:
    """Leave out what XML cannot hold at all: control characters. `json.dumps` has escaped them before."""
    return "".join(char for char in text if char >= " " or char in "\t\n\r")
