"""Motifs whose matches are kept up to date: those among the edges of the last answered epochs.

Only standing queries ask for them; offline `pag motif --epochs` finds the same matches. A match can join an edge with
any that comes later, so a motif of several edges says of how many epochs (`last`) the edges are remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import polars as pl
import pyarrow as pa

from pag_graph.analyses.definition import Analysis, Standing
from pag_graph.analyses.parameters import make_parameters, parameters_of, value_of
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.motif.changes import DIFF, check_changes, flat
from pag_graph.motif.conditions import Value  # noqa: TC001  (a field's type, which is looked at)
from pag_graph.motif.filters import parameters_of as names_of_parameters
from pag_graph.motif.last_edges import EPOCH, LastEdges
from pag_graph.motif.patterns import find_pattern
from pag_graph.motif.plan import chosen_fields
from pag_graph.motif.polars_query import MotifQuery
from pag_graph.motif.query import ask
from pag_graph.motif.shape import OF_EDGE, OF_VERTEX, PAG_SHAPE
from pag_graph.motif.store import graph_of_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence

    from pag_graph.analyses.parameters import Parameter
    from pag_graph.analyses.standing import Delta
    from pag_graph.graph.run import Run
    from pag_graph.motif.query import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class MotifParameters:
    """Parameters of `motif`."""

    pattern: Annotated[str, "A named pattern, or a motif in GraphFrames' language."]
    where: Annotated[str, "Filter of the matches, beside the pattern's own."] = ""
    last: Annotated[int | None, "Look at the edges of this many epochs, the last ones answered."] = None
    distinct: Annotated[bool, "Whether two names never stand for the same edge."] = False
    columns: Annotated[str, "Columns of a match, such as a.id,e.type."] = ""
    values: tuple[tuple[str, Value], ...] = ()
    """Names and values of the pattern's or the filter's own parameters."""

    def __post_init__(self) -> None:
        """Check that they make a motif whose matches can be kept up to date.

        Raises
        ------
        InvalidParameterError
            If `last` is less than 1, or pattern, filter, columns or values cannot be understood.
        UnsupportedPlanError
            If it would have to remember all edges of a run.
        """
        if self.last is not None and self.last < 1:
            message = f"last is {self.last}, and must be at least 1."
            raise InvalidParameterError(message)
        motif = asked(self).question.motif
        check_changes(motif)
        if self.last is None and len(motif.terms) > 1:
            message = (
                "A standing motif of several edges needs last: a match can join an edge with any that comes later, so"
                " all edges of the run would have to be remembered."
            )
            raise UnsupportedPlanError(message, f"Say how many epochs: motif:pattern={self.pattern}:last=20.")


class Asked(NamedTuple):
    """What is asked of a graph."""

    question: Question
    """With all columns that are needed."""
    titles: Mapping[str, str]
    """The columns of the answer: per title ``element.column``."""

    @property
    def epochs(self) -> list[str]:
        """Columns whose largest number is the epoch of a match: those of its edges that have names."""
        return [f"{name}.{EPOCH}" for name, edge in self.question.motif.edges.items() if edge.named]

    @property
    def schema(self) -> pa.Schema:
        """Columns of a row of the answer."""
        motif, columns = self.question.motif, []
        for title, text in self.titles.items():
            name, _, column = text.partition(".")
            known = (PAG_SHAPE.edges if name in motif.edges else PAG_SHAPE.vertices).field(column)
            columns.append(pa.field(title, known.type, nullable=known.nullable, metadata=known.metadata))
        return pa.schema([*columns, pa.field(EPOCH, pa.int64(), nullable=False)])

    def rows(self, matches: pl.DataFrame) -> pl.DataFrame:
        """Return the answer's columns of matches, the columns of which are called ``element.column``."""
        columns = [pl.col(text).alias(title) for title, text in self.titles.items()]
        return matches.select(*columns, pl.max_horizontal(self.epochs).alias(EPOCH))

    def close(self, matches: pl.DataFrame, epochs: Sequence[int], last: int | None) -> pl.DataFrame:
        """Return the matches whose edges with names are close together.

        Parameters
        ----------
        matches
            One row per match, columns called ``element.column``, among them `epochs`.
        epochs
            Epochs, ascending, among which those of all edges with names are.
        last
            Of so many that follow each other in `epochs` the edges must be; None for any.

        Returns
        -------
        DataFrame
            The same columns.
        """
        if last is None or len(epochs) <= last:
            return matches
        places = {epoch: place for place, epoch in enumerate(epochs)}
        numbers = [pl.col(column).replace_strict(places, return_dtype=pl.Int64) for column in self.epochs]
        return matches.filter(pl.max_horizontal(numbers) - pl.min_horizontal(numbers) < last)


