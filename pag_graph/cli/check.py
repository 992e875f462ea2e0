"""`pag check`: what is odd about a trace or a store."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph.cli.analyses import ALARM, FormatOption, TopOption
from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stderr, stdout
from pag_graph.errors import StoreError
from pag_graph.model.enums import Severity
from pag_graph.model.names import with_worker_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pag_graph.store.delta import StoreInfo

_ORDER = [Severity.INFO, Severity.WARNING, Severity.ERROR]


def check(
    path: Annotated[Path, typer.Argument(metavar="TRACE|STORE", help="A canonical trace, or a store built from one.")],
    severity: Annotated[
        Severity, typer.Option(help="Exit with 9 if there are findings of this severity or a worse one.")
    ] = Severity.ERROR,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read every file of a store and compare it with what was committed."),
    ] = False,
    form: FormatOption = Format.TABLE,
    top: TopOption = 50,
) -> None:
    """Check a trace event by event, or show the findings of a store: what is odd, where, and what was done about it.

    Example: pag check run.trace --severity warning
    """
    findings, names = _of_trace(path) if (path / "meta.json").is_file() else _of_store(path, deep=deep)
    rank = {str(name): place for place, name in enumerate(_ORDER)}
    rows = sorted(findings.to_dicts(), key=lambda row: (-rank[row["severity"]], row["finding"], row["worker"] or 0))
    _show(rows, findings.columns, form, top, names)
    if any(rank[row["severity"]] >= rank[severity] for row in rows):
        sys.exit(ALARM)


def _show(rows: list[dict[str, Any]], columns: list[str], form: Format, top: int, names: Mapping[int, str]) -> None:
    if form is Format.JSON:
        print_json({"findings": rows})
    elif form is Format.CSV:
        print_csv(rows, columns)
    elif not rows:
        stdout().print("Nothing is odd: no findings.")
    else:
        shown = ["severity", "finding", "worker", "seq", "file", "observed", "limit", "unit", "action"]
        shown_rows = with_worker_names(rows[:top], names)
        print_rows(shown_rows, shown, f"findings, worst first ({len(shown_rows)} of {len(rows)})")


def _of_store(path: Path, *, deep: bool = False) -> tuple[pl.DataFrame, Mapping[int, str]]:
    """Return the findings of a store, and the names of its workers."""
    from pag_graph.api import Pag
    from pag_graph.store.check import keeps_checksums

    pag = Pag(path)
    if deep:
        _check_files(pag.run.info)
    if not keeps_checksums(pag.run.info):
        stderr().print(
            f"{path} has files of a release that kept no checksums: damage in them may not show. "
            "Build it again with `--replace` to have them checked.",
            style="yellow",
        )
    return pag.findings(), pag.run.worker_names


def _check_files(info: StoreInfo) -> None:
    """Read all files of a store.

    Raises
    ------
    StoreError
        If any is damaged; names each.
    """
    from pag_graph.store.check import check_store
    from pag_graph.store.parts import MENDING

    with stderr().status(f"checking {info.path}"):
        checked = check_store(info)
    if checked.damaged:
        lines = [f"{len(checked.damaged)} of {checked.files} files of {info.path} are damaged."]
        lines += [error.message for error in checked.damaged]
        context = {"path": str(info.path), "files": [error.context.get("file") for error in checked.damaged]}
        raise StoreError("\n".join(lines), MENDING, context)
    size = f"{checked.size_bytes / 1e6:,.1f} MB"
    stderr().print(f"All {checked.files} files ({size}) are as they were committed.")


def _of_trace(path: Path) -> tuple[pl.DataFrame, Mapping[int, str]]:
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
        return _of_store(folder / "store")
