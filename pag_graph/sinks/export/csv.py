"""CSV: a folder with one file per table of the store, and the critical paths."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv

from pag_graph.model.tables import CRITICAL_PATH, PAG_EDGES, PAG_VERTICES, STORE_TABLES
from pag_graph.model.units import FORMULA, NO_TEXT, NOT_SHOWN

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pag_graph.sinks.export.pieces import Content

RUN_FILE = "run.json"
"""Identity and provenance of the run."""


FILES = (RUN_FILE, *(f"{name}.csv" for name in (*STORE_TABLES, "critical_path")))
"""Names of all files that an export writes."""


def write(content: Content, target: Path) -> dict[str, int]:
    """Write tables as CSV.

    Parameters
    ----------
    content
        What to export.
    target
        Folder to fill.

    Returns
    -------
    dict
        Rows of each table.

    Notes
    -----
    Strings are in quotes, so that an empty one differs from none: ``""`` and nothing. A text with which a spreadsheet
    would calculate has an apostrophe in front, and so has one that begins with an apostrophe (`in_cell`).
    """
    edge = pa.schema([*PAG_EDGES, pa.field("critical", pa.bool_())])
    path = pa.schema([*CRITICAL_PATH, pa.field("epoch", pa.int64()), pa.field("window", pa.string())])
    rows = {
        "vertices": _write(target / "vertices.csv", PAG_VERTICES, content.vertices()),
        "edges": _write(target / "edges.csv", edge, content.edges()),
        "critical_path": _write(target / "critical_path.csv", path, [content.path]),
    }
    for name, schema in STORE_TABLES.items():
        if name not in rows:
            # Neither has a store that one wrote without a table.
            frame = content.run.scan(name).collect() if name in content.run.info.tables else pl.DataFrame()
            # A store that an earlier release wrote may lack a column.
            missing = [column.name for column in schema if column.name not in frame.columns]
            frame = frame.with_columns(pl.lit(None).alias(column) for column in missing)
            rows[name] = _write(target / f"{name}.csv", schema, [frame])
    (target / RUN_FILE).write_text(json.dumps(dict(content.run.info.run), indent=2) + "\n", encoding="utf-8")
    return rows


def _write(file: Path, schema: pa.Schema, frames: Iterable[pl.DataFrame]) -> int:
    plain = pa.schema([pa.field(column.name, column.type) for column in schema])
    rows = 0
    with pa_csv.CSVWriter(file, plain) as writer:
        for frame in frames:
            writer.write_table(_safe(frame.select(plain.names)).to_arrow().cast(plain))
            rows += frame.height
    return rows


def _safe(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with their texts as `in_cell` has them, column by column."""
    text = pl.col(pl.String).str.replace_all(NO_TEXT, NOT_SHOWN)
    return frame.with_columns(pl.when(text.str.contains(FORMULA)).then(pl.lit("'") + text).otherwise(text).name.keep())
