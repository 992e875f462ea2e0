"""Differential Dataflow's tables of latency and throughput, made with the adapter's programs: is their shape the same.

``python -m bench.differential`` records `degrees` and `bfs` under many loads, and writes ``docs/differential.md``;
about five minutes on an idle machine. ``--quick`` records smaller graphs, and writes nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench import harness
from pag_graph import api
from pag_graph.runtime.threads import CORES
from pag_graph.sources.record import build_program, run_program

PAGE = harness.ROOT / "docs" / "differential.md"
_PERIOD_US = 1_000
_SECONDS = 5.0
_FEW, _MANY = 1_000, 100_000


class Closed(NamedTuple):
    """What a closed loop does with inputs of a size: one after the other."""

    batch: int
    latency_s: float
    per_s: float
    """Changes per second."""


class Open(NamedTuple):
    """What an open loop does with what it is offered."""

    offered_per_s: float
    p50_s: float
    p99_s: float
    max_s: float
    stable: bool = True


LARGE = [
    Closed(1, 0.000022360, 44723.61),
    Closed(10, 0.000096040, 104122.98),
    Closed(100, 0.000642212, 155711.79),
    Closed(1_000, 0.004543951, 220072.78),
    Closed(10_000, 0.030170409, 331450.60),
    Closed(100_000, 0.209353117, 477661.86),
    Closed(1_000_000, 1.654989484, 604233.44),
]
"""Differential's degrees of 10 million nodes and 50 million edges, one worker."""
SMALL = [
    Closed(1, 0.000015030, 66531.79),
    Closed(10, 0.000025207, 396714.95),
    Closed(100, 0.000080650, 1239930.37),
    Closed(1_000, 0.000646346, 1547159.74),
    Closed(10_000, 0.007631104, 1310426.40),
    Closed(100_000, 0.088007205, 1136270.59),
    Closed(1_000_000, 0.908435692, 1100793.38),
]
"""The same of 10 nodes and 50 edges."""
OFFERED = [
    Open(100_000, 0.000278569, 0.026223434, 0.097659698),
    Open(200_000, 0.008157470, 0.229676978, 0.309386978),
    Open(300_000, 0.054992987, 0.241406483, 1.186357171),
    Open(400_000, 0.203661730, 0.566640573, 1.560094012),
    Open(500_000, 0.561085336, 2.601315288, 2.687729288),
]
"""The large graph when changes come by the clock, one worker."""
_LARGE_INPUTS = {1: 2_000, 10: 2_000, 100: 1_000, 1_000: 300, 10_000: 60, 100_000: 15, 1_000_000: 4}
_SMALL_INPUTS = {1: 4_000, 10: 4_000, 100: 4_000, 1_000: 2_000, 10_000: 200, 100_000: 30, 1_000_000: 5}
_BFS_INPUTS = {1: 500, 10: 200, 100: 60, 1_000: 20, 10_000: 6}


def closed_shape(rows: list[Closed], *, plateau: bool) -> dict[str, bool]:
    """Say what of Differential's table holds of rows, by batch: a larger batch takes longer, but not in proportion.

    Parameters
    ----------
    rows
        By batch, ascending.
    plateau
        Whether throughput ends to grow within the table, as it does of a small graph.
    """
    rates = [row.per_s for row in rows]
    peak = rates.index(max(rates))
    shape = {
        "latency grows with the batch": all(smaller.latency_s < larger.latency_s for smaller, larger in pairwise(rows)),
        "throughput grows more than fivefold from the smallest batch to the best": max(rates) > 5 * rates[0],
    }
    if plateau:
        half = next(place for place, rate in enumerate(rates) if rate > max(rates) / 2)
        shape["a batch of at most 1,000 changes reaches half of the best throughput"] = rows[half].batch <= _FEW
        shape["for all larger batches, throughput stays above half of the best"] = min(rates[half:]) > max(rates) / 2
    else:
        shape["throughput grows up to a batch of 100,000 changes or more"] = rows[peak].batch >= _MANY
    return shape


