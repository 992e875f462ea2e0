"""Timelines as JSON of the Trace Event Format, which Perfetto and Chrome open.

Workers are threads. Where operators nest (their addresses say so), their slices do; innermost is one slice per edge,
with all its columns and those of the vertex that it leads to. Messages are flows. The critical path has a track of its
own, and flows of its own from worker to worker.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, TextIO

import polars as pl

from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import CRITICAL_PATH, PAG_EDGES, PAG_VERTICES, STORE_TABLES
from pag_graph.sinks.export.pieces import LOCAL
from pag_graph.sinks.export.text_files import text_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pag_graph.graph.run import Run
    from pag_graph.sinks.export.pieces import Content, Piece

_VERTEX = [name for name in PAG_VERTICES.names if name != "id"]
# In one instant: flows begin at what ends, then slices end and begin, then flows end at what begins.
_FLOW_BEGINS, _ENDS, _BEGINS, _SLICE, _FLOW_ENDS = range(5)


def write(content: Content, target: Path) -> dict[str, int]:
    """Write a timeline.

    Parameters
    ----------
    content
        What to export.
    target
        File; compressed with gzip if its name ends in ``.gz``.

    Returns
    -------
    dict
        Counts of edges, vertices and steps of critical paths.
    """
    run = content.run
    threads = _threads(run)
    rows = {"edges": 0, "vertices": 0, "critical_path": 0}
    with text_file(target) as file:
        file.write('{"displayTimeUnit":"ns","otherData":' + json.dumps(_run_facts(content)) + ',"traceEvents":[\n')
        file.write(",\n".join(json.dumps(event) for event in _names(content, threads)))
        nesting = _Nesting(run, threads)
        if not content.path_only:
            for piece in content.pieces():
                rows["edges"] += piece.edges.height
                rows["vertices"] += piece.vertices.height
                _write_events(file, _piece_events(piece, run, threads, nesting))
            _write_events(file, nesting.close())
            _write_events(file, _epochs(run, threads) if content.window is None else None)
        for number, (window, steps) in enumerate(content.paths()):
            rows["critical_path"] += steps.height
            shown = {"window": window.name, "epoch": window.epoch}
            _write_events(
                file, _path_events(steps, run, threads, number=number, shown=shown, on_workers=content.path_only)
            )
        file.write("\n]}\n")
    return rows


def _run_facts(content: Content) -> dict[str, object]:
    """Tell, as tables, what a timeline cannot show: enough to read the store's rows back."""
    window = None
    if content.window is not None:
        window = {"start_ns": content.window.start_ns, "end_ns": content.window.end_ns, "name": content.window.name}
    return {
        "writer": f"pag_graph {version('pag-graph')}",
        "window": window,
        "path_only": content.path_only,
        **content.about(),
    }


def _threads(run: Run) -> pl.DataFrame:
    """One row per worker: `worker`, `pid`, `tid`, `label`; ids start at 1, for 0 is the idle thread to Perfetto."""
    workers = run.scan("workers").collect().sort("worker")
    name = pl.col("name") if "name" in workers.columns else pl.lit(None, pl.String)
    return workers.select(
        "worker",
        pid=pl.col("process") + 1,
        tid=pl.col("worker").cast(pl.Int64) + 1,
        label=pl.coalesce(name, pl.format("worker {}", "worker")),
        host="host",
    )


def _names(content: Content, threads: pl.DataFrame) -> Iterator[dict[str, object]]:
    for pid, host in threads.group_by("pid").agg(pl.col("host").first()).sort("pid").iter_rows():
        name = f"process {pid - 1}" + (f" on {host}" if host else "")
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
    for row in threads.iter_rows(named=True):
        base = {"ph": "M", "pid": row["pid"], "tid": row["tid"]}
        yield {**base, "name": "thread_name", "args": {"name": row["label"]}}
        yield {**base, "name": "thread_sort_index", "args": {"sort_index": row["tid"]}}
    extra = [(_path_pid(threads), "critical path")] if content.windows else []
    if content.window is None and not content.path_only:
        extra.append((_path_pid(threads) + 1, "epochs"))
    for pid, name in extra:
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid - 2**20}}
        yield {"ph": "M", "pid": pid, "tid": _track_tid(threads), "name": "thread_name", "args": {"name": name}}


