"""How many vertices have how many outgoing edges, in the last epochs: differential dataflow's first example.

Only standing queries ask for it. An edge that comes or goes changes the degree of one vertex, and so the counts of two
degrees; nothing else is touched, however many edges there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.analyses.definition import Analysis, Standing
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.membership import labels

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from numpy.typing import NDArray

    from pag_graph.analyses.standing import Delta
    from pag_graph.graph.run import Run

    I64 = NDArray[np.int64]


_NO_INSTANT = np.iinfo(np.int64).max
"""After the end of every window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreesParameters:
    """Parameters of `degrees`."""

    last: Annotated[int, "Count the edges of this many epochs, the latest ones."] = 20

    def __post_init__(self) -> None:
        """Check the range.

        Raises
        ------
        InvalidParameterError
            If it is less than 1.
        """
        if self.last < 1:
            message = f"last is {self.last}, and must be at least 1."
            raise InvalidParameterError(message)


SCHEMA = pa.schema(
    [
        pa.field("degree", pa.int64(), nullable=False, metadata={"doc": "number of outgoing edges, at least 1"}),
        pa.field("vertices", pa.int64(), nullable=False, metadata={"doc": "vertices that have so many"}),
    ]
)
"""One row per degree."""


@dataclass(kw_only=True)
class DegreeCounts:
    """Counts of degrees that follow edges as they come and go."""

    degrees: dict[int, int] = field(default_factory=dict)
    """Per vertex: how many edges begin there."""
    vertices: dict[int, int] = field(default_factory=dict)
    """Per degree: how many vertices have it."""
    touched: int = 0
    """Degrees whose count was looked at, in all."""

    def apply(self, added: I64, removed: I64) -> list[tuple[int, int, int]]:
        """Add and remove edges.

        Parameters
        ----------
        added, removed
            The vertices at which they begin, one element per edge; a removed edge was counted before.

        Returns
        -------
        list of (degree, vertices, diff)
            What changed: O(edges added or removed).
        """
        vertices, number = np.unique(np.concatenate([added, removed]), return_inverse=True)
        sign = np.repeat([1, -1], [len(added), len(removed)])
        net = np.bincount(number, weights=sign, minlength=len(vertices)).astype(np.int64)
        moves: dict[int, int] = {}
        for vertex, change in zip(vertices.tolist(), net.tolist(), strict=True):
            if not change:
                continue
            before = self.degrees.pop(vertex, 0)
            now = before + change
            if now:
                self.degrees[vertex] = now
            moves[before] = moves.get(before, 0) - 1
            moves[now] = moves.get(now, 0) + 1
        return [change for degree, move in sorted(moves.items()) if degree for change in self._count(degree, move)]

    def _count(self, degree: int, move: int) -> list[tuple[int, int, int]]:
        self.touched += 1
        before = self.vertices.pop(degree, 0)
        now = before + move
        if now:
            self.vertices[degree] = now
        return [(degree, count, diff) for count, diff in ((before, -1), (now, 1)) if count and move]

    @property
    def rows(self) -> pl.DataFrame:
        """The counts, as rows of `SCHEMA` by degree."""
        counts = sorted(self.vertices.items())
        return pl.DataFrame(counts, schema=dict.fromkeys(SCHEMA.names, pl.Int64), orient="row")


def degrees(run: Run, parameters: DegreesParameters, last: int) -> pa.Table:
    """Count the vertices with each number of outgoing edges, in the last epochs.

    Parameters
    ----------
    run
        Any run.
    parameters
        How many epochs.
    last
        The last of them.

    Returns
    -------
    pa.Table
        Rows of `SCHEMA`, by degree. An edge counts if it carries one of the epochs.
    """
    counted = DegreeCounts()
    counted.apply(_sources(run, _latest(run, parameters.last, last)), np.empty(0, np.int64))
    return counted.rows.to_arrow().cast(SCHEMA)


@dataclass(frozen=True, kw_only=True, eq=False)
class DegreeAnalysis(Analysis[DegreesParameters]):
    """Counts of degrees."""

    def over(self, run: Run, last: int, parameters: DegreesParameters) -> pa.Table:
        """Return the counts as of an epoch, made anew.

        Parameters
        ----------
        run
            The run.
        last
            The epoch.
        parameters
            How many epochs.

        Returns
        -------
        Table
            Rows of the analysis' schema, which are of no epoch.
        """
        return degrees(run, parameters, last)

    def step(
        self, before: pl.DataFrame, delta: Delta, parameters: DegreesParameters, warm: MutableMapping[str, Any]
    ) -> pl.DataFrame:
        """Return the counts after a commit.

        Parameters
        ----------
        before
            The counts before it.
        delta
            What it brings.
        parameters
            How many epochs.
        warm
            What this process knows from the commit before, and will know of this one: degrees of all vertices. Without
            it the edges of these epochs are read once more.

        Returns
        -------
        DataFrame
            The counts after it.
        """
        del before
        run, counted, counted_epochs = delta.state.whole, warm.get("counts"), warm.get("epochs")
        if counted is None or counted_epochs is None or delta.labelled:
            counted, counted_epochs = DegreeCounts(), np.empty(0, np.int64)
            new_epochs = _latest(run, parameters.last + 1, delta.answered)
        else:
            new_epochs = np.array(delta.new, np.int64)
        # The epoch before the counted ones is remembered as well: it says where the label of the next one begins.
        all_epochs = np.concatenate([counted_epochs, new_epochs])
        if len(counted_epochs) > parameters.last:
            # Of a run that goes on for long only these are read.
            run = run.since(int(counted_epochs[0]), _NO_INSTANT)
        epochs_before, epochs_now = counted_epochs[-parameters.last :], all_epochs[-parameters.last :]
        counted.apply(
            _sources(run, np.setdiff1d(epochs_now, epochs_before)),
            _sources(run, np.setdiff1d(epochs_before, epochs_now)),
        )
        warm.update(counts=counted, epochs=all_epochs[-parameters.last - 1 :])
        return counted.rows


def _latest(run: Run, count: int, last: int) -> I64:
    return run.epochs["epoch"].filter(run.epochs["epoch"] <= last).tail(count).to_numpy()


def _sources(run: Run, epochs: I64) -> I64:
    """Return where the edges begin that carry epochs that follow each other."""
    if not len(epochs):
        return np.empty(0, np.int64)
    low, high = labels(run, epochs)
    return run.between("edges", int(low.min()), int(high.max())).select("src").collect()["src"].to_numpy()


DEGREES = DegreeAnalysis(
    name="degrees",
    function=degrees,
    schema=SCHEMA,
    output="DEGREES",
    parameters=DegreesParameters,
    standing=Standing.LINEAR,
)