def open_shape(rows: list[Open], closed: list[Closed]) -> dict[str, bool]:
    """Say what of Differential's table holds of rows, by offered load, beside those of the closed loop."""
    best = max(row.per_s for row in closed)
    with_closed_latency = [
        (row, min((c.latency_s for c in closed if c.per_s >= row.offered_per_s), default=0.0)) for row in rows
    ]
    return {
        "the median grows with the load": all(lighter.p50_s < heavier.p50_s for lighter, heavier in pairwise(rows)),
        "at the smallest load, the slowest takes more than ten times the median": rows[0].max_s > 10 * rows[0].p50_s,
        "the slowest change takes longer than in a closed loop that handles the load": all(
            row.max_s > closed_latency_s for row, closed_latency_s in with_closed_latency
        ),
        "the program does not keep up with a load above the best throughput of the closed loop": not any(
            row.stable for row in rows if row.offered_per_s > best
        ),
    }


def closed_loop(program: str, arguments: dict[str, int], inputs: dict[int, int], workers: int) -> list[Closed]:
    """Record a program once per size of its inputs."""
    count = "inputs" if program == "degrees" else "rounds"
    rows = []
    for batch, number in inputs.items():
        pooled = _record(program, {**arguments, "batch": batch, count: number}, workers)
        # The edges of `bfs` are shared between its workers; each of `degrees` has its own.
        total = batch * workers if program == "degrees" else batch
        rows.append(Closed(total, pooled["mean_ns"] / 1e9, pooled["achieved_per_s"] / workers * total))
    return rows


def open_loop(arguments: dict[str, int], offered: list[int], seconds: float, workers: int) -> list[Open]:
    """Record `degrees` once per load."""
    rows = []
    for load in offered:
        batch = round(load * _PERIOD_US / 1e6 / workers)
        loop_arguments = {
            **arguments,
            "batch": batch,
            "inputs": round(seconds * 1e6 / _PERIOD_US),
            "period": _PERIOD_US,
        }
        pooled = _record("degrees", loop_arguments, workers)
        tail = (pooled[name] / 1e9 for name in ("p50_ns", "p99_ns", "max_ns"))
        rows.append(Open(load, *tail, stable=bool(pooled["stable"])))
    return rows


