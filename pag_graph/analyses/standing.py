"""Standing queries: analyses whose answers are kept up to date commit after commit, by what changed.

The rows of a commit say which epochs can have another answer. Those are looked at; what they answered before is the sum
of the changes that the store has of them. So a commit costs what is new, however old the run is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.analyses import find_analysis
from pag_graph.analyses.definition import RunAnalysis, Standing
from pag_graph.analyses.degrees import DEGREES
from pag_graph.analyses.motifs import MOTIF
from pag_graph.analyses.result_tables import answered_schema
from pag_graph.analyses.rounds import ROUNDS
from pag_graph.analyses.runner import over, with_epochs
from pag_graph.analyses.totals import TOTALS
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.graph.difference import differs, rows_that_differ
from pag_graph.graph.membership import labels, members

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from pag_graph.analyses.definition import Analysis
    from pag_graph.analyses.view import View
    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window
    from pag_graph.store.delta import StoreInfo

NEVER = -(2**63)
"""No epoch comes before it."""
_WORD = re.compile(r"(?:'[^']*'|[^:])*")
"""Text up to a colon that does not stand in single quotes."""
_PLACE = ("epoch", "src_epoch", "start_ns", "duration_ns")
_EPOCHS = ("epochs", ("epoch",))
_SMALL = ("operators", "channels", "workers")
_BUILT_IN = {analysis.name: analysis for analysis in (ROUNDS, TOTALS, DEGREES, MOTIF)}
"""Analyses that only standing queries ask for."""
ANSWERS: dict[str, pl.DataType | type[pl.DataType]] = {"epoch": pl.Int64, "row": pl.String}
"""An answer as changes have it."""


@dataclass(frozen=True)
class Query:
    """An analysis with its parameters, as a store remembers it."""

    name: str
    """Name of the analysis."""
    values: tuple[tuple[str, str], ...] = ()
    """Names and values of parameters as texts, by name."""

    @classmethod
    def parse(cls, text: str) -> Query:
        """Read ``NAME:parameter=value:...``.

        Parameters
        ----------
        text
            As on the command line.

        Returns
        -------
        Query
            Its parameters have values that the analysis takes.

        Raises
        ------
        InvalidParameterError
            If it is not of this form, there is no such analysis or parameter, or one is given twice.

        Examples
        --------
        >>> Query.parse("k-hops:k=3").id
        'k-hops:k=3'
        """
        name, *pairs = _words(text)
        split = [pair.partition("=") for pair in pairs]
        if any(not key or not equals for key, equals, _ in split):
            message = f"The query {text!r} is not of the form NAME:parameter=value:..."
            raise InvalidParameterError(message, "Such as critical-path, or k-hops:k=3.")
        values = sorted((key.replace("-", "_"), value) for key, _, value in split)
        if twice := [key for (key, _), (following, _) in pairwise(values) if key == following]:
            message = f"The query {text!r} has more than one value of {twice[0]!r}."
            raise InvalidParameterError(message, "A query has one value of a parameter; ask for two queries.")
        query = cls(name, tuple(values))
        query = cls(query.analysis.name, query.values)
        query.analysis.arguments(query.parameters)
        return query

    @property
    def id(self) -> str:
        """How the store names it."""
        return ":".join([self.name, *(f"{key}={value}" for key, value in self.values)])

    @cached_property
    def analysis(self) -> Analysis[Any]:
        """The analysis."""
        return _BUILT_IN.get(self.name) or find_analysis(self.name)

    @cached_property
    def parameters(self) -> Any:
        """Its parameters."""
        return self.analysis.make_parameters(dict(self.values))

    @property
    def schema(self) -> pa.Schema:
        """Columns of a row of its answer."""
        if self.standing is Standing.LINEAR:
            return self.analysis.schema
        if self.standing is Standing.JOIN:
            analysis: Any = self.analysis
            asked: pa.Schema = analysis.schema_of(self.parameters)
            return asked
        return answered_schema(self.analysis.schema)

    @property
    def standing(self) -> Standing:
        """How its answer follows from the one before.

        Raises
        ------
        UnsupportedPlanError
            If nobody knows.
        """
        if self.analysis.standing is None:
            message = f"{self.name} cannot be a standing query."
            raise UnsupportedPlanError(message, f"Ask for it when you need it: `pag {self.name} STORE`.")
        return self.analysis.standing

    def over(self, run: Run, last: int) -> pa.Table:
        """Return the full answer as of an epoch, made anew; what its changes add up to.

        Parameters
        ----------
        run
            The run, which may go on behind that epoch.
        last
            The epoch: those up to it count.

        Returns
        -------
        Table
            Rows of `schema`.

        Raises
        ------
        UnsupportedPlanError
            If it cannot be a standing query.
        """
        if self.standing in {Standing.LINEAR, Standing.JOIN}:
            analysis: Any = self.analysis
            answer: pa.Table = analysis.over(run, last, self.parameters)
            return answer
        return over(self.analysis, run, last, self.parameters)


def _words(text: str) -> list[str]:
    """Split a text at its colons, but for those in single quotes, which filters put around texts."""
    words, position = [], 0
    while position <= len(text):
        match = _WORD.match(text, position)
        assert match is not None  # noqa: S101  (it may be empty)
        words.append(match[0])
        position = match.end() + 1
    return words


def encoded(table: pa.Table, epoch: int | None = None) -> pl.DataFrame:
    """Return rows of an answer as `ANSWERS`.

    Parameters
    ----------
    table
        The rows.
    epoch
        The epoch of all of them, of an answer that is of none; None where they have a column ``epoch``.

    Returns
    -------
    DataFrame
        One row each, in the same order; equal rows are equal texts.
    """
    frame = pl.DataFrame(pl.from_arrow(table))
    row = pl.struct(frame.columns).struct.json_encode()
    return frame.select(epoch=pl.col("epoch") if epoch is None else pl.lit(epoch, pl.Int64), row=row)


def decoded(changes: pl.DataFrame, schema: pa.Schema) -> pl.DataFrame:
    """Turn `ANSWERS` back into rows.

    Parameters
    ----------
    changes
        Has ``epoch`` and ``row``, and maybe more.
    schema
        Columns of the answer.

    Returns
    -------
    DataFrame
        Columns of the answer in place of ``row``, among them its ``epoch`` if it has one.
    """
    kinds = dict(pl.DataFrame(pl.from_arrow(schema.empty_table())).schema)
    kept_columns = changes.drop("row", *(["epoch"] if "epoch" in kinds else []))
    if not changes.height:
        return pl.DataFrame(schema={**kept_columns.schema, **kinds})
    return pl.concat([kept_columns, changes["row"].str.json_decode(pl.Struct(kinds)).struct.unnest()], how="horizontal")


def summed(changes: pl.DataFrame) -> pl.DataFrame:
    """Add up changes.

    Parameters
    ----------
    changes
        Has ``epoch``, ``row`` and ``diff``.

    Returns
    -------
    DataFrame
        One row per row that is left, with how often it is there (``diff``), in order of epochs.
    """
    sums = changes.group_by("epoch", "row", maintain_order=True).agg(pl.col("diff").sum())
    return sums.filter(pl.col("diff") != 0).sort("epoch", maintain_order=True)


def difference(before: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Say what has to be added to an answer, so that it becomes another one.

    Parameters
    ----------
    before
        `ANSWERS`, with how often each row was there (``diff``).
    now
        `ANSWERS`, each row as often as it is there.

    Returns
    -------
    DataFrame
        As of `summed`: ``epoch``, ``row`` and ``diff``. What was said of an epoch before is added up with what is said
        now; rows of other epochs are only looked at to see whether one comes twice.
    """
    now = now.select("epoch", "row", diff=pl.lit(1, pl.Int64))
    is_revised = pl.col("epoch").is_in(before["epoch"].unique().implode())
    came, others = (now, now.clear()) if not before.height else (now.filter(~is_revised), now.filter(is_revised))
    if came["row"].hash().n_unique() < came.height:
        # A row comes twice, or two have one hash.
        came, others = now.clear(), now
    if before.height or others.height:
        gone = before.select("epoch", "row", diff=-pl.col("diff"))
        came = pl.concat([summed(pl.concat([gone, others])), came])
    return came.sort("epoch", maintain_order=True)


