"""What a follower has told the database of a run, so that a later state of the store costs only what is new in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.sinks.neo4j.findings import findings_of
from pag_graph.sinks.neo4j.model import MADE
from pag_graph.sinks.provenance_walks import own_commits

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from pag_graph.graph.run import Run


class Told:
    """What is known of a run from earlier states of its store, and what of that the database has.

    One that is new knows nothing, so that everything is read and told. It is for one process that alone writes the run.
    """

    def __init__(self) -> None:
        self._jobs: list[dict[str, Any]] = []
        self._jobs_until = -1
        self._jobs_told = 0
        self._findings: tuple[tuple[int | None, ...], pl.DataFrame] | None = None
        self._there: dict[str, pl.DataFrame] = {}
        self._sent: dict[str, pl.DataFrame] = {}
        self._jobs_sent = 0
        self._state: str | None = None

    def jobs(self, run: Run) -> list[dict[str, Any]]:
        """Return the commits that made a run, oldest first: one row per `Job`, with the id of the one before.

        Parameters
        ----------
        run
            The run, as of any state that is not older than those before.

        Returns
        -------
        list of dict
            Reads the commits that came since the last call; not to be changed.
        """
        for commit in own_commits(run, self._jobs_until):
            self._jobs.append(
                {
                    "id": commit.id,
                    "version": commit.version,
                    "committed": commit.committed,
                    "closed_epochs": commit.closed_epochs,
                    "last_closed_epoch": commit.run["last_closed_epoch"],
                    "events": commit.events,
                    "product_version": commit.run["product_version"],
                    **{name: commit.made.get(name) for name in MADE},
                    "previous": self._jobs[-1]["id"] if self._jobs else None,
                }
            )
        self._jobs_until = run.info.versions["epochs"]
        return self._jobs

    def findings(self, run: Run) -> pl.DataFrame:
        """Return findings and alerts of a run, as `findings_of` does; read again only where a commit has changed them.

        Parameters
        ----------
        run
            The run, as of any state that is not older than those before.
        """
        versions = tuple(run.info.versions.get(table) for table in ("findings", "alerts"))
        if self._findings is None or self._findings[0] != versions:
            before = None if self._findings is None else self._findings[1]
            self._findings = versions, findings_of(run, before)
        return self._findings[1]

    def knows(self, name: str) -> bool:
        """Say whether the database has a table of this or of an earlier state."""
        return name in self._there

    def lacks(self, name: str, column: str, values: Iterable[Any]) -> bool:
        """Say whether a table that the database has lacks one of some values of a column, as far as is known."""
        there = self._there.get(name)
        return there is None or not set(there[column]).issuperset(values)

    def has(self, run: Run) -> bool:
        """Say whether the database has what is to be told of a run as it is."""
        return self._state == run.info.commit_id

    def new_jobs(self, run: Run) -> list[dict[str, Any]]:
        """Return the commits that the database may lack, as `jobs`, and remember that they are told now."""
        jobs = self.jobs(run)
        self._jobs_sent = len(jobs)
        return jobs[self._jobs_told :]

    def news(self, name: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a table that the database may lack, and remember that they are told now.

        Parameters
        ----------
        name
            Of the table.
        rows
            All of its rows, which belong there now.
        """
        there = self._there.get(name)
        self._sent[name] = rows
        if there is None:
            return rows
        if any(kind.is_nested() for kind in rows.schema.values()):
            return rows.clear() if there.equals(rows) else rows
        return rows.join(there, on=rows.columns, how="anti", nulls_equal=True, maintain_order="left")

    def gone(self, name: str, rows: pl.DataFrame, key: str) -> list[Any]:
        """Return the keys of rows that the database has, as far as is known, and that belong there no more."""
        there = self._there.get(name)
        return [] if there is None else there.join(rows, on=key, how="anti")[key].to_list()

    def arrived(self, run: Run) -> None:
        """Remember that what was told last, of a run as it is, is in the database."""
        self._state = run.info.commit_id
        self._there |= self._sent
        self._jobs_told = self._jobs_sent