def _record(program: str, arguments: dict[str, int], workers: int) -> dict[str, float]:
    """Record a program once; return what `pag load-curve` says of all its workers."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        run_program(build_program(program), Path(folder) / "trace", ["-w", str(workers), *words])
        return api.load_curve([Path(folder) / "trace"]).to_pylist()[-1]


def _closed_table(rows: list[Closed], differential_rows: list[Closed] | None = None) -> list[str]:
    other_rows = differential_rows or []
    lines = ["| changes at once | latency | changes/s |" + " Differential: latency | changes/s |" * bool(other_rows)]
    lines.append("|--:|--:|--:|" + "--:|--:|" * bool(other_rows))
    for place, row in enumerate(rows):
        line = f"| {row.batch:,} | {row.latency_s * 1e3:.3f} ms | {row.per_s:,.0f} |"
        if other_rows:
            line += f" {other_rows[place].latency_s * 1e3:.3f} ms | {other_rows[place].per_s:,.0f} |"
        lines.append(line)
    return [*lines, ""]


def _open_table(rows: list[Open], differential_rows: list[Open]) -> list[str]:
    lines = ["| offered | median | 99 % | longest | kept up | Differential: median | 99 % | longest |"]
    lines.append("|--:|--:|--:|--:|---|--:|--:|--:|")
    row_of_load = {row.offered_per_s: row for row in differential_rows}
    for row in rows:
        cells = [f"{value * 1e3:.3f} ms" for value in row[1:4]]
        differential_row = row_of_load.get(row.offered_per_s)
        cells += [
            "yes" if row.stable else "no",
            *([f"{value * 1e3:.3f} ms" for value in differential_row[1:4]] if differential_row else " " * 3),
        ]
        lines.append(f"| {row.offered_per_s:,.0f}/s | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _verdicts(shape: dict[str, bool]) -> list[str]:
    return [*(f"- {'Holds' if holds else '**Does not hold**'}: {claim}." for claim, holds in shape.items()), ""]


def page(*, quick: bool) -> list[str]:
    """Record everything, and return the lines of the page."""
    large = {"nodes": 10_000, "edges": 50_000} if quick else {"nodes": 1_000_000, "edges": 5_000_000}
    largest_batch = 1_000 if quick else 1_000_000
    load, now = os.getloadavg()[0], datetime.now(UTC)
    lines: list[str] = []
    size = f"{large['nodes']:,} nodes and {large['edges']:,} edges"
    one_worker = closed_loop("degrees", large, _up_to(largest_batch, _LARGE_INPUTS), 1)
    lines += [f"### `degrees`, {size}, one worker, closed loop", "", *_closed_table(one_worker, LARGE)]
    lines += _verdicts(closed_shape(one_worker, plateau=False))
    two_workers = closed_loop("degrees", large, _up_to(largest_batch, _LARGE_INPUTS), 2)
    lines += [f"### `degrees`, {size}, two workers, closed loop", "", *_closed_table(two_workers)]
    lines += _verdicts(
        {"the best throughput is higher than that of one worker": _best(two_workers) > _best(one_worker)}
    )
    small_graph = closed_loop("degrees", {"nodes": 10, "edges": 50}, _up_to(largest_batch, _SMALL_INPUTS), 1)
    lines += ["### `degrees`, 10 nodes and 50 edges, one worker, closed loop", "", *_closed_table(small_graph, SMALL)]
    lines += _verdicts(
        {
            **closed_shape(small_graph, plateau=True),
            "each batch takes less time than in the large graph": all(
                small.latency_s < of_large.latency_s for small, of_large in zip(small_graph, one_worker, strict=True)
            ),
        }
    )
    offered = [20_000, 50_000] if quick else [50_000, 100_000, 200_000, 300_000, 400_000, 500_000]
    by_clock = open_loop(large, offered, 1.0 if quick else _SECONDS, 1)
    lines += [f"### `degrees`, {size}, one worker, open loop", "", *_open_table(by_clock, OFFERED)]
    lines += _verdicts(open_shape(by_clock, one_worker))
    searched = closed_loop("bfs", {"nodes": 20_000, "edges": 60_000}, _up_to(largest_batch, _BFS_INPUTS), 1)
    lines += ["### `bfs`, 20,000 nodes and 60,000 edges, one worker, closed loop", "", *_closed_table(searched)]
    growing = {"latency grows with the batch": all(a.latency_s < b.latency_s for a, b in pairwise(searched))}
    growing["throughput grows with the batch"] = all(a.per_s < b.per_s for a, b in pairwise(searched))
    loads = f"load average {load:.2f} before and {os.getloadavg()[0]:.2f} after (one or two are the program's own)"
    facts = f"Recorded once each, on {CORES} cores, {loads}, {now:%Y-%m-%d %H:%M} UTC."
    return [facts, "", *lines, *_verdicts(growing)]


def _up_to(largest_batch: int, inputs: dict[int, int]) -> dict[int, int]:
    return {batch: number for batch, number in inputs.items() if batch <= largest_batch}


def _best(rows: list[Closed]) -> float:
    return max(row.per_s for row in rows)


def main() -> None:
    """Record, compare, and write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="Record smaller graphs, and write nothing.")
    quick = options.parse_args().quick
    lines = page(quick=quick)
    if quick:
        sys.stdout.write("\n".join(lines))
        return
    PAGE.write_text(
        harness.with_section(PAGE.read_text(encoding="utf-8"), "differential", "\n".join(lines)), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
