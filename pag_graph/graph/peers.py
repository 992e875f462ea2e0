"""Which workers can be compared: those that run the same operators.

Workers of one dataflow, as those of Timely, all run all of it. Where a source states what its workers did, they can be
anything: a source and its sink, a driver and its executors. That one of them has more to do than one of another kind is
no imbalance, and no record of the one can be spread to the other.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.store.remembered import ran_before, time_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pag_graph.store.delta import StoreInfo


def time_in_operators(info: StoreInfo) -> dict[int, dict[int, int]]:
    """Return how long each worker ran each operator in the whole run.

    Parameters
    ----------
    info
        A state of a store; epochs that were removed from it count as well.

    Returns
    -------
    dict
        Per worker that ran any, and operator: nanoseconds other than waiting, resting, spinning or scheduling.
        O(edges), of which four columns are read.

    Raises
    ------
    StoreError
        If a file is missing or damaged.
    """
    result: dict[int, dict[int, int]] = {}
    before = ran_before(info).filter(pl.col("ns") > 0).select("worker", "operator", "ns")
    for sums in (time_run(info.scan("edges")).collect(), before):
        for worker, operator, ns in sums.iter_rows():
            ran = result.setdefault(worker, {})
            ran[operator] = ran.get(operator, 0) + ns
    return result


def peers_of(workers: Iterable[int], ran: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """Group workers that run the same operators.

    Parameters
    ----------
    workers
        All workers.
    ran
        Per worker and operator: how long it ran it; workers that ran none may be absent.

    Returns
    -------
    dict
        Per worker: the lowest worker of its group.

    Notes
    -----
    Workers with the same set of operators are alike. Two such sets of workers are alike as well if each spends more
    than half of its time in operators that the other runs too: which of several executors ran the few tasks of a stage
    is chance, and a checkpoint that all take makes nobody alike. A worker like one member of a group belongs to it.
    Workers that ran no operator are alike. O(different sets of operators squared).
    """
    kinds: dict[frozenset[int], list[int]] = {}
    for worker in sorted(workers):
        kinds.setdefault(frozenset(ran.get(worker, ())), []).append(worker)
    spent: dict[frozenset[int], Counter[int]] = {}
    for kind, members in kinds.items():
        spent[kind] = sum((Counter(ran.get(worker, {})) for worker in members), Counter())
    group = {kind: members[0] for kind, members in kinds.items()}
    for first_kind, second_kind in combinations(kinds, 2):
        shared = first_kind & second_kind
        if all(
            2 * sum(spent[kind][operator] for operator in shared) > spent[kind].total()
            for kind in (first_kind, second_kind)
        ):
            first, second = sorted((group[first_kind], group[second_kind]))
            group = {kind: first if number == second else number for kind, number in group.items()}
    lowest_of_group = {worker: group[kind] for kind, members in kinds.items() for worker in members}
    return dict(sorted(lowest_of_group.items()))
