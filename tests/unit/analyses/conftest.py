"""Runs in memory, built bundled samples, and a second, slow implementation of replays in plain Python."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import pag_graph
from pag_graph import api
from pag_graph.graph.run import Run
from pag_graph.model.tables import PAG_EDGES, PAG_EPOCHS, PAG_FINDINGS, TRACE_CHANNELS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.testing.reference import build_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from pag_graph.api import Pag
    from pag_graph.graph.window import Window
    from pag_graph.testing.traces import SmallTrace

Row = dict[str, Any]
SAMPLES = Path(pag_graph.__file__).parent / "samples"


def _frame(rows: Iterable[Row], schema: pa.Schema) -> pl.DataFrame:
    empty = pl.DataFrame(pl.from_arrow(schema.empty_table()))
    names = [{name: row.get(name) for name in schema.names} for row in rows]
    return pl.DataFrame(names, schema=empty.schema)


@dataclass(kw_only=True)
class Drawn:
    """A run in memory, and the rows that it is made of."""

    edges: list[Row]
    processes: dict[int, int]
    epochs: list[Row] = field(default_factory=list)
    rules: str = "timely"

    @property
    def end_ns(self) -> int:
        return max((edge["start_ns"] + edge["duration_ns"] for edge in self.edges), default=0)

    def _used(self, column: str) -> list[int]:
        return sorted({edge[column] for edge in self.edges if edge.get(column) is not None})

    @property
    def run(self) -> Run:
        run = Run.__new__(Run)
        run.info = SimpleNamespace(run={"rules": self.rules, "end_ns": self.end_ns}, path="memory", removed=None)  # type: ignore[assignment]
        workers = [
            {"worker": worker, "process": process, "clock_domain": "", "offset_ns": 0}
            for worker, process in self.processes.items()
        ]
        run._scans = {
            "edges": _frame(self.edges, PAG_EDGES).lazy(),
            "epochs": _frame(self.epochs, PAG_EPOCHS).lazy(),
            "workers": _frame(workers, TRACE_WORKERS).lazy(),
            "findings": _frame([], PAG_FINDINGS).lazy(),
            "operators": _frame(
                [{"operator": n, "address": str(n), "name": f"Op{n}"} for n in self._used("operator")], TRACE_OPERATORS
            ).lazy(),
            "channels": _frame([{"channel": n, "scope": "0"} for n in self._used("channel")], TRACE_CHANNELS).lazy(),
        }
        return run


@pytest.fixture(scope="session")
def in_memory() -> Callable[[SmallTrace], Drawn]:
    """Build the graph of a trace by brute force."""

    def build(trace: SmallTrace) -> Drawn:
        graph = build_reference(trace)
        return Drawn(edges=graph.edges, epochs=graph.epochs, processes=dict(enumerate(trace.processes)))

    return build


def _sample(name: str, place: Path) -> Pag:
    api.build(SAMPLES / name, place / "store", engine="local")
    return api.open(place / "store")


@pytest.fixture(scope="session")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    return _sample("skewed", tmp_path_factory.mktemp("skewed"))


@pytest.fixture(scope="session")
def bfs(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    return _sample("bfs", tmp_path_factory.mktemp("bfs"))


Vertex = Any


@dataclass(frozen=True)
class Arc:
    src: Vertex
    dst: Vertex
    weight: int
    edge: int
    """Number of the edge whose duration is part of the weight, or -1."""


class Oracle:
    """Replays of a window by relaxing all arcs until nothing changes; written from the definition alone.

    A vertex is an id, or a pair for a cut: every edge has cut vertices of its own.
    """

    def __init__(self, drawn: Drawn, window: Window, *, loop: str = "closed", arrival: str = "shortest") -> None:
        self.window, self.begin, self.end = window, window.start_ns, window.end_ns
        self.edges = {number: edge for number, edge in enumerate(drawn.edges) if self._touches(edge)}
        self.fixed: dict[Vertex, int] = {}
        self.t: dict[Vertex, int] = {}
        self.arcs: list[Arc] = []
        self.elements: set[int] = set()
        """Edges that can last longer."""
        self.duration: dict[int, int] = {}
        self.last = self._last()
        for number, edge in self.edges.items():
            if self._is_local(edge):
                self._add_local(number, edge, loop)
            elif not edge["flags"] & 2:
                self._add_message(number, edge, drawn, arrival)
        into = {arc.dst for arc in self.arcs if arc.edge < 0 or self._is_local(self.edges[arc.edge])}
        for vertex, t in self.t.items():
            if t == self.begin and vertex not in into:
                self.fixed[vertex] = t
        self.arcs.sort(key=lambda arc: self.t[arc.dst])

    @staticmethod
    def _is_local(edge: Row) -> bool:
        return "message" not in edge["type"]

    @staticmethod
    def _finish(edge: Row) -> int:
        return int(edge["start_ns"] + edge["duration_ns"])

    def _touches(self, edge: Row) -> bool:
        low, high = sorted((edge["start_ns"], self._finish(edge)))
        return (high > self.begin or self.begin == 0) and (low < self.end or high <= self.end)

    def _last(self) -> int:
        """Number of the edge on which the critical path ends."""
        if self.window.end_vertex is not None:
            [last] = [
                n for n, edge in self.edges.items() if edge["dst"] == self.window.end_vertex and self._is_local(edge)
            ]
            return last
        across = {n: edge for n, edge in self.edges.items() if edge["start_ns"] < self.end <= self._finish(edge)}
        # A worker that is born where the window ends has done nothing yet: its birth is under way like a message.
        stays = {n for n, edge in across.items() if self._is_local(edge) and edge["type"] != "spawn"}
        local = sorted((edge["dst"], n) for n, edge in across.items() if n in stays)
        works = [n for _, n in local if across[n]["type"] not in {"waiting", "idle", "input_wait", "unknown"}]
        rests = [(-across[n]["start_ns"], dst, n) for dst, n in local if across[n]["type"] != "waiting"]
        under_way = [(-edge["start_ns"], edge["src"], edge["dst"], n) for n, edge in across.items() if n not in stays]
        if works or rests:
            return works[0] if works else min(rests)[-1]
        return min(under_way)[-1] if under_way else local[0][1]

    def _vertex(self, number: int, edge: Row, end: str) -> Vertex:
        t = edge["start_ns"] if end == "src" else self._finish(edge)
        cut = not self.begin <= t <= self.end
        vertex = (number, end) if cut else edge[end]
        self.t[vertex] = min(max(t, self.begin), self.end)
        if cut and end == "src":
            self.fixed[vertex] = self.begin
        return vertex

    def _add_local(self, number: int, edge: Row, loop: str) -> None:
        if self._finish(edge) > self.end and number != self.last:
            return
        src, dst = self._vertex(number, edge, "src"), self._vertex(number, edge, "dst")
        inside = self.t[dst] - self.t[src]
        self.duration[number] = inside
        if edge["type"] == "waiting" and not (number == self.last and self._finish(edge) > self.end):
            self.arcs.append(Arc(src, dst, 0, -1))
            return
        self.elements.add(number)
        if edge["type"] in {"input_wait", "idle"} and loop == "open":
            self.arcs.append(Arc(src, dst, 0, -1))
            self._release(number, dst, self.t[dst])
        else:
            self.arcs.append(Arc(src, dst, inside, number))

    def _release(self, number: int, dst: Vertex, at: int) -> None:
        origin = (number, "release")
        self.t[origin] = self.fixed[origin] = self.begin
        self.arcs.append(Arc(origin, dst, at - self.begin, number))

    def _arrived_after(self, edge: Row, drawn: Drawn, arrival: str) -> int:
        """How long a message took until it arrived."""
        taken = self._finish(edge) - edge["start_ns"]
        if edge["read"] not in {None, edge["dst"]}:
            return taken
        if edge["receive_buffer_ns"] is not None:
            return int(taken - edge["receive_buffer_ns"])
        if arrival == "read":
            return taken

        def processes(other: Row) -> tuple[int, int]:
            return drawn.processes[other["src"] >> 40], drawn.processes[other["dst"] >> 40]

        # In this run every other message between two processes has a known arrival, or is read at its end.
        alike = [
            other
            for other in self.edges.values()
            if not self._is_local(other) and not other["flags"] & 2 and processes(other) == processes(edge)
        ]
        return min(self._finish(other) - other["start_ns"] for other in alike)

    def _add_message(self, number: int, edge: Row, drawn: Drawn, arrival: str) -> None:
        cut_by_end = self._finish(edge) > self.end
        if cut_by_end and number != self.last:
            return
        self.elements.add(number)
        dst = self._vertex(number, edge, "dst")
        targets = [dst]
        taken = self.end - edge["start_ns"] if cut_by_end else self._arrived_after(edge, drawn, arrival)
        if edge["read"] not in {None, edge["dst"]} and not cut_by_end:
            read_at = self._finish(edge) + edge["receive_buffer_ns"]
            if read_at <= self.end:
                self.t[edge["read"]] = read_at
                targets.append(edge["read"])
        self.duration[number] = taken
        for target in targets:
            if edge["start_ns"] < self.begin:
                self._release(number, target, edge["start_ns"] + taken)
            else:
                self.arcs.append(Arc(self._vertex(number, edge, "src"), target, taken, number))

    @property
    def sink(self) -> Vertex:
        return self._vertex(self.last, self.edges[self.last], "dst")

    def replay(self, more: dict[int, int] | None = None) -> dict[Vertex, int]:
        """When every vertex happens if edges last longer by so much."""
        more = more or {}
        time = dict(self.fixed)
        changed = True
        while changed:
            changed = False
            for arc in self.arcs:
                if arc.src in time:
                    at = time[arc.src] + arc.weight + more.get(arc.edge, 0)
                    if at > time.get(arc.dst, -(10**18)):
                        time[arc.dst] = at
                        changed = True
        return time

    def end_of(self, more: dict[int, int] | None = None) -> int:
        return self.replay(more)[self.sink]

    def slacks(self) -> dict[int, int]:
        """Slack per edge, from the latest times; edges from which nothing leads to the end are absent."""
        late = {self.sink: self.end}
        changed = True
        while changed:
            changed = False
            for arc in reversed(self.arcs):
                if arc.dst in late and late[arc.dst] - arc.weight < late.get(arc.src, 10**18):
                    late[arc.src] = late[arc.dst] - arc.weight
                    changed = True
        result: dict[int, int] = defaultdict(lambda: 10**18)
        for arc in self.arcs:
            if arc.edge >= 0 and arc.dst in late:
                result[arc.edge] = min(result[arc.edge], late[arc.dst] - self.t[arc.src] - arc.weight)
        return dict(result)


@pytest.fixture(scope="session")
def oracle() -> type[Oracle]:
    return Oracle


@pytest.fixture(scope="session")
def drawn_run() -> type[Drawn]:
    return Drawn


@pytest.fixture(scope="session")
def whole_run() -> Callable[..., Run]:
    """Return a drawn run with operators and channels: names by operator, readers by channel."""

    def make(drawn: Drawn, names: dict[int, tuple[str, str]] | None = None, **more: Any) -> Run:
        run = drawn.run
        run.info.run["run_id"] = more.get("run_id", "r")
        operators = [{"operator": n, "address": address, "name": name} for n, (address, name) in (names or {}).items()]
        channels = [{"channel": c, "scope": "0", "target_operator": o} for c, o in more.get("readers", {}).items()]
        run._scans["operators"] = _frame(operators, TRACE_OPERATORS).lazy()
        run._scans["channels"] = _frame(channels, TRACE_CHANNELS).lazy()
        return run

    return make
