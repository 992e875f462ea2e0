"""Which operators a dataflow's records reach on a thread without leaving it.

Every worker of a dataflow runs all operators, and no call tells what lies downstream of what: records do. They reach an
operator over pipeline channels, and leave the thread over exchange channels. Definitions: `docs/model.md`, section
"Advice".
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import polars as pl

from pag_graph.analyses.advising.thread_work import Bounds
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import ActivityType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.graph.run import Run

    I64 = NDArray[np.int64]

Node = tuple[int, str, int]
"""An operator, ``(number, "", 0)``; or a port of a scope, ``(number, "in" or "out", port)``."""

Pact = Literal["pipeline", "exchange"]

_BOUND_TYPES = ("Rc<", "Arc<")
"""Types of data that belongs to the thread that made it, such as arrangements."""
_OWNING_TYPES = re.compile(r"\b(Vec|VecDeque|String|Box|(?:Hash|BTree)(?:Map|Set))\b")
"""Types whose values have memory of their own, which whoever reads them last gives back."""


class Link(NamedTuple):
    """A channel, from what feeds it to what reads it."""

    channel: int
    source: Node
    target: Node
    pact: Pact
    bound: bool
    """Whether its data cannot be handed to another thread."""
    owning: bool
    """Whether every record has memory of its own."""


class Traffic(NamedTuple):
    """What the table `traffic` tells; nothing of it where a store has none."""

    exchanged: frozenset[int]
    """Channels on which any message had another receiver than its sender."""
    records: Mapping[tuple[int, int], int]
    """Records per channel and reading worker, those that stayed included; only of channels that tell."""
    known: bool
    """Whether what stayed on its worker is included."""
    uncounted: frozenset[int] = frozenset()
    """Channels with messages of which nobody knows how many records they hold."""


@dataclass(frozen=True, kw_only=True)
class Dataflow:
    """The channels between operators, as far as operators are told apart."""

    links: Sequence[Link]
    fold: Mapping[int, int]
    """Per operator: the one that it counts as."""
    scopes: frozenset[int]
    """Operators that only hold others."""
    workers: Sequence[int]
    records: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Records per channel and reading worker in the window; empty where nobody knows."""
    counted: Collection[int] = ()
    """Channels of which that is known, also where it is none."""

    @cached_property
    def inputs(self) -> Mapping[Node, Sequence[Link]]:
        """Per node: the links that lead to it."""
        links_to: dict[Node, list[Link]] = defaultdict(list)
        for link in self.links:
            links_to[link.target].append(link)
        return links_to

    @cached_property
    def outputs(self) -> Mapping[Node, Sequence[Link]]:
        """Per node: the pipeline links that lead away from it."""
        links_from: dict[Node, list[Link]] = defaultdict(list)
        for link in self.links:
            if link.pact == "pipeline":
                links_from[link.source].append(link)
        return links_from

    def pipeline_inputs(self, operator: int) -> list[Link]:
        """Return the links over which an operator reads what its own thread made."""
        return [link for link in self.inputs.get((operator, "", 0), ()) if link.pact == "pipeline"]

    def reached(self, node: Node, *, without: Node | None = None) -> set[Node]:
        """Return a node and all that it reaches over pipeline links.

        Parameters
        ----------
        node
            Where to begin.
        without
            A node that is not passed; nothing is reached if that is `node` itself.

        Returns
        -------
        set of Node
            O(links).
        """
        return self._reached_from([node], without)

    def _reached_from(self, nodes: Iterable[Node], without: Node | None) -> set[Node]:
        reached = set(nodes) - {without}
        waiting = list(reached)
        while waiting:
            for link in self.outputs.get(waiting.pop(), ()):
                if link.target not in reached and link.target != without:
                    reached.add(link.target)
                    waiting.append(link.target)
        return reached

    def on_cycle(self, operator: int) -> bool:
        """Say whether an operator reads what it made itself, over pipeline links alone."""
        node = (operator, "", 0)
        return any(node in self.reached(link.target) for link in self.outputs.get(node, ()))

    @cached_property
    def _roots(self) -> frozenset[Node]:
        """Nodes that get anything from outside of their thread: sources, and readers of exchange links."""
        nodes = {node for link in self.links for node in (link.source, link.target)}
        fed = {link.target for link in self.links}
        return frozenset((nodes - fed) | {link.target for link in self.links if link.pact == "exchange"})

    def shares(self, operator: int) -> dict[int, dict[int, Bounds]]:
        """Say which share of the work of operators is done for what passed one of them: s(o, d).

        Parameters
        ----------
        operator
            On no cycle.

        Returns
        -------
        dict
            Per operator that is reached, itself included, and worker. Operators split their work by the records of
            their inputs; where nobody counted these, all, none or any part of it is meant.
        """
        start = (operator, "", 0)
        reached = self.reached(start)
        certain = reached - self._reached_from(self._roots - {start}, start)
        operators = {node[0]: node for node in reached if not node[1]}
        result: dict[int, dict[int, Bounds]] = {target: {} for target in sorted(operators)}
        for worker in self.workers:
            apportioned = self._apportioned(start, reached, worker)
            passed = self._passed(start, worker)
            for target, node in operators.items():
                share = (1.0 if node in certain else apportioned.get(node)) if passed else 0.0
                bounds = Bounds(0.0, 0.5, 1.0) if share is None else Bounds(share, share, share)
                result[target][worker] = bounds
        return result

    def _passed(self, start: Node, worker: int) -> bool:
        """Say whether any records may have passed a node on a worker."""
        inputs = self.inputs.get(start, ())
        return not inputs or any(
            link.channel not in self.counted or self.records.get((link.channel, worker), 0) for link in inputs
        )

    def _apportioned(self, start: Node, reached: Collection[Node], worker: int) -> dict[Node, float]:
        """Return shares by records: a linear system, as cycles may lie downstream.

        Nodes are left out whose own inputs, or those of what they depend on, nobody counted.
        """
        weights: dict[Node, list[tuple[Link, float]]] = {}
        for node in reached:
            counts = [(link, self.records.get((link.channel, worker), 0)) for link in self.inputs.get(node, ())]
            total = sum(count for _, count in counts)
            if node != start and total:
                weights[node] = [(link, count / total) for link, count in counts if count]
        # A node that depends on one without counts has no share either.
        counted_nodes = {start, *weights}
        while True:
            lost = {
                node
                for node in counted_nodes - {start}
                if any(
                    link.pact == "pipeline" and link.source in reached and link.source not in counted_nodes
                    for link, _ in weights[node]
                )
            }
            if not lost:
                break
            counted_nodes -= lost
        fed = self._fed_by(start, counted_nodes, weights)
        order = [start, *sorted(fed - {start})]
        place = {node: row for row, node in enumerate(order)}
        matrix = np.eye(len(order))
        for node in order[1:]:
            for link, weight in weights[node]:
                if link.pact == "pipeline" and link.source in place:
                    matrix[place[node], place[link.source]] -= weight
        solved = np.linalg.solve(matrix, np.eye(len(order))[0])
        shares = dict(zip(order, np.clip(solved, 0.0, 1.0).tolist(), strict=True))
        return {node: shares.get(node, 0.0) for node in counted_nodes}

    @staticmethod
    def _fed_by(
        start: Node, counted_nodes: Collection[Node], weights: Mapping[Node, Sequence[tuple[Link, float]]]
    ) -> set[Node]:
        """Return the nodes that records of `start` reached: the others would leave the system without a solution."""
        fed = {start}
        while True:
            newly_fed = {
                node
                for node in counted_nodes
                if node not in fed
                and any(link.pact == "pipeline" and link.source in fed for link, _ in weights.get(node, ()))
            }
            if not newly_fed:
                return fed
            fed |= newly_fed


