"""Pieces of HTML: tables of rows and lists of facts. Whatever comes from a trace is escaped, and bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.model.units import in_html, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST = 2_000
"""Letters of a text that is shown."""


def rows_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return a table with a line for each row.

    Parameters
    ----------
    rows
        Each with a value for every column.
    columns
        Their names, which head the table.

    Returns
    -------
    str
        A ``table``; cells of numbers have the class ``number``.
    """
    head = "".join(f"<th>{in_html(name)}</th>" for name in columns)
    body = (f"<tr>{''.join(_cell(row[name]) for name in columns)}</tr>" for row in rows)
    return "\n".join([f"<table><tr>{head}</tr>", *body, "</table>"])


def facts(title: str, values: Mapping[str, Any]) -> str:
    """Return what is known of a thing: a heading, and a line for each fact that there is.

    Parameters
    ----------
    title
        The heading.
    values
        Names of the facts, and what each is, in the order of the lines; those that are None are left out.

    Returns
    -------
    str
        A paragraph and a ``table``. Texts are escaped and have at most `LONGEST` letters.
    """
    shown_values = [{"": name, " ": value} for name, value in values.items() if value is not None]
    return f"<p><strong>{in_html(short(title, LONGEST))}</strong></p>\n{rows_table(shown_values, ('', ' '))}"


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, float):
        return f'<td class="number">{value:,.4f}</td>'
    return (
        f'<td class="number">{value:,}</td>'
        if isinstance(value, int)
        else f"<td>{in_html(short(str(value), LONGEST))}</td>"
    )