def _path_pid(threads: pl.DataFrame) -> int:
    return int(threads["pid"].max() or 0) + 1  # type: ignore[arg-type]


def _track_tid(threads: pl.DataFrame) -> int:
    return int(threads["tid"].max() or 0) + 1  # type: ignore[arg-type]


def _write_events(file: TextIO, events: pl.DataFrame | None) -> None:
    """Write events, columns `t`, `rank` and `json`, in order of time."""
    if events is not None and events.height:
        ordered = events.sort("t", "rank", maintain_order=True)["json"]
        file.write(",\n")
        file.write(ordered.str.join(",\n").item())


def _microseconds(nanoseconds: pl.Expr) -> pl.Expr:
    """Spell a time: whole microseconds, or four digits after the point.

    Perfetto multiplies by 1,000 and cuts off what is left; two tenths of a nanosecond keep it on the right side.
    """
    rest_ns = nanoseconds.mod(1000)
    whole_us = (nanoseconds - rest_ns) // 1000
    digits = rest_ns.cast(pl.String).str.zfill(3)
    return pl.when(rest_ns == 0).then(whole_us.cast(pl.String)).otherwise(pl.format("{}.{}2", whole_us, digits))


def _named(operators: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """Add `label`, in quotes: the operator's name, else the type."""
    names = operators.select(
        "operator", operator_name=pl.col("name").map_elements(json.dumps, return_dtype=pl.String, skip_nulls=True)
    ).unique("operator", keep="first")
    joined = frame.join(names, on="operator", how="left", maintain_order="left")
    return joined.with_columns(
        label=pl.coalesce("operator_name", pl.format('"{}"', pl.col("type").str.replace_all("_", " ")))
    )


def _args(columns: Sequence[str]) -> pl.Expr:
    return pl.struct(list(columns)).struct.json_encode()


def _piece_events(piece: Piece, run: Run, threads: pl.DataFrame, nesting: _Nesting) -> pl.DataFrame:
    lanes = threads.select("worker", "pid", "tid")
    vertices = piece.vertices.rename({name: f"vertex_{name}" for name in _VERTEX})
    local = (
        piece.edges.filter(pl.col("type").is_in(LOCAL))
        .join(vertices.drop("vertex_worker"), left_on="dst", right_on="id", how="left")
        .with_columns(worker=(pl.col("dst") // 2**POSITION_BITS).cast(pl.Int32))
        .join(lanes, on="worker", how="left")
        .sort("worker", "dst")
    )
    slices = _named(run.operators, local).select(
        t="start_ns",
        rank=pl.lit(_SLICE),
        json=_slice(_args([*PAG_EDGES.names, *(f"vertex_{name}" for name in _VERTEX if name != "worker")])),
    )
    parts = [slices, nesting.runs(local), *_flows(piece, lanes)]
    # A vertex that no local edge leads to is the first of its worker, or lies at the edge of the window.
    alone = piece.vertices.join(local.select(id="dst"), on="id", how="anti", maintain_order="left").join(
        lanes, on="worker", how="left", maintain_order="left"
    )
    parts.append(
        alone.select(
            t="t_ns",
            rank=pl.lit(_SLICE),
            json=pl.concat_str(
                _head("i", pl.col("t_ns")),
                pl.lit(',"s":"t","cat":"vertex","name":"'),
                pl.col("kind"),
                pl.lit('","args":'),
                _args(PAG_VERTICES.names),
                pl.lit("}"),
            ),
        )
    )
    return pl.concat(parts)


def _head(phase: str, time: pl.Expr) -> pl.Expr:
    return pl.concat_str(
        pl.lit(f'{{"ph":"{phase}","pid":'),
        pl.col("pid").cast(pl.String),
        pl.lit(',"tid":'),
        pl.col("tid").cast(pl.String),
        pl.lit(',"ts":'),
        _microseconds(time),
    )


def _slice(args: pl.Expr) -> pl.Expr:
    """Spell a slice that has a duration; needs `label` and `type`."""
    return pl.concat_str(
        _head("X", pl.col("start_ns")),
        pl.lit(',"dur":'),
        _microseconds(pl.col("duration_ns")),
        pl.lit(',"cat":"'),
        pl.col("type"),
        pl.lit('","name":'),
        pl.col("label"),
        pl.lit(',"args":'),
        args,
        pl.lit("}"),
    )


def _flows(piece: Piece, lanes: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Spell messages: a flow leaves the sender's slice and enters the receiver's."""
    arriving = piece.edges.filter(~pl.col("type").is_in(LOCAL))
    for phase, rank, side, edges, time in (
        ("s", _FLOW_BEGINS, "src", piece.sent, pl.col("start_ns")),
        ("f", _FLOW_ENDS, "dst", arriving, pl.col("start_ns") + pl.col("duration_ns")),
    ):
        on_lanes = edges.with_columns(worker=(pl.col(side) // 2**POSITION_BITS).cast(pl.Int32)).join(
            lanes, on="worker", how="left", maintain_order="left"
        )
        yield on_lanes.select(
            t=time,
            rank=pl.lit(rank),
            json=pl.concat_str(
                _head(phase, time),
                pl.lit(',"bp":"e"' if phase == "f" else ""),
                pl.lit(',"cat":"'),
                pl.col("type"),
                # The two vertices and the channel tell a message from all others of its type.
                pl.lit('","name":"message","id":"'),
                pl.format("{}-{}-{}", "src", "dst", pl.col("channel").fill_null(-1)),
                pl.lit('","args":'),
                _args(PAG_EDGES.names),
                pl.lit("}"),
            ),
        )


class _Nesting:
    """Slices of operators that contain others: runs of edges whose operators' addresses begin alike.

    A run may go on in the next piece, so what is open at a piece's end is kept, and ended later.
    """

    def __init__(self, run: Run, threads: pl.DataFrame) -> None:
        operators = run.operators.unique("address", keep="first")
        names = dict(operators.select("address", "name").iter_rows())
        chains = []
        for number, address in run.operators.select("operator", "address").iter_rows():
            parts = address.split(".")
            prefixes = [".".join(parts[:length]) for length in range(1, len(parts))]
            chains.append((number, [prefix for prefix in prefixes if prefix in names]))
        self._names = {address: json.dumps(name) for address, name in names.items()}
        self._chains = pl.DataFrame(
            chains, schema={"operator": pl.Int64, "chain": pl.List(pl.String)}, orient="row"
        ).unique("operator", keep="first")
        self._open: dict[int, tuple[list[str], int]] = {}
        self._lanes = {row["worker"]: (row["pid"], row["tid"]) for row in threads.iter_rows(named=True)}

    def runs(self, local: pl.DataFrame) -> pl.DataFrame:
        """Return the events of runs that begin or end among edges, which are sorted by worker and `dst`."""
        chained = local.join(self._chains, on="operator", how="left", maintain_order="left").with_columns(
            chain=pl.col("chain").fill_null(pl.lit([], pl.List(pl.String)))
        )
        changes = chained.select(
            "worker",
            "start_ns",
            "chain",
            end_ns=pl.col("start_ns") + pl.col("duration_ns"),
            run=(pl.struct("worker", "chain").rle_id()),
        )
        merged = changes.group_by("run", maintain_order=True).agg(
            pl.col("worker").first(), pl.col("chain").first(), pl.col("start_ns").first(), pl.col("end_ns").last()
        )
        events: list[tuple[int, int, str]] = []
        for worker, chain, start, end in merged.select("worker", "chain", "start_ns", "end_ns").iter_rows():
            opened, _ = self._open.get(worker, ([], start))
            first_difference = next(
                (i for i, pair in enumerate(zip(opened, chain, strict=False)) if pair[0] != pair[1]), None
            )
            shared = min(len(opened), len(chain)) if first_difference is None else first_difference
            events += [self._mark("E", worker, start, address) for address in reversed(opened[shared:])]
            events += [self._mark("B", worker, start, address) for address in chain[shared:]]
            self._open[worker] = (chain, end)
        return _frame(events)

    def close(self) -> pl.DataFrame:
        """Return the ends of what is still open."""
        events = [
            self._mark("E", worker, end, address)
            for worker, (opened, end) in self._open.items()
            for address in reversed(opened)
        ]
        self._open.clear()
        return _frame(events)

    def _mark(self, phase: str, worker: int, t: int, address: str) -> tuple[int, int, str]:
        pid, tid = self._lanes[worker]
        micro = str(t // 1000) if t % 1000 == 0 else f"{t // 1000}.{t % 1000:03}2"
        arguments = f',"args":{{"address":{json.dumps(address)}}}' if phase == "B" else ""
        head = f'{{"ph":"{phase}","pid":{pid},"tid":{tid},"ts":{micro},"cat":"operator"'
        text = f'{head},"name":{self._names[address]}{arguments}}}'
        return t, _ENDS if phase == "E" else _BEGINS, text


def _frame(events: Sequence[tuple[int, int, str]]) -> pl.DataFrame:
    return pl.DataFrame(events, schema={"t": pl.Int64, "rank": pl.Int32, "json": pl.String}, orient="row")


def _epochs(run: Run, threads: pl.DataFrame) -> pl.DataFrame:
    """Return one slice per window of the run, on a track of their own."""
    epochs = run.epochs.filter(pl.col("end_ns") > pl.col("start_ns")).with_columns(
        pid=pl.lit(_path_pid(threads) + 1),
        tid=pl.lit(_track_tid(threads)),
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
        type=pl.lit("epoch"),
        label=pl.when(pl.col("role") == "round")
        .then(pl.format('"epoch {}"', "epoch"))
        .otherwise(pl.format('"{}"', "role")),
    )
    columns = [name for name in STORE_TABLES["epochs"].names if name in epochs.columns]
    return epochs.select(t="start_ns", rank=pl.lit(_SLICE), json=_slice(_args(columns)))


def _path_events(
    steps: pl.DataFrame,
    run: Run,
    threads: pl.DataFrame,
    *,
    number: int,
    shown: Mapping[str, object],
    on_workers: bool,
) -> pl.DataFrame:
    """Return a critical path: a slice per step on its track, and a flow wherever it goes to another worker."""
    lanes = threads.select("worker", "pid", "tid", "label")
    window_columns = [pl.lit(value).alias(name) for name, value in shown.items()]
    frame = _named(run.operators, steps).with_columns(window_columns)
    args = _args([*CRITICAL_PATH.names, *shown])
    track = frame.join(
        lanes.select("worker", where="label"), on="worker", how="left", maintain_order="left"
    ).with_columns(pid=pl.lit(_path_pid(threads)), tid=pl.lit(_track_tid(threads)))
    parts = [track.select(t="start_ns", rank=pl.lit(_SLICE), json=_slice(args))]
    if on_workers:
        local = frame.filter(pl.col("type").is_in(LOCAL)).join(
            lanes.drop("label"), on="worker", how="left", maintain_order="left"
        )
        parts.append(local.select(t="start_ns", rank=pl.lit(_SLICE), json=_slice(args)))
    moves = frame.filter(pl.col("worker") != pl.col("to_worker"))
    for phase, rank, side, time in (
        ("s", _FLOW_BEGINS, "worker", pl.col("start_ns")),
        ("f", _FLOW_ENDS, "to_worker", pl.col("start_ns") + pl.col("duration_ns")),
    ):
        on_lanes = moves.join(lanes.drop("label"), left_on=side, right_on="worker", how="left", maintain_order="left")
        parts.append(
            on_lanes.select(
                t=time,
                rank=pl.lit(rank),
                json=pl.concat_str(
                    _head(phase, time),
                    pl.lit(',"bp":"e"' if phase == "f" else ""),
                    pl.lit(f',"cat":"critical_path","name":"critical path","id":"path-{number}-'),
                    pl.col("step").cast(pl.String),
                    pl.lit('"}'),
                ),
            )
        )
    return pl.concat([part.with_columns(pl.col("rank").cast(pl.Int32)) for part in parts])