def dataflow(run: Run, traffic: Traffic, *, level: int | None, pacts: Mapping[int, Pact]) -> Dataflow:
    """Return the dataflow that all workers of a run build.

    Parameters
    ----------
    run
        Of a dataflow system.
    traffic
        What is known of its channels.
    level
        Operators that are nested deeper in scopes count as the scope at this depth; 0 is the dataflow itself. Without
        it all are told apart.
    pacts
        What the user knows of channels.

    Raises
    ------
    InvalidParameterError
        If there is no such channel.
    """
    address = {row["operator"]: row["address"] for row in run.operators.iter_rows(named=True)}
    number = {text: operator for operator, text in address.items()}
    fold = {operator: number.get(_up_to(text, level), operator) for operator, text in address.items()}
    scopes = {
        number[outer]
        for text in address.values()
        for outer in [text.rpartition(".")[0]]
        if outer in number and fold[number[outer]] == number[outer] and (level is None or outer.count(".") < level)
    }
    rows = run.channels.unique("channel", keep="first").sort("channel").to_dicts()
    strange = set(pacts) - {row["channel"] for row in rows}
    if strange:
        message = f"There is no channel {min(strange)}."
        raise InvalidParameterError(message, "Choose one of `run.channels`.", {"channel": min(strange)})
    links = []
    for row in rows:
        ends = _end(row, "source", "in", address, fold, scopes), _end(row, "target", "out", address, fold, scopes)
        source, target = ends
        if source is None or target is None or source == target:
            continue
        pact: Pact = "exchange" if row["channel"] in traffic.exchanged else "pipeline"
        bound = any(text in (row["type"] or "") for text in _BOUND_TYPES)
        # The outermost one is the message that holds the records.
        owning = len(_OWNING_TYPES.findall(row["type"] or "")) > 1
        links.append(Link(row["channel"], source, target, pacts.get(row["channel"], pact), bound, owning))
    counted = {row["channel"] for row in rows} - traffic.uncounted if traffic.known else set()
    return Dataflow(
        links=links, fold=fold, scopes=frozenset(scopes), workers=run.workers, records=traffic.records, counted=counted
    )