def matches(run: Run, parameters: MotifParameters, epochs: Sequence[int]) -> pa.Table:
    """Find the matches of a motif among the edges of some epochs.

    Parameters
    ----------
    run
        Any run.
    parameters
        Which motif.
    epochs
        Epochs of the run.

    Returns
    -------
    pa.Table
        One row per match, in no order: the columns that are asked for, and its ``epoch``, the latest one that an edge
        of it carries that has a name. `pag motif --epochs` finds the same matches.
    """
    what = asked(parameters)
    if not epochs:
        return what.schema.empty_table()
    query = MotifQuery(question=what.question, graph=graph_of_run(run, epochs))
    return what.rows(flat(query.frame(), what.question.columns or ())).to_arrow().cast(what.schema)


@lru_cache(maxsize=64)
def asked(parameters: MotifParameters) -> Asked:
    """Return what parameters ask for; raises as `MotifParameters` does."""
    pattern, chosen = find_pattern(parameters.pattern), [text.strip() for text in parameters.columns.split(",")]
    question = ask(
        parameters.pattern,
        parameters.where,
        PAG_SHAPE,
        columns=chosen if parameters.columns else None,
        parameters=dict(parameters.values),
        distinct=parameters.distinct,
    )
    if pattern and not parameters.columns:
        titles = dict(pattern.shown)
    else:
        edges = question.motif.edges
        readable = {name: OF_EDGE if name in edges else OF_VERTEX for name in question.motif.columns}
        fields = chosen_fields(question.motif, PAG_SHAPE, chosen) if parameters.columns else readable
        titles = {text: text for name, columns in fields.items() for text in (f"{name}.{column}" for column in columns)}
    found = Asked(question, titles)
    needed = tuple(dict.fromkeys([*titles.values(), *found.epochs]))
    return found._replace(question=replace(question, columns=needed))