@dataclass(frozen=True, kw_only=True)
class Delta:
    """What a state of a store has that the one before it had not, and the other way round."""

    state: Run
    """The state, as it is or is about to be committed; with the epochs only that this difference can touch."""
    edges: pl.DataFrame
    """Where edges lie that came or went: ``epoch``, ``src_epoch``, ``start_ns`` and ``duration_ns``."""
    before: int
    """The last epoch that was answered before; less than all epochs where none was."""
    answered: int
    """The last epoch that is answered now."""
    renamed: bool
    """Whether operators, channels or workers are others."""
    redrawn: frozenset[int]
    """Epochs whose windows came or went."""

    @classmethod
    def between(
        cls, base: StoreInfo | None, state: Run, before: int, answered: int, remembered: Iterable[int] = ()
    ) -> Delta:
        """Compare two states by their files; only those that one of them lacks are read.

        Parameters
        ----------
        base
            The state before, if there was one.
        state
            The state now.
        before, answered
            The last epochs that were and are answered.
        remembered
            Epochs as of which queries can go on; those from there on are in the state's run.

        Returns
        -------
        Delta
            Its run has only the epochs that the difference can touch, where that can be told.
        """
        edges, epochs = (
            rows_that_differ(base, state.info, table, columns) for table, columns in (("edges", _PLACE), _EPOCHS)
        )
        renamed = base is not None and any(differs(base, state.info, table) for table in _SMALL)
        redrawn = frozenset(epochs["epoch"].to_list())
        if not renamed and before > NEVER:
            starts = [edges["start_ns"], edges["start_ns"] + edges["duration_ns"]]
            oldest = min(before + 1, answered, *remembered, *redrawn, *_minima([edges["epoch"], edges["src_epoch"]]))
            state = state.since(oldest, min(_minima(starts), default=state.end_ns))
        return cls(state=state, edges=edges, before=before, answered=answered, renamed=renamed, redrawn=redrawn)

    @classmethod
    def whole(cls, state: Run, answered: int) -> Delta:
        """Return the difference from nothing, for a query that is asked for the first time.

        Parameters
        ----------
        state
            The state now.
        answered
            The last epoch that is answered.

        Returns
        -------
        Delta
            All epochs are new.
        """
        no_edges = pl.DataFrame(schema=dict.fromkeys(_PLACE, pl.Int64))
        return cls(state=state, edges=no_edges, before=NEVER, answered=answered, renamed=False, redrawn=frozenset())

    def epochs(self, since: int, last: int) -> list[int]:
        """Return the epochs of the state between two numbers.

        Parameters
        ----------
        since, last
            The first and the last number; both count.

        Returns
        -------
        list of int
            Ascending.
        """
        epoch_ids = self.state.epochs["epoch"].to_numpy()
        if not len(epoch_ids) or since < epoch_ids[0]:
            epoch_ids = self.state.whole.epochs["epoch"].to_numpy()
        return [int(epoch) for epoch in epoch_ids[(epoch_ids >= since) & (epoch_ids <= last)]]

    @cached_property
    def new(self) -> list[int]:
        """Epochs that are answered now and were not before."""
        return self.epochs(self.before + 1, self.answered)

    @cached_property
    def _answered_epochs(self) -> pl.DataFrame:
        """Epochs that were answered before and may have another answer now, as the table has them."""
        return self.state.epochs.filter(pl.col("epoch") <= min(self.before, self.answered))

    def _redone(self) -> set[int]:
        """Return the epochs whose windows are others, or all where names are."""
        redone = self.redrawn_before
        return redone | set(self._answered_epochs["epoch"]) if self.renamed else redone

    @cached_property
    def touched(self) -> list[int]:
        """Epochs that were answered before, and whose windows show an edge that came or went."""
        redone = self._redone()
        if windows := self._touched_windows():
            _, places = members(self.state, windows, self._near(windows), "touches")
            redone |= {windows[place].epoch or 0 for place in np.unique(places).tolist() if place >= 0}
        return sorted(redone | set(self.labelled))

    def _touched_windows(self) -> list[Window]:
        """Return the windows of old epochs that edges can touch; a run may have many others."""
        if not (self._answered_epochs.height and self.edges.height):
            return []
        if self.state.epochs_are_islands:
            close = pl.col("epoch").is_in(self.edges["epoch"].implode())
        else:
            end = self.edges["start_ns"] + self.edges["duration_ns"]
            first, last = (min(self.edges["start_ns"].min(), end.min()), max(self.edges["start_ns"].max(), end.max()))  # type: ignore[type-var]
            close = (pl.col("end_ns") >= first) & (pl.col("start_ns") <= last)
        return self.state.windows(self._answered_epochs.filter(close)["epoch"].to_list())

    def _near(self, windows: Sequence[Window]) -> pl.DataFrame:
        """Return the edges without those that begin and end after all of some windows, which most do."""
        if self.state.epochs_are_islands:
            return self.edges
        end, last = pl.col("start_ns") + pl.col("duration_ns"), max(window.end_ns for window in windows)
        return self.edges.filter((pl.col("start_ns") <= last) | (end <= last))

    @cached_property
    def labelled(self) -> list[int]:
        """Epochs that were answered before, and whose label an edge carries that came or went."""
        redone = self._redone()
        if self._answered_epochs.height and self.edges.height:
            answered_epochs = self._answered_epochs["epoch"].to_numpy()
            low, high = labels(self.state, answered_epochs)
            carried = self.edges["epoch"]
            # Most edges are of new epochs.
            epochs = np.unique(carried.filter(carried <= high.max()).to_numpy())
            hit = np.searchsorted(epochs, high, side="right") > np.searchsorted(epochs, low)
            redone |= set(answered_epochs[hit].tolist())
        return sorted(redone)

    @cached_property
    def rewritten(self) -> list[int]:
        """Epochs that were answered before, and that an edge carries that came or went, or whose window is another."""
        carried = self.edges["epoch"]
        return sorted({*carried.filter(carried <= self.before).unique().to_list(), *self.redrawn_before})

    @property
    def redrawn_before(self) -> set[int]:
        """Epochs that were answered before, and whose windows came or went."""
        return {epoch for epoch in self.redrawn if epoch <= self.before}

    def revised(self, kind: Standing) -> list[int]:
        """Return the epochs that were answered before and may have another answer to a query of a kind."""
        if kind is Standing.JOIN:
            return self.rewritten
        if kind is Standing.ORDERED:
            sent = self.edges["src_epoch"]
            return sorted({*self.labelled, *sent.filter(sent <= self.before).unique().to_list()})
        return self.labelled if kind in {Standing.LABEL, Standing.LINEAR} else self.touched


