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
    new_ns, base_ns = told.new.diagnosis.span_ns, told.base.diagnosis.span_ns
    share = told.difference_ns / max(base_ns, 1)
    spans = f"{told.new.log.name}: {_seconds(new_ns)}; {told.base.log.name}: {_seconds(base_ns)}"
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
    unlike = [row for row in told.rows if row.difference_ns]
    heading = "Where the paths differ (all rows add up to the difference):" if unlike else "The paths are the same."
    lines += ["", heading]
    for row in unlike[:top]:
        unit = f"{row.unit}, " if row.unit else ""
        volume_text = (
            "" if row.volume_ns is None else f" ({_signed(row.volume_ns)} by rows, {_signed(row.rate_ns)} by rate)"
        )
        lines.append(f"  {_signed(row.difference_ns)}  {unit}{row.name}, {row.activity}{volume_text}")
    rest_ns = sum(row.difference_ns for row in unlike[top:])
    if len(unlike) > top:
        lines.append(f"  {_signed(rest_ns)}  in {len(unlike) - top} other rows")
    paired = sum(bool(pair.new and pair.base) for pair in told.pairs)
    matched = f"{told.matched[0]:.0%} of the work on the new path, {told.matched[1]:.0%} of the base's"
    lines += ["", f"{paired} queries and jobs are in both: {matched}."]
    for run_name, alone in (
        ("new", [one_pair.new for one_pair in told.pairs if not one_pair.base]),
        ("base", [one_pair.base for one_pair in told.pairs if not one_pair.new]),
    ):
        names = [f"{unit.kind} {unit.number}" for unit in alone if unit]
        if names:
            lines.append(
                f"Only in the {run_name} one: {', '.join(names[:top])}" + (", ..." if len(names) > top else "")
            )
    return [printable(line) for line in lines]


def _attributed(comparison: Comparison) -> list[str]:
    """Say what the difference goes back to."""
    attribution = comparison.attribution
    if attribution.refused:
        return [f"What it goes back to was not replayed: {attribution.refused}."]
    parts = [part for part in attribution.parts if part.ns]
    if not parts:
        return ["Replayed, nothing differs."]
    head = f"What it goes back to (replayed {attribution.replays} times; parts add up to the difference):"
    return [head, *(f"  {_signed(part.ns)}  {part.name}: {part.text}" for part in parts)]


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.2f} s"


def _signed(ns: int) -> str:
    return f"{ns / 1e9:+,.2f} s" if abs(ns) >= 10_000_000 else f"{ns / 1e6:+,.2f} ms"  # noqa: PLR2004 as shown
