"""A comparison as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.model.units import printable

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.comparison.accounting import Comparison

__all__ = ["comparison_lines"]


def comparison_lines(told: Comparison, top: int) -> list[str]:
    """Return a comparison for people.

    Parameters
    ----------
    told
        Of two runs.
    top
        Rows of each part.

    Returns
    -------
    list of str
        What differs comes first.
    """
    new, base = told.new.diagnosis.span_ns, told.base.diagnosis.span_ns
    share = told.difference_ns / max(base, 1)
    spans = f"{told.new.log.name}: {_seconds(new)}; {told.base.log.name}: {_seconds(base)}"
    lines = [f"{spans}; difference {_signed(told.difference_ns)} ({share:+.1%})", ""]
    if told.differences:
        lines.append("What is not the same:")
        lines += [f"  {row.what}: {row.text}" for row in told.differences[:top]]
        if len(told.differences) > top:
            lines.append(f"  and {len(told.differences) - top} more")
    else:
        lines.append("Nothing that the logs state is different: settings, version, cores, plans, bytes read.")
    lines += [f"  followed: {row.text}" for row in told.followed]
    lines += ["", *_attributed(told)]
    moved = [row for row in told.rows if row.difference_ns]
    where = "Where the paths differ (all rows add up to the difference):" if moved else "The paths are the same."
    lines += ["", where]
    for row in moved[:top]:
        unit = f"{row.unit}, " if row.unit else ""
        why = "" if row.volume_ns is None else f" ({_signed(row.volume_ns)} by rows, {_signed(row.rate_ns)} by rate)"
        lines.append(f"  {_signed(row.difference_ns)}  {unit}{row.name}, {row.activity}{why}")
    rest = sum(row.difference_ns for row in moved[top:])
    if len(moved) > top:
        lines.append(f"  {_signed(rest)}  in {len(moved) - top} other rows")
    paired = sum(bool(pair.new and pair.base) for pair in told.pairs)
    parts = f"{told.matched[0]:.0%} of the work on the new path, {told.matched[1]:.0%} of the base's"
    lines += ["", f"{paired} queries and jobs are in both: {parts}."]
    for what, alone in (
        ("new", [p.new for p in told.pairs if not p.base]),
        ("base", [p.base for p in told.pairs if not p.new]),
    ):
        names = [f"{unit.kind} {unit.number}" for unit in alone if unit]
        if names:
            lines.append(f"Only in the {what} one: {', '.join(names[:top])}" + (", ..." if len(names) > top else ""))
    return [printable(line) for line in lines]


def _attributed(told: Comparison) -> list[str]:
    """Say what the difference goes back to."""
    found = told.attribution
    if found.refused:
        return [f"What it goes back to was not replayed: {found.refused}."]
    parts = [part for part in found.parts if part.ns]
    if not parts:
        return ["Replayed, nothing differs."]
    head = f"What it goes back to (replayed {found.replays} times; parts add up to the difference):"
    return [head, *(f"  {_signed(part.ns)}  {part.name}: {part.text}" for part in parts)]


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.2f} s"


def _signed(ns: int) -> str:
    return f"{ns / 1e9:+,.2f} s" if abs(ns) >= 10_000_000 else f"{ns / 1e6:+,.2f} ms"  # noqa: PLR2004 as shown
