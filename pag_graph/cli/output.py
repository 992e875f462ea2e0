"""How answers leave the terminal: tables for people, JSON and CSV for programs, progress for those who wait."""

from __future__ import annotations

import csv
import io
import json
import sys
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pag_graph.errors import InvalidParameterError
from pag_graph.model.units import in_markdown, printable
from pag_graph.store.in_place import check_file_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console


class Format(StrEnum):
    """How to print an answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def stdout() -> Console:
    """Return the console for answers; as wide as the answer where nobody reads it on a terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """Return the console for progress and errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def check_output(file: Path | None, *endings: str) -> None:
    """Refuse a file that cannot be written, or whose name says something else, before the work that it is to hold.

    Parameters
    ----------
    file
        The file; None is none.
    endings
        What its name may end in, if it has an ending.

    Raises
    ------
    InvalidParameterError
        If its name ends in something else.
    SinkError
        If it cannot be written.
    """
    if file is None:
        return
    if file.suffix and file.suffix.lower() not in endings:
        written = endings[0].removeprefix(".").upper()
        message = f"{file} ends in {file.suffix}, and {written} would be written."
        raise InvalidParameterError(message, f"Choose a name that ends in {endings[0]}.", {"path": str(file)})
    check_file_place(file)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str], title: str | None = None) -> None:
    """Print rows as a table for people; nulls are empty."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        numeric = all(isinstance(row[name], int | float) or row[name] is None for row in rows)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        # Names of a trace are no markup.
        table.add_row(*(escape(printable(_cell(row[name]))) for name in columns))
    out = stdout()
    if not out.is_terminal:
        # Nobody folds lines there: a column that is cut off is lost.
        out.width = 10_000
    out.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def print_csv(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    sys.stdout.write(text.getvalue())


def print_markdown(rows: Iterable[dict[str, Any]], columns: Sequence[str], title: str) -> None:
    """Print rows as a table in Markdown, under a title."""
    lines = [f"**{title}**", "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(in_markdown(_cell(row[name])) for name in columns) + " |" for row in rows]
    sys.stdout.write("\n".join(lines) + "\n")


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show one bar per step on standard error, where somebody looks at it.

    Parameters
    ----------
    quiet
        Show nothing.

    Yields
    ------
    callable
        To be called with (label, done, all).
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = stderr()
    bars = Progress(
        TextColumn("{task.description:>12}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )
    tasks: dict[str, Any] = {}

    def report(label: str, done: int, total: int) -> None:
        if label not in tasks:
            tasks[label] = bars.add_task(label, total=total)
        bars.update(tasks[label], completed=done, total=total)

    with bars:
        yield report
