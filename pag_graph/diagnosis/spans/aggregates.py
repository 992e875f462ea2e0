"""Sums over requests: by operation, by call path, by class of latency, and what differs between two sets.

Definitions stand in `docs/spans.md`, "Sums".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from pag_graph.sources.spans.table import labels_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.diagnosis.spans.sums import Sums
    from pag_graph.sources.spans.table import Operation

    I64 = NDArray[np.int64]

CLASSES: Final = 20
"""How many classes of latency there are, with as many requests each."""
QUANTILES: Final = (50, 90, 95, 99)
SLOWEST_SHARE: Final = 100
"""One request in so many is among the slowest."""
_HALF: Final = 0.5


def percentile(ordered: I64, zeros: int, share: float) -> float:
    """Return a percentile, as numpy has it, of values of which some are zero and not listed.

    Parameters
    ----------
    ordered
        The other values, ascending, none negative.
    zeros
        How many zeros there are besides.
    share
        In percent.

    Examples
    --------
    >>> percentile(np.array([4, 8]), 1, 50), percentile(np.array([4, 8]), 0, 50)
    (4.0, 6.0)
    """
    count = len(ordered) + zeros
    if not count:
        return 0.0
    place = share / 100 * (count - 1)
    low = int(place)
    below, above = (
        float(ordered[index - zeros]) if index >= zeros else 0.0 for index in (low, min(low + 1, count - 1))
    )
    fraction = place - low
    # From the nearer end, as numpy does it: the same to the last bit.
    return above - (above - below) * (1 - fraction) if fraction >= _HALF else below + (above - below) * fraction


def by_operation(sums: Sums) -> list[dict[str, Any]]:
    """Return one row per operation, most path time first.

    Parameters
    ----------
    sums
        Of all requests.

    Returns
    -------
    list of dict
        `calls`; `own_ns`, the sum of the spans' own time, with mean and percentiles per call; `path_ns` with mean and
        percentiles per request, those without the operation included; `network_ns` and `certain_ns` of it; `share` of
        all requests' latency.
    """
    grouped = sums.own.group_by("operation").agg(pl.col("own_ns").sort()).sort("operation")
    on_path = {int(key[0]): group for key, group in sums.paths.group_by("operation")}
    requests = len(sums.counted)
    latency = int(sums.latency[sums.counted].sum())
    rows = []
    for operation, own_times in zip(grouped["operation"].to_list(), grouped["own_ns"], strict=True):
        calls, on_path_rows = own_times.to_numpy(), on_path.get(operation)
        path = np.sort(on_path_rows["path_ns"].to_numpy()) if on_path_rows is not None else np.zeros(0, np.int64)
        total = int(path.sum())
        rows.append(
            {
                "operation": sums.labels[operation],
                "calls": len(calls),
                "path_ns": total,
                "share": total / latency if latency else 0.0,
                "certain_ns": int(on_path_rows["certain_ns"].sum()) if on_path_rows is not None else 0,
                "network_ns": int(on_path_rows["network_ns"].sum()) if on_path_rows is not None else 0,
                **_spread("path", path, requests - len(path)),
                "own_ns": int(calls.sum()),
                **_spread("own", calls, 0),
            }
        )
    return sorted(rows, key=lambda row: (-row["path_ns"], -row["own_ns"], row["operation"]))


def _spread(name: str, ordered: I64, zeros: int) -> dict[str, float]:
    count = len(ordered) + zeros
    mean = float(ordered.sum()) / count if count else 0.0
    return {
        f"{name}_mean_ns": mean,
        **{f"{name}_p{share}_ns": percentile(ordered, zeros, share) for share in QUANTILES},
    }


def by_latency(sums: Sums) -> list[dict[str, Any]]:
    """Return one row per class of latency: classes have as many requests each, the fastest come first.

    Parameters
    ----------
    sums
        Of all requests.

    Returns
    -------
    list of dict
        `requests`, `from_ns` and `to_ns`, and `path_ns`: per operation its part of the class's paths.
    """
    chosen = sums.counted
    ordered = chosen[np.argsort(sums.latency[chosen], kind="stable")]
    class_of = np.full(sums.requests.height, -1, np.int64)
    class_of[ordered] = np.arange(len(ordered)) * CLASSES // max(1, len(ordered))
    path_rows = sums.paths.with_columns(place=pl.Series(class_of[sums.paths["request"].to_numpy()]))
    name = pl.Series(sums.labels, dtype=pl.String).gather(path_rows["operation"].cast(pl.UInt32))
    grouped = path_rows.with_columns(name=name).group_by("place", "name")
    totals = grouped.agg(pl.col("operation").min(), pl.col("path_ns").sum()).sort("place", "operation")
    rows: list[dict[str, Any]] = []
    for place in np.unique(class_of[ordered]).tolist():
        latency = sums.latency[np.flatnonzero(class_of == place)]
        of_class = totals.filter(pl.col("place") == place)
        rows.append(
            {
                "class": place,
                "requests": len(latency),
                "from_ns": int(latency.min()),
                "to_ns": int(latency.max()),
                "path_ns": dict(of_class.select("name", "path_ns").iter_rows()),
            }
        )
    return rows


def by_call_path(sums: Sums) -> list[dict[str, Any]]:
    """Return one row per call path: operations from the root down, each before those below it.

    Parameters
    ----------
    sums
        Of all requests.

    Returns
    -------
    list of dict
        `depth`, `operation`, `above` (number of the row of the caller, or -1), `calls`, `own_ns`, `path_ns`.
    """
    operation = np.array([path.operation for path in sums.call_paths], np.int64)
    below: list[list[int]] = [[] for _ in range(len(sums.call_paths) + 1)]
    for number in np.lexsort((operation, -sums.path_ns)).tolist():
        below[sums.call_paths[number].above].append(number)
    rows, stack, line = [], [(number, -1) for number in reversed(below[-1])], 0
    while stack:
        number, above_line = stack.pop()
        rows.append(
            {
                "depth": sums.call_paths[number].depth,
                "operation": sums.labels[operation[number]],
                "above": above_line,
                "calls": int(sums.calls[number]),
                "own_ns": int(sums.own_ns[number]),
                "path_ns": int(sums.path_ns[number]),
            }
        )
        stack += [(child, line) for child in reversed(below[number])]
        line += 1
    return rows


def slowest(sums: Sums) -> I64:
    """Return the slowest 1 % of the requests that are counted, at least one: their numbers in ascending order."""
    chosen = sums.counted
    count = -(-len(chosen) // SLOWEST_SHARE)
    return np.sort(chosen[np.argsort(-sums.latency[chosen], kind="stable")[:count]])


def difference(before: Sums, after: Sums, chosen: tuple[I64, I64]) -> dict[str, Any]:
    """Say by operation what makes one set of requests slower than another.

    Parameters
    ----------
    before, after
        Two sets.
    chosen
        Which requests of each, of those that are counted.

    Returns
    -------
    dict
        `requests` and `latency_ns` (sums) of both sets, and `operations`: per operation the sums of `path_ns` in both.
        Paths tile latencies, so that the sums of operations are those of latencies, and differences of means add up.
    """
    sets = [(before, chosen[0]), (after, chosen[1])]
    sums_of_operation: dict[Operation, list[int]] = {}
    for place, (sums, requests) in enumerate(sets):
        is_chosen = pl.col("request").is_in(pl.Series(requests, dtype=pl.UInt32).implode())
        totals = sums.paths.filter(is_chosen).group_by("operation").agg(pl.col("path_ns").sum())
        for operation, path_ns in totals.iter_rows():
            sums_of_operation.setdefault(sums.operations[operation], [0, 0])[place] += path_ns
    # What they are called does not depend on which of them are on a path.
    known = list(dict.fromkeys([*before.operations, *after.operations]))
    label_of = dict(zip(known, labels_of(known), strict=True))
    names = [label_of[operation] for operation in sums_of_operation]
    counts = [len(requests) for requests in chosen]
    latencies = [int(sums.latency[requests].sum()) for sums, requests in sets]
    rows = [
        {
            "operation": name,
            "before_ns": path_sums[0],
            "after_ns": path_sums[1],
            "before_mean_ns": path_sums[0] / max(1, counts[0]),
            "after_mean_ns": path_sums[1] / max(1, counts[1]),
            "mean_change_ns": path_sums[1] / max(1, counts[1]) - path_sums[0] / max(1, counts[0]),
        }
        for name, path_sums in zip(names, sums_of_operation.values(), strict=True)
    ]
    return {
        "requests": {"before": counts[0], "after": counts[1]},
        "latency_ns": {"before": latencies[0], "after": latencies[1]},
        "mean_change_ns": latencies[1] / max(1, counts[1]) - latencies[0] / max(1, counts[0]),
        "operations": sorted(rows, key=lambda row: (-abs(row["mean_change_ns"]), row["operation"])),
    }