def _minima(columns: Iterable[pl.Series]) -> list[int]:
    """Return the least number of each column that has one."""
    return [int(column.min()) for column in columns if column.len()]  # type: ignore[arg-type]


def answers(
    run: Run, epochs_by_query: Mapping[Query, Collection[int]]
) -> Iterator[tuple[Query, list[int], pl.DataFrame]]:
    """Answer queries about epochs, each for itself; what several ask for together is read once.

    Parameters
    ----------
    run
        The run.
    epochs_by_query
        Per query of windows: epochs of the run.

    Yields
    ------
    Query
        One of them.
    list of int
        Some of its epochs, ascending; none comes twice, nor one that the run does not have.
    DataFrame
        `ANSWERS` about them, in their order.
    """
    from pag_graph.analyses.view import View

    everything = {epoch for epochs in epochs_by_query.values() for epoch in epochs}
    epochs_of_query = {query: frozenset(epochs) for query, epochs in epochs_by_query.items()}
    for stretch in run.stretches(run.windows(everything)):
        together = View(run=run, windows=stretch)
        for query, epochs in epochs_of_query.items():
            windows = [window for window in stretch if window.epoch in epochs]
            if windows:
                view = together if len(windows) == len(stretch) else View(run=run, windows=windows)
                yield query, [window.epoch or 0 for window in windows], _answer(query, view)


def _answer(query: Query, view: View) -> pl.DataFrame:
    analysis: Any = query.analysis
    assert not isinstance(analysis, RunAnalysis)  # noqa: S101  (those have no answer of an epoch alone)
    return encoded(with_epochs(analysis.table(view, query.parameters), view.windows).select(query.schema.names))
