"""`pag vacuum`: remove what nobody uses of a store."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import Annotated

import typer

from pag_graph.cli.analyses import FormatOption  # noqa: TC001  (Typer reads it)
from pag_graph.cli.output import Format, print_csv, print_json, stdout
from pag_graph.errors import InvalidParameterError

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def vacuum(
    store: Annotated[
        Path, typer.Argument(metavar="STORE|TRACE", help="A store, or the place of a trace.", show_default=False)
    ],
    keep_versions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of the latest committed states to keep.")
    ] = 1,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Only remove what was replaced, or left by other machines, at least this long ago (30m, 12h, 7d).",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Remove what nobody uses any more: replaced versions, and what killed or failed builds left behind.

    A version that a process on this machine has open stays, and so does everything that a running build may commit.
    Readers on other machines are not seen: leave them time with --older-than.

    Example: pag vacuum run.pag --older-than 1d
    """
    from pag_graph.store.leftovers import vacuum as clean

    age = None if older_than is None else _seconds(older_than)
    garbage = clean(store, keep_versions=keep_versions, older_than_s=age, dry_run=dry_run)
    rows = [
        {"path": str(path), "bytes": size, "was": was}
        for was, files in (("replaced", garbage.replaced), ("unfinished", garbage.unfinished))
        for path, size in files.items()
    ]
    if form is Format.CSV:
        print_csv(rows, ["path", "bytes", "was"])
        return
    if form is Format.JSON:
        print_json(
            {
                "store": str(store),
                "dry_run": dry_run,
                "bytes": garbage.bytes,
                "removed": rows,
                "kept_versions": {str(version): reason for version, reason in garbage.kept.items()},
                "building": garbage.building,
                "unknown": [str(path) for path in garbage.unknown],
            }
        )
        return
    console = stdout()
    verb = "Would remove" if dry_run else "Removed"
    console.print(
        f"{verb} {garbage.bytes / 1e6:,.1f} MB: {len(garbage.replaced):,} files of versions that were replaced,"
        f" {len(garbage.unfinished):,} that killed or failed commands left.",
        markup=False,
    )
    for version, reason in garbage.kept.items():
        console.print(f"Kept version {version}: {reason}.", markup=False, style="yellow")
    if garbage.building:
        console.print("A build is running: what is not committed stays.", markup=False, style="yellow")
    for path in garbage.unknown:
        message = f"Kept {path}: made on another machine, where its build may still run; --older-than AGE removes it."
        console.print(message, markup=False, style="yellow")


def _seconds(text: str) -> float:
    """Read an age.

    Raises
    ------
    InvalidParameterError
        If it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip(), re.ASCII)
    if match is None:
        message = f"{text!r} is not an age."
        raise InvalidParameterError(message, "Give a number with s, m, h or d, such as 12h.")
    return float(match[1]) * _SECONDS[match[2]]
