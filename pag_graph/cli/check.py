"""`pag check`: what is odd about a trace or a store."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph.cli.analyses import ALARM, FormatOption, TopOption
from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stderr, stdout
from pag_graph.model.enums import Severity

if TYPE_CHECKING:
    import polars as pl

_ORDER = [Severity.INFO, Severity.WARNING, Severity.ERROR]


def check(
    path: Annotated[Path, typer.Argument(metavar="TRACE|STORE", help="A canonical trace, or a store built from one.")],
    severity: Annotated[
        Severity, typer.Option(help="Exit with 9 if there are findings of this severity or a worse one.")
    ] = Severity.ERROR,
    form: FormatOption = Format.TABLE,
    top: TopOption = 50,
) -> None:
    """Check a trace event by event, or show the findings of a store: what is odd, where, and what was made of it.

    Example: pag check run.trace --severity warning
    """
    found = _of_trace(path) if (path / "meta.json").is_file() else _of_store(path)
    rank = {str(name): place for place, name in enumerate(_ORDER)}
    rows = sorted(found.to_dicts(), key=lambda row: (-rank[row["severity"]], row["finding"], row["worker"] or 0))
    _show(rows, found.columns, form, top)
    if any(rank[row["severity"]] >= rank[severity] for row in rows):
        sys.exit(ALARM)


def _show(rows: list[dict[str, Any]], columns: list[str], form: Format, top: int) -> None:
    if form is Format.JSON:
        print_json({"findings": rows})
    elif form is Format.CSV:
        print_csv(rows, columns)
    elif not rows:
        stdout().print("Nothing is odd: no findings.")
    else:
        shown = ["severity", "finding", "worker", "seq", "file", "observed", "limit", "unit", "action"]
        print_rows(rows[:top], shown, f"findings, worst first ({min(top, len(rows))} of {len(rows)})")


def _of_store(path: Path) -> pl.DataFrame:
    from pag_graph.api import Pag

    return Pag(path).findings()


def _of_trace(path: Path) -> pl.DataFrame:
    """Build the graph and forget it: only a build looks at every event and at both ends of every message."""
    from pag_graph import api
    from pag_graph.model.enums import RuleSet
    from pag_graph.store.held import scratch_folder
    from pag_graph.store.order import check_trace
    from pag_graph.store.trace import Trace

    trace = Trace.open(path)
    check_trace(trace)
    rules = RuleSet.ST2 if trace.meta.prepared else trace.meta.rules
    with scratch_folder("pag-check-") as folder, stderr().status(f"checking {path}"):
        api.build(path, folder / "store", rules=rules, engine="local")
        return api.open(folder / "store").findings()