class Step(NamedTuple):
    """What some epochs changed."""

    new: Sequence[int]
    """Epochs that are answered now."""
    revised: Sequence[int]
    """Earlier ones, of which matches came or went because of edges of the new ones."""
    rows: pl.DataFrame
    """Rows of the answer with their ``epoch``, and ``diff``: 1 of those that came, -1 of those that went."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MotifAnalysis(Analysis[MotifParameters]):
    """Matches of a motif among the edges of the last epochs."""

    @cached_property
    def parameter_list(self) -> tuple[Parameter, ...]:
        """The parameters, but for those that patterns and filters have."""
        return tuple(parameter for parameter in parameters_of(self.parameters) if parameter.name != "values")

    def make_parameters(self, values: Mapping[str, Any] | None = None) -> MotifParameters:
        """Return the parameters from values as they come from a command line or from JSON.

        Parameters
        ----------
        values
            By name. What is no parameter of `motif` is one of the pattern or of the filter.

        Returns
        -------
        MotifParameters
            They are checked.

        Raises
        ------
        InvalidParameterError
            If nothing has such a parameter, one is missing, or cannot be understood.
        UnsupportedPlanError
            If such a motif cannot be kept up to date.
        """
        own = {parameter.name for parameter in self.parameter_list}
        given = dict(values or {})
        arguments = make_parameters(
            self.name, self.parameter_list, {name: value for name, value in given.items() if name in own}
        )
        others = {name: value_of(value) for name, value in given.items() if name not in own}
        pattern = find_pattern(arguments["pattern"])
        known = {*(pattern.parameters if pattern else ()), *names_of_parameters(arguments.get("where", ""))}
        if unknown := sorted(set(others) - known):
            have = ", ".join([*(parameter.name for parameter in self.parameter_list), *sorted(known)])
            message = f"{self.name} has no parameter {unknown[0]!r}; it has {have}."
            raise InvalidParameterError(message)
        return MotifParameters(**arguments, values=tuple(sorted(others.items())))

    def schema_of(self, parameters: MotifParameters) -> pa.Schema:
        """Return the columns of the answer to what is asked."""
        return asked(parameters).schema

    def epochs(self, epoch_ids: Sequence[int], parameters: MotifParameters) -> list[int]:
        """Return the epochs whose edges count.

        Parameters
        ----------
        epoch_ids
            The epochs that are there, ascending.
        parameters
            How many count (`last`): the last ones of these, or all.
        """
        return list(epoch_ids if parameters.last is None else epoch_ids[-parameters.last :])

    def over(self, run: Run, last: int, parameters: MotifParameters) -> pa.Table:
        """Return the matches as of an epoch, made anew.

        Parameters
        ----------
        run
            The run, which may go on behind that epoch.
        last
            The epoch: matches are looked for among the edges of the last epochs up to it.
        parameters
            Which motif, and how many epochs.

        Returns
        -------
        pa.Table
            One row per match, in no order (`matches`).
        """
        return matches(run, parameters, self.epochs(run.until(last).epochs["epoch"].to_list(), parameters))

    def steps(
        self, delta: Delta, parameters: MotifParameters, warm: MutableMapping[str, Any], *, each: bool
    ) -> Iterator[Step]:
        """Yield how the matches change with a commit.

        Parameters
        ----------
        delta
            What the commit brings.
        parameters
            What is asked.
        warm
            What this process knows from the commit before, and will know of this one: the edges of the last epochs.
            Without it they are read once more.
        each
            Whether the rows of each epoch are those that there would be if it came alone; else only what differs at
            the end counts.

        Yields
        ------
        Step
            Added up, their rows are the changes.
        """
        what, run = asked(parameters), delta.state
        edges = warm.setdefault("edges", LastEdges(what.question))
        if not edges.epochs and parameters.last is not None:
            before = run.whole.epochs["epoch"]
            edges.begin(run, self.epochs(before.filter(before <= delta.before).to_list(), parameters))
        for new, gone in self._moves(delta, edges, parameters, each=each):
            earlier, known = [epoch for epoch in edges.epochs if epoch not in gone], [*edges.epochs, *new]
            found = what.close(edges.move(run, new, gone), known, parameters.last)
            rows = what.rows(found).with_columns(found[DIFF])
            # What goes with the oldest edges is no news.
            news = rows if edges.negates else rows.filter(pl.col(DIFF) > 0)
            yield Step(new, sorted({*earlier} & {*news[EPOCH]}) if new else (), rows)
            if parameters.last is None:
                edges.begin(run, ())

    def _moves(
        self, delta: Delta, edges: LastEdges, parameters: MotifParameters, *, each: bool
    ) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """Yield epochs that come together, and those that go for them."""
        if parameters.last is None:
            for windows in delta.state.stretches(delta.state.windows(delta.new)):
                yield [window.epoch or 0 for window in windows], ()
            return
        portions = [delta.new[-parameters.last :]]
        if each:
            # Epochs of edges that have names tell whether matches would have been there if one came after the other.
            named = all(edge.named for edge in asked(parameters).question.motif.edges.values())
            length = parameters.last if named and not edges.negates else 1
            portions = [delta.new[place : place + length] for place in range(0, len(delta.new), length)]
        for new in portions:
            kept_epochs = self.epochs([*edges.epochs, *new], parameters)
            gone = [epoch for epoch in edges.epochs if epoch not in kept_epochs]
            if each and edges.negates and gone:
                # What comes back because an edge went is told apart from what comes.
                yield [], gone
                gone = []
            if len(new) > 1 and gone and each:
                # The last of those that go were there when the first of those that come did.
                yield new, []
                yield [], gone
            elif new:
                yield new, gone


MOTIF = MotifAnalysis(
    name="motif",
    function=matches,
    schema=pa.schema([pa.field(EPOCH, pa.int64(), nullable=False)]),
    output="MATCHES",
    parameters=MotifParameters,
    standing=Standing.JOIN,
)
