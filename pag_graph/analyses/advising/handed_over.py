"""What ports take away from the threads of a window, edge by edge.

Definition: `docs/model.md`, section "Advice".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.analyses.advising.open_stacks import NOTHING
from pag_graph.analyses.advising.pipelines import folded
from pag_graph.model.ids import POSITION_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.analyses.advising.advice_options import Option
    from pag_graph.analyses.advising.open_stacks import Openings
    from pag_graph.analyses.advising.pipelines import Dataflow
    from pag_graph.analyses.advising.ports import Ports
    from pag_graph.analyses.window_graphs import WindowGraph

    I64 = NDArray[np.int64]
    F64 = NDArray[np.float64]
    Bools = NDArray[np.bool_]


class Moved(NamedTuple):
    """What ports take away from threads, per row of a window's edges."""

    share: F64
    """Which part of the row's time is taken away."""
    occurrence: I64
    """What is handed over as a whole; -1 where that is nothing."""
    thread: I64
    """The new thread that takes it, from 0."""
    outer: I64
    """The occurrence of another port around it; -1 where there is none."""
    handed: Bools
    """Whether the occurrence is what is handed over, and not what follows from it on the new thread."""
    owning: bool = False
    """Whether what is handed over has memory of its own, record by record."""


class NestedRows:
    """The edges of a window whose activities nest, as what ports take them from.

    Parameters
    ----------
    openings
        What is open on the threads.
    base
        The window, with its edges.
    """

    def __init__(self, openings: Openings, base: WindowGraph) -> None:
        self._openings = openings
        self._open_at = np.where(base.is_local, openings.at(base.number("src")), NOTHING)

    def moved(self, option: Option) -> Moved:
        """Say what ports take away, each to a thread of its own; O(edges)."""
        ports = np.array(sorted(option.operators), np.int64)
        occurrences = np.append(self._openings.occurrences(option.operators), NOTHING)
        occurrence = occurrences[self._open_at]
        outer = occurrences[np.append(self._openings.parent, NOTHING)[occurrence]]
        port = np.append(self._openings.operator, NOTHING)[occurrence]
        is_inside = occurrence >= 0
        thread = np.where(is_inside, np.searchsorted(ports, port), 0)
        return Moved(is_inside.astype(np.float64), occurrence, thread, outer, is_inside)


class FlowRows:
    """The edges of a window of a dataflow, as what ports take them from.

    Parameters
    ----------
    ports, flow
        The operators, and the channels between them.
    base
        The window, with its edges.
    """

    def __init__(self, ports: Ports, flow: Dataflow, base: WindowGraph) -> None:
        self._shares, self._flow = ports.shares, flow
        self._operators = np.array(sorted(ports.status), np.int64)
        self._workers = np.array(sorted(flow.workers), np.int64)
        self._ranks = np.searchsorted(np.array(sorted(ports.work.life), np.int64), self._workers).tolist()
        self._activation = base.number("activation")
        operator, worker = folded(base.number("operator"), flow.fold), base.number("src") >> POSITION_BITS
        place = np.minimum(np.searchsorted(self._operators, operator), len(self._operators) - 1)
        is_own_edge = base.is_local & (self._operators[place] == operator)
        # One cell per operator and worker, and one more for all that no port ever takes.
        cell = place * len(self._workers) + np.searchsorted(self._workers, worker)
        self._cell = np.where(is_own_edge, cell, len(self._operators) * len(self._workers))

    def moved(self, option: Option) -> Moved:
        """Say what ports take away, no two of them in one thread's way; threads may share one port. O(edges)."""
        cells = len(self._operators) * len(self._workers) + 1
        share, thread, handed = np.zeros(cells), np.zeros(cells, np.int64), np.zeros(cells, np.bool_)
        place_of = {operator: place for place, operator in enumerate(self._operators.tolist())}
        workers = self._workers.tolist()
        for port, operator in enumerate(sorted(option.operators)):
            for reached_operator, shares in self._shares[operator].items():
                for column, worker in enumerate(workers):
                    cell, likely = place_of[reached_operator] * len(workers) + column, shares[worker].likely
                    # Every thread has one port on its way, so its work is taken off once.
                    if likely > share[cell]:
                        share[cell], handed[cell] = likely, reached_operator == operator
                        thread[cell] = self._ranks[column] % option.new_threads if len(option.operators) == 1 else port
        taken_share = share[self._cell]
        occurrence = np.where(taken_share > 0, self._activation, NOTHING)
        nothing = np.full(len(taken_share), NOTHING)
        owning = any(link.owning for port in option.operators for link in self._flow.pipeline_inputs(port))
        return Moved(taken_share, occurrence, thread[self._cell], nothing, handed[self._cell], owning)


def rows_of(ports: Ports, base: WindowGraph) -> NestedRows | FlowRows:
    """Return the edges of a window as what ports take them from.

    Parameters
    ----------
    ports
        The operators: with open activities where these nest, else with the channels of a dataflow.
    base
        The window, with its edges.

    Returns
    -------
    NestedRows or FlowRows
        Whose `moved` says what an option takes away. O(edges).
    """
    if ports.stacks is not None:
        return NestedRows(ports.stacks.openings, base)
    assert ports.flow is not None  # noqa: S101  (one of both there is)
    return FlowRows(ports, ports.flow, base)
