"""How answers leave the terminal: tables for people, JSON and CSV for programs, progress for those who wait."""

from __future__ import annotations

import json
import math
import shlex
import sys
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.model.units import in_markdown, printable, printable_lines
from pag_graph.sinks.csv_tables import csv_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.status import Status

_MOST_LEFT_OUT = 20


class Format(StrEnum):
    """How to print an answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def stdout() -> Console:
    """Return the console for answers; as wide as the answer where nobody reads it on a terminal."""
    return _console(soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """Return the console for progress and errors; lines are whole where nobody reads them on a terminal."""
    return _console(soft_wrap=not sys.stderr.isatty(), stderr=True)


def _console(*, soft_wrap: bool = False, stderr: bool = False) -> Console:
    """Return a console that takes what it is told for text, wherever that comes from.

    Without ``markup=True`` brackets and colons mean nothing, and nothing that a terminal obeys goes through.
    """
    # Rich takes a while to load, so it is loaded when something is printed.
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        """A console for text of traces."""

        def print(self, *objects: Any, **options: Any) -> None:
            """Print texts as they are, except for characters that a terminal would obey."""
            shown = (printable_lines(item) if isinstance(item, str) else item for item in objects)
            super().print(*shown, **options)

        def rule(self, title: Any = "", **options: Any) -> None:
            """Draw a line with a title."""
            super().rule(Text(printable(str(title))), **options)

        def status(self, status: Any, **options: Any) -> Status:
            """Say what goes on, for as long as it does."""
            return super().status(Text(printable_lines(str(status))), **options)

    return Plain(highlight=False, markup=False, emoji=False, soft_wrap=soft_wrap, stderr=stderr)


def print_json(value: Any) -> None:
    """Print a value as JSON; null for what JSON has no number for: NaN and infinity."""
    try:
        text = json.dumps(value, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), indent=2, allow_nan=False)
    sys.stdout.write(text + "\n")


def print_facts(facts: Mapping[str, Any], form: Format) -> bool:
    """Print facts for programs, as JSON or as one row of CSV.

    Returns
    -------
    bool
        Whether that was asked for; people are told in words.
    """
    if form is Format.JSON:
        print_json(facts)
    elif form is Format.CSV:
        print_csv([dict(facts)], list(facts))
    return form is not Format.TABLE


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str], title: str | None = None) -> None:
    """Print rows as a table for people; nulls are empty."""
    from rich.table import Table

    table = Table(title=title and printable(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        numeric = all(isinstance(row[name], int | float) or row[name] is None for row in rows)
        table.add_column(printable(name), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(printable(_cell(row[name])) for name in columns))
    console = stdout()
    if not console.is_terminal:
        # Nothing is cut off where no terminal shows the lines.
        console.width = 10_000
    console.print(table)


def tell_next(*words: str | Path) -> None:
    """Say which command comes next, so that a shell takes it as it is, whatever the names of its files are."""
    named = [f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word) for word in words]
    stdout().print(f"Next: {shlex.join(named)}", style="dim")


def tell_left_out(entries: Sequence[str]) -> None:
    """Say on standard error what is left out of an answer, each with its reason."""
    for entry in entries[:_MOST_LEFT_OUT]:
        stderr().print(printable(f"left out: {entry}"), markup=False, style="yellow")
    if len(entries) > _MOST_LEFT_OUT:
        stderr().print(f"left out: {len(entries) - _MOST_LEFT_OUT:,} more", style="yellow")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def print_csv(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as CSV with a header; texts as `in_cell` has them, numbers as they are."""
    sys.stdout.write(csv_text(rows, columns))


def print_text(text: str) -> None:
    """Print lines of text as they are, except for characters that a terminal would obey."""
    sys.stdout.write(printable_lines(text) + "\n")


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


@contextmanager
def compiling(*parts: str, quiet: bool, report: Callable[[str, int, int], None]) -> Iterator[None]:
    """Say on standard error that kernels are compiled, where the block is the first that needs them.

    Parameters
    ----------
    *parts
        What is expected to be called; see `pag_graph.kernels.expected.expecting`.
    quiet
        Say nothing.
    report
        Of `progress`: shows how far it is.
    """
    from pag_graph.kernels.expected import expecting

    def tell(label: str, done: int, total: int) -> None:
        if done == 0:
            # Half a minute on a slow machine: said also where no bar is shown.
            stderr().print(f"Compiling {total} kernels, once per installation.", style="dim")
        report(label, done, total)

    with expecting(*parts, tell=None if quiet else tell):
        yield
