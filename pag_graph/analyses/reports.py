"""What an analysis may return instead of a table, and how it shows itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pag_graph.model.html import rows_table
from pag_graph.model.units import in_html

if TYPE_CHECKING:
    import pyarrow as pa


class Report(Protocol):
    """What an analysis may return instead of a table, where there is more to say than rows.

    Classes that inherit from it show what they do not show in their own way as everybody does: rows under a headline.
    A picture is drawn from the rows, as the analysis' `Chart` says.
    """

    @property
    def table(self) -> pa.Table:
        """Rows of the analysis' schema."""

    def summary(self) -> dict[str, Any]:
        """Return what holds for all rows, as plain values by name."""
        return {}

    def headline(self) -> str:
        """Return what a person reads before the rows: lines, or nothing."""
        return ""

    def text(self, *, top: int = 20) -> str | None:
        """Return the whole answer for a terminal.

        Parameters
        ----------
        top
            Rows to show, about.

        Returns
        -------
        str or None
            None where the headline and the rows are all.
        """
        del top
        return None

    def html(self, *, top: int = 20) -> list[str]:
        """Return the whole answer for a page: what it says, and its first rows.

        Parameters
        ----------
        top
            Rows to show.

        Returns
        -------
        list of str
            Elements of HTML; values from traces are escaped.
        """
        rows = self.table.slice(0, top).to_pylist()
        paragraphs = [f"<p>{in_html(line)}</p>" for line in self.headline().splitlines()]
        return [
            *paragraphs,
            rows_table(rows, self.table.column_names),
            f"<p>{len(rows):,} of {self.table.num_rows:,} rows</p>",
        ]

    def _repr_html_(self) -> str:
        """Return all for a notebook."""
        return "\n".join(self.html())

    def markdown(self, *, top: int = 20) -> str | None:
        """Return the whole answer for an issue, as `text` does for a terminal."""
        del top
        return None
