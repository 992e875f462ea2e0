"""Sums over requests: by operation, by call path, by class of latency, and what differs between two sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.sources.spans.requests import Requests

    I64 = NDArray[np.int64]

CLASSES: Final = 20
"""How many classes of latency there are, with as many requests each."""
QUANTILES: Final = (50, 90, 95, 99)
SLOWEST_SHARE: Final = 100
"""One request in so many is among the slowest."""


def counted(requests: Requests) -> I64:
    """Return the requests that sums are about: those whose root is one."""
    return np.flatnonzero(~requests.orphan)


def path_parts(requests: Requests, chosen: I64) -> pl.DataFrame:
    """Return the parts of chosen requests' paths, summed.

    Parameters
    ----------
    requests
        All of them.
    chosen
        Indexes of requests.

    Returns
    -------
    DataFrame
        One row per (request, operation): `path_ns`, of it `network_ns` (calls and returns under way, which count for
        the caller) and `certain_ns`.
    """
    path = requests.path
    number = np.repeat(np.arange(requests.count), np.diff(requests.begins))
    message = requests.under_way
    owner = np.where(message, requests.spans.parent[path.span], path.span)
    length = path.end - path.begin
    wanted = np.zeros(requests.count, np.bool_)
    wanted[chosen] = True
    keep = wanted[number]
    rows = pl.DataFrame(
        {
            "request": number[keep],
            "operation": requests.operation[owner][keep],
            "path_ns": length[keep],
            "network_ns": np.where(message, length, 0)[keep],
            "certain_ns": np.where(requests.certain[path.span], length, 0)[keep],
        }
    )
    return rows.group_by("request", "operation").sum().sort("request", "operation")


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
    values = [float(ordered[index - zeros]) if index >= zeros else 0.0 for index in (low, min(low + 1, count - 1))]
    return values[0] + (values[1] - values[0]) * (place - low)


def by_operation(requests: Requests, chosen: I64) -> list[dict[str, Any]]:
    """Return one row per operation, most path time first.

    Parameters
    ----------
    requests
        All of them.
    chosen
        Indexes of the requests to sum.

    Returns
    -------
    list of dict
        `calls`; `own_ns`, the sum of the spans' own time, with mean and percentiles per call; `path_ns` with mean and
        percentiles per request, those without the operation included; `network_ns` and `certain_ns` of it; `share` of
        all requests' latency.
    """
    parts = path_parts(requests, chosen)
    spans = _spans_of(requests, chosen)
    own = pl.DataFrame({"operation": requests.operation[spans], "own": requests.own[spans]})
    grouped = own.group_by("operation").agg(pl.col("own").sort()).sort("operation")
    on_path = {int(key[0]): group for key, group in parts.group_by("operation")}
    latency = int(requests.latency[chosen].sum())
    rows = []
    for operation, values in zip(grouped["operation"].to_list(), grouped["own"], strict=True):
        calls, part = values.to_numpy(), on_path.get(operation)
        path = np.sort(part["path_ns"].to_numpy()) if part is not None else np.zeros(0, np.int64)
        total = int(path.sum())
        rows.append(
            {
                "operation": requests.table.operations[operation].label,
                "calls": len(calls),
                "path_ns": total,
                "share": total / latency if latency else 0.0,
                "certain_ns": int(part["certain_ns"].sum()) if part is not None else 0,
                "network_ns": int(part["network_ns"].sum()) if part is not None else 0,
                **_spread("path", path, len(chosen) - len(path)),
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


def _spans_of(requests: Requests, chosen: I64) -> I64:
    wanted = np.zeros(requests.count, np.bool_)
    wanted[chosen] = True
    return np.flatnonzero(wanted[requests.request])


def by_latency(requests: Requests, chosen: I64) -> list[dict[str, Any]]:
    """Return one row per class of latency: classes have as many requests each, the fastest come first.

    Parameters
    ----------
    requests
        All of them.
    chosen
        Indexes of the requests.

    Returns
    -------
    list of dict
        `requests`, `from_ns` and `to_ns`, and `path_ns`: per operation its part of the class's paths.
    """
    ordered = chosen[np.argsort(requests.latency[chosen], kind="stable")]
    class_of = np.full(requests.count, -1, np.int64)
    class_of[ordered] = np.arange(len(ordered)) * CLASSES // max(1, len(ordered))
    parts = path_parts(requests, chosen)
    parts = parts.with_columns(place=pl.Series(class_of[parts["request"].to_numpy()]))
    sums = parts.group_by("place", "operation").agg(pl.col("path_ns").sum()).sort("place", "operation")
    rows: list[dict[str, Any]] = []
    for place in np.unique(class_of[ordered]).tolist():
        latency = requests.latency[np.flatnonzero(class_of == place)]
        own = sums.filter(pl.col("place") == place)
        names = [requests.table.operations[code].label for code in own["operation"].to_list()]
        rows.append(
            {
                "class": place,
                "requests": len(latency),
                "from_ns": int(latency.min()),
                "to_ns": int(latency.max()),
                "path_ns": dict(zip(names, own["path_ns"].to_list(), strict=True)),
            }
        )
    return rows


def by_call_path(requests: Requests, chosen: I64) -> list[dict[str, Any]]:
    """Return one row per call path: operations from the root down, each before those below it.

    Parameters
    ----------
    requests
        All of them.
    chosen
        Indexes of the requests.

    Returns
    -------
    list of dict
        `depth`, `operation`, `above` (number of the row of the caller, or -1), `calls`, `own_ns`, `path_ns`.
    """
    spans = _spans_of(requests, chosen)
    parent, depth, operation = requests.spans.parent, requests.depth, requests.operation
    on_path = np.zeros(len(parent), np.int64)
    np.add.at(on_path, requests.path.span, requests.path.end - requests.path.begin)
    place = np.full(len(parent), -1, np.int64)
    made: list[tuple[int, int, int]] = []
    by_depth = spans[np.argsort(depth[spans], kind="stable")]
    for level in np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1):
        above = np.where(parent[level] >= 0, place[parent[level]], -1)
        keys, inverse = np.unique(np.stack([above, operation[level]]), axis=1, return_inverse=True)
        place[level] = len(made) + inverse.reshape(-1)
        made += [(int(depth[level[0]]), int(key[0]), int(key[1])) for key in keys.T] if len(level) else []
    calls, own, path = (np.zeros(len(made), np.int64) for _ in range(3))
    np.add.at(calls, place[spans], 1)
    np.add.at(own, place[spans], requests.own[spans])
    np.add.at(path, place[spans], on_path[spans])
    below: list[list[int]] = [[] for _ in range(len(made) + 1)]
    for number in np.argsort(-path, kind="stable").tolist():
        below[made[number][1]].append(number)
    rows, stack, line = [], [(number, -1) for number in reversed(below[-1])], 0
    while stack:
        number, above_line = stack.pop()
        rows.append(
            {
                "depth": made[number][0],
                "operation": requests.table.operations[made[number][2]].label,
                "above": above_line,
                "calls": int(calls[number]),
                "own_ns": int(own[number]),
                "path_ns": int(path[number]),
            }
        )
        stack += [(child, line) for child in reversed(below[number])]
        line += 1
    return rows


def slowest(requests: Requests, chosen: I64) -> I64:
    """Return the slowest 1 % of requests, at least one."""
    count = -(-len(chosen) // SLOWEST_SHARE)
    return np.sort(chosen[np.argsort(-requests.latency[chosen], kind="stable")[:count]])


def difference(before: Requests, after: Requests, chosen: tuple[I64, I64]) -> dict[str, Any]:
    """Say by operation what makes one set of requests slower than another.

    Parameters
    ----------
    before, after
        Two sets.
    chosen
        Indexes of the requests of each.

    Returns
    -------
    dict
        `requests` and `latency_ns` (sums) of both sets, and `operations`: per operation the sums of `path_ns` in both.
        Paths tile latencies, so that the sums of operations are those of latencies, and differences of means add up.
    """
    sets = [(before, chosen[0]), (after, chosen[1])]
    sums: dict[str, list[int]] = {}
    for place, (requests, own) in enumerate(sets):
        parts = path_parts(requests, own).group_by("operation").agg(pl.col("path_ns").sum())
        for operation, value in parts.iter_rows():
            sums.setdefault(requests.table.operations[operation].label, [0, 0])[place] += value
    counts = [len(own) for own in chosen]
    totals = [int(requests.latency[own].sum()) for requests, own in sets]
    rows = [
        {
            "operation": name,
            "before_ns": values[0],
            "after_ns": values[1],
            "before_mean_ns": values[0] / max(1, counts[0]),
            "after_mean_ns": values[1] / max(1, counts[1]),
            "mean_change_ns": values[1] / max(1, counts[1]) - values[0] / max(1, counts[0]),
        }
        for name, values in sums.items()
    ]
    return {
        "requests": {"before": counts[0], "after": counts[1]},
        "latency_ns": {"before": totals[0], "after": totals[1]},
        "mean_change_ns": totals[1] / max(1, counts[1]) - totals[0] / max(1, counts[0]),
        "operations": sorted(rows, key=lambda row: (-abs(row["mean_change_ns"]), row["operation"])),
    }
