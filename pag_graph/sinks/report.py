"""One HTML file with an answer and its picture, to be sent around: no script, and nothing from anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.analyses.result_tables import table_of
from pag_graph.analyses.why import Why
from pag_graph.errors import InvalidParameterError
from pag_graph.model.html import rows_table
from pag_graph.model.names import with_worker_names
from pag_graph.model.units import in_html
from pag_graph.sinks.charts import picture

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.analyses.definition import Analysis
    from pag_graph.analyses.reports import Report
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot

_STYLE = """\
body { font: 15px/1.45 sans-serif; color: #222; max-width: 1140px; margin: 24px auto; padding: 0 16px }
h1 { font-size: 22px } h2 { font-size: 17px; margin: 22px 0 6px }
ul { margin: 4px 0; padding-left: 20px }
figure { margin: 16px 0; overflow-x: auto } svg { max-width: 100%; height: auto }
.cause { border-left: 5px solid #2a9d8f; padding: 8px 14px; background: #f4f8f8; font-size: 17px }
.alarm { border-color: #d62828; background: #fdf3f3 }
table { border-collapse: collapse; font-size: 13px } th, td { padding: 2px 10px; text-align: left }
th { border-bottom: 1px solid #888 } td.number { text-align: right; font-variant-numeric: tabular-nums }
footer { color: #777; font-size: 13px; margin-top: 30px }"""


def page(
    analysis: Analysis[Any], result: pa.Table | Report, *, run: Run, snapshot: Snapshot | None = None, top: int = 20
) -> str:
    """Return an answer as one HTML file.

    Parameters
    ----------
    analysis
        Its definition.
    result
        What it returned.
    run
        The run, for names.
    snapshot
        The window that it looked at; none for an analysis of the whole run.
    top
        How many rows, or statements of a topic, to show.

    Returns
    -------
    str
        The document; everything that comes from a trace is escaped.
    """
    subject = f"run {run.info.run['run_id']}"
    if snapshot is not None:
        subject = f"{snapshot.window.name}, {subject}"
    version = in_html(str(run.info.run["product_version"]))
    body = result.html(top=top) if isinstance(result, Why) else _answer(analysis, result, run, top)
    try:
        drawn = [f"<figure>{picture(analysis, result, run=run, snapshot=snapshot)}</figure>"]
    except InvalidParameterError:
        # Some analyses have none.
        drawn = []
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f"<title>{in_html(analysis.name)}: {in_html(subject)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            *body[:2],
            *drawn,
            *body[2:],
            f"<footer>pag {in_html(analysis.name)}, {in_html(subject)}, built with pag_graph {version}</footer>",
            "</body></html>",
            "",
        ]
    )


def _answer(analysis: Analysis[Any], result: pa.Table | Report, run: Run, top: int) -> list[str]:
    table = table_of(result)
    headline = "" if result is table else result.headline()
    paragraphs = "".join(f"<p>{in_html(line)}</p>" for line in headline.splitlines())
    rows = with_worker_names(table.slice(0, top).to_pylist(), run.worker_names)
    columns = list(analysis.columns) or table.column_names
    row_count = f"<p>{len(rows):,} of {table.num_rows:,} rows</p>"
    return [
        f"<h1>{in_html(analysis.help)}</h1>",
        paragraphs,
        rows_table(rows, columns),
        row_count,
    ]