def _up_to(address: str, level: int | None) -> str:
    return address if level is None else ".".join(address.split(".")[: level + 1])


def _end(
    row: Mapping[str, object],
    end: Literal["source", "target"],
    inner: Literal["in", "out"],
    address: Mapping[int, str],
    fold: Mapping[int, int],
    scopes: Collection[int],
) -> Node | None:
    """Return the node at an end of a channel; seen from within, a scope feeds what enters it, and reads what leaves."""
    operator, port = row[f"{end}_operator"], row[f"{end}_port"] or 0
    if not isinstance(operator, int) or not isinstance(port, int) or operator not in address:
        return None
    operator_folded = fold[operator]
    if operator_folded not in scopes:
        return (operator_folded, "", 0)
    if address[operator] == row["scope"]:
        return (operator_folded, inner, port)
    return (operator_folded, "out" if inner == "in" else "in", port)


def folded(operator: I64, fold: Mapping[int, int]) -> I64:
    """Return operators as they are told apart.

    Parameters
    ----------
    operator
        Numbers, one per row; those that `fold` does not have, such as -1 for none, stay as they are.
    fold
        Per operator: the one that it counts as (`Dataflow.fold`).

    Returns
    -------
    array of int64
        Another array, one element per row. O(rows x operators that count as others).
    """
    different = {inner: outer for inner, outer in fold.items() if inner != outer}
    result = operator.copy()
    for inner, outer in different.items():
        result[operator == inner] = outer
    return result


def exchanged_channels(run: Run) -> frozenset[int]:
    """Return the channels on which a worker sent data to another one in the run; O(edges)."""
    data = run.scan("edges").filter(pl.col("type") == str(ActivityType.DATA_MESSAGE))
    return frozenset(data.select("channel").drop_nulls().unique().collect()["channel"].to_list())
