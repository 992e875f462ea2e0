"""What epochs of a run are in Neo4j: read from the store as the tables of `pag_graph.sinks.neo4j.model`.

A load by the driver and a bulk import write the same tables, so they give the same database.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses.expressions import LOCAL, WAITING, peer_frame
from pag_graph.model.enums import EpochRole
from pag_graph.model.tables import PAG_EDGES, PAG_EPOCHS, PAG_VERTICES, TRACE_WORKERS
from pag_graph.sinks.neo4j.detail import Detail, RunLabels
from pag_graph.sinks.neo4j.loaded import epoch_ranges
from pag_graph.sinks.neo4j.model import EDGE_KEY, FOUND_BY_EPOCH, LOG, RELEASED, SEGMENT, SNAPSHOT, SPENT, STEP, THEN
from pag_graph.sinks.neo4j.segments import SegmentReader, as_read, bounds_of
from pag_graph.sinks.neo4j.shown import read_shown
from pag_graph.sinks.neo4j.told import Told
from pag_graph.sinks.provenance_walks import FinalCommits, log_stretches
from pag_graph.store.history import latest_commit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window
    from pag_graph.sinks.neo4j.shown import Shown

_NO_OPERATOR = -1
_STEPS = ("snapshot", *STEP.columns)
# Lists of a `Snapshot` that divide its critical path, by the column of its steps that they hold.
_PATH_LISTS = {
    "path_types": "type",
    "path_operators": "operator",
    "path_workers": "worker",
    "path_to_workers": "to_worker",
    "path_counts": "steps",
    "path_times_ns": "duration_ns",
}
_OF_PATH: dict[str, Any] = {
    "path_steps": pl.Int64,
    "path_messages": pl.Int64,
    "path_segments": pl.List(pl.Int64),
    **dict.fromkeys(_PATH_LISTS, pl.List(pl.Int64)),
    "path_types": pl.List(pl.String),
}
"""What a `Snapshot` says of its critical path; null where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What some epochs show, as tables; columns are those of the tables in `pag_graph.sinks.neo4j.model`."""

    detail: Detail
    windows: tuple[Window, ...]
    islands: bool
    """Whether what an epoch shows is what carries its number."""
    epochs: pl.DataFrame
    """One row per epoch: `PAG_EPOCHS`, with ``after_ns``, ``end_segment`` and ``highest_epoch``."""
    snapshots: pl.DataFrame
    segments: pl.DataFrame
    then: pl.DataFrame
    released: pl.DataFrame
    findings: pl.DataFrame
    """One row per finding at an event of an epoch: ``snapshot`` and ``finding``."""
    spent: pl.DataFrame
    """One row per epoch, operator and type of activity: its time in the window, and on the critical path."""
    steps: pl.DataFrame
    """Steps of the critical paths, each with its ``snapshot``; none for details below `critical`."""
    events: pl.DataFrame
    """`PAG_VERTICES` with ``operator_name``, sorted by `id`; none for details below `critical`."""
    activities: pl.DataFrame
    """`PAG_EDGES` with ``title``, ``critical`` and ``ended_by``, sorted by `src` and `dst`; both ends are among the
    events. ``run`` is null but for the types that carry it."""
    ends: pl.DataFrame
    """One row per epoch and worker: ``first`` and ``last`` event in its window; only for the detail `full`."""

    @property
    def rows(self) -> int:
        """Nodes and relationships, all in all."""
        tables = (self.segments, self.then, self.released, self.steps, self.steps, self.events, self.activities)
        return sum(table.height for table in tables)

    def small(self) -> Content:
        """Return it without the tables that are long: enough to add its epochs and to publish them."""
        long = ("segments", "then", "released", "steps", "events", "activities")
        return replace(self, **{name: getattr(self, name).clear() for name in long})


class Reader:
    """Reads what epochs of a run show.

    Parameters
    ----------
    run
        A committed run.
    labels
        What it is to be called.
    told
        What is known from earlier states of the store.
    """

    def __init__(self, run: Run, labels: RunLabels | None = None, told: Told | None = None) -> None:
        self.run = run
        self.labels = labels or RunLabels()
        self.told = told or Told()
        self.run_id = str(run.info.run["run_id"])
        self._segments = SegmentReader(run)

    def read(self, windows: Sequence[Window], detail: Detail) -> Content:
        """Read the content of some epochs that follow each other.

        Parameters
        ----------
        windows
            Of epochs, in time order; memory holds all their edges.
        detail
            How much of them.

        Returns
        -------
        Content
            Reads only files and row groups that can hold edges of the windows.
        """
        shown = read_shown(self.run, windows)
        has_segments = detail.covers(Detail.WAITS)
        # A summary is about critical paths alone: what else there is need not be sorted, nor looked up in the store.
        edges = _edges(shown, only_critical=not has_segments)
        vertices = self._vertices(edges)
        segment_of = vertices.select("id", "segment")
        snapshots = self._snapshots(shown, segment_of)
        steps = self._steps(snapshots, shown) if detail.covers(Detail.CRITICAL) else _empty(_STEPS)
        then, released, segments = map(_empty, (THEN.all_columns, RELEASED.all_columns, SEGMENT.columns))
        if has_segments:
            then, released, segments = self._between(edges, vertices)
        events, activities = self._events(vertices, _with_senders(edges, released), shown, detail)
        return Content(
            detail=detail,
            windows=tuple(windows),
            islands=self.run.epochs_are_islands,
            epochs=self._epochs(shown, segment_of),
            snapshots=snapshots,
            segments=segments,
            then=then,
            released=released,
            findings=self._findings(windows, snapshots),
            spent=self._spent(shown, snapshots["id"]),
            steps=steps,
            events=events,
            activities=activities,
            ends=self._ends(windows, vertices) if detail is Detail.FULL else _empty_ends(),
        )

    def _between(self, edges: pl.DataFrame, vertices: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Return waits between segments, what released them, and the segments."""
        segment_of = vertices.select("id", "segment")
        waits = edges.filter(pl.col("type") == WAITING)
        then = self._segments.then(waits, segment_of)
        released = self._segments.released(edges, waits, segment_of)
        local = edges.filter(pl.col("type").is_in(LOCAL))
        shown_ids = pl.concat([local["src"], local["dst"]]).unique()
        segment_ids = pl.concat(
            [
                segment_of.filter(pl.col("id").is_in(shown_ids.implode()))["segment"],
                released["source"],
                released["target"],
            ]
        ).unique()
        segments = self._segments.segments(segment_ids, *bounds_of(vertices["epoch"]))
        return then, released, segments

    @cached_property
    def findings(self) -> pl.DataFrame:
        """What is to be told of the run: rows of `FINDING`, with ``t_ns`` and ``at_epoch`` where they are about one."""
        return self.told.findings(self.run)

    def extent(self) -> dict[str, Any]:
        """Return what the run is called, where its store lies, and which epochs that has, loaded or not."""
        hosts = self.run.scan("workers").collect()
        maker = latest_commit(self.run.info).made
        files = sorted(maker.get("files", {}).items())
        epochs = self.run.epochs.select("epoch", "role").sort("epoch")
        return {
            "store": str(self.run.info.path.absolute()),
            "name": self.labels.name,
            "usual_name": self.run.info.path.absolute().stem,
            "tags": None if self.labels.tags is None else list(self.labels.tags),
            "program": self.labels.program,
            "trace_path": maker.get("trace"),
            "file_names": [name for name, _ in files],
            "file_bytes": [sums["bytes"] for _, sums in files],
            "file_crc32": [sums["crc32"] for _, sums in files],
            "hosts": sorted(hosts["host"].drop_nulls().unique()) if "host" in hosts.columns else [],
            "epoch_ranges": epoch_ranges(epochs["epoch"].to_list()),
            "round_ranges": epoch_ranges(epochs.filter(pl.col("role") == str(EpochRole.ROUND))["epoch"].to_list()),
        }

    def workers(self) -> pl.DataFrame:
        """Return the workers, who runs the same, and where files of the trace hold their events: rows of `WORKER`."""
        workers = self.run.scan("workers").collect()
        # A column that files may lack.
        absent = [pl.lit(None, pl.String).alias(name) for name in TRACE_WORKERS.names if name not in workers.columns]
        stretches = log_stretches(self.run).group_by("worker", maintain_order=True).agg(LOG)
        known = workers.with_columns(absent)
        for facts in (peer_frame(self.run).rename({"group": "peers"}), stretches):
            known = known.join(facts, on="worker", how="left", maintain_order="left")
        return known

    def jobs(self) -> pl.DataFrame:
        """Return the commits that made the run, oldest first: one row per `Job`."""
        return pl.DataFrame(self.told.jobs(self.run), infer_schema_length=None)

    @cached_property
    def _finals(self) -> FinalCommits:
        return FinalCommits([(job["last_closed_epoch"], job["id"]) for job in self.told.jobs(self.run)])

    def _vertices(self, edges: pl.DataFrame) -> pl.DataFrame:
        ids = pl.concat([edges["src"], edges["dst"]]).unique()
        labels = pl.concat([edges["src_epoch"], edges["epoch"]])
        near_vertices = self.run.between("vertices", *bounds_of(labels))
        shown = (
            near_vertices.select(PAG_VERTICES.names)
            .join(pl.LazyFrame({"id": ids}), on="id", how="semi")
            .sort("id")
            .collect()
        )
        return shown.with_columns(operator_name=self._segments.name_of("operator"))

    def _spent(self, shown: Shown, snapshots: pl.Series) -> pl.DataFrame:
        """Return what operators did in each window, on all workers: time by type, and how much of it is critical."""
        key = ["snapshot", "operator", "type"]
        times = shown.local.filter(pl.col("operator").is_not_null()).group_by("window", "operator", "type")
        rows = times.agg(ns=pl.col("inside_ns").sum()).filter(pl.col("ns") > 0)
        rows = rows.with_columns(snapshot=snapshots[rows["window"]])
        if shown.steps is None:
            rows = rows.with_columns(path_ns=pl.lit(None, pl.Int64))
        else:
            steps = shown.steps.with_columns(snapshot=snapshots[shown.steps["window"]])
            on_path = steps.filter(pl.col("type").is_in(LOCAL)).group_by(key).agg(path_ns=pl.col("duration_ns").sum())
            rows = rows.join(on_path, on=key, how="left").with_columns(pl.col("path_ns").fill_null(0))
        return rows.select(SPENT.all_columns).sort(key)

    def _epochs(self, shown: Shown, segment_of: pl.DataFrame) -> pl.DataFrame:
        segments = dict(segment_of.iter_rows())
        last_steps: dict[int, dict[str, Any]] = {}
        if shown.steps is not None:
            ends = shown.steps.group_by("window").agg(pl.col("edge_dst", "worker", "to_worker").last())
            last_steps = {row["window"]: row for row in ends.iter_rows(named=True)}
        rows = []
        epoch_rows = self._rows_of(shown.windows).select(PAG_EPOCHS.names).iter_rows(named=True)
        for place, (window, row) in enumerate(zip(shown.windows, epoch_rows, strict=True)):
            end_vertex, end_segment, last = window.end_vertex, None, last_steps.get(place)
            if last is not None and not shown.all_waiting[place]:
                if end_vertex is None:
                    # Without a vertex of its own, a window ends where the path does, unless everybody waits there.
                    end_vertex = last["edge_dst"]
                segment = segments[last["edge_dst"]]
                # Over a message one comes into a segment only at its start.
                if last["worker"] == last["to_worker"] or segment == last["edge_dst"]:
                    end_segment = segment
            rows.append({**row, "after_ns": window.after_ns, "end_vertex": end_vertex, "end_segment": end_segment})
        added = dict.fromkeys(("after_ns", "end_segment"), pl.Int64)
        schema: dict[str, Any] = {**pl.DataFrame(PAG_EPOCHS.empty_table()).schema, **added}
        highest = pl.Series(shown.highest_epochs, dtype=pl.Int64)
        return pl.DataFrame(rows, schema=schema).with_columns(highest_epoch=highest)

    def _rows_of(self, windows: Sequence[Window]) -> pl.DataFrame:
        """Return the rows of the table `epochs` for windows of epochs."""
        epochs = pl.DataFrame({"epoch": [window.epoch for window in windows]}, schema={"epoch": pl.Int64})
        return epochs.join(self.run.epochs, on="epoch", how="left", maintain_order="left")

    def _snapshots(self, shown: Shown, segment_of: pl.DataFrame) -> pl.DataFrame:
        rows = []
        epoch_rows = self._rows_of(shown.windows).iter_rows(named=True)
        for window, row, highest in zip(shown.windows, epoch_rows, shown.highest_epochs, strict=True):
            commit = self._finals.commit_of(highest)
            facts: dict[str, Any] = {
                **{name: row[name] for name in SNAPSHOT.columns if name in row},
                "id": f"{self.run_id}/{window.epoch}/{commit}",
                "span_ns": window.span_ns,
                "commit": commit,
            }
            rows.append({name: facts.get(name) for name in SNAPSHOT.columns if name not in _OF_PATH})
        snapshots = pl.DataFrame(rows, infer_schema_length=None)
        if shown.steps is None:
            return snapshots.with_columns(pl.lit(None, kind).alias(name) for name, kind in _OF_PATH.items()).select(
                SNAPSHOT.columns
            )
        divided = _divided(shown.steps.with_columns(snapshot=snapshots["id"][shown.steps["window"]]), segment_of)
        lists = [pl.col(name).fill_null([]) for name, kind in _OF_PATH.items() if kind != pl.Int64]
        counts = [pl.col(name).fill_null(0) for name, kind in _OF_PATH.items() if kind == pl.Int64]
        joined = snapshots.join(divided, left_on="id", right_on="snapshot", how="left", maintain_order="left")
        return joined.with_columns(*counts, *lists).select(SNAPSHOT.columns)

    def _steps(self, snapshots: pl.DataFrame, shown: Shown) -> pl.DataFrame:
        if shown.steps is None:
            return _empty(_STEPS)
        of_window = {"epoch": snapshots["epoch"], "snapshot": snapshots["id"]}
        places = shown.steps["window"]
        return shown.steps.with_columns(**{name: column[places] for name, column in of_window.items()}).select(_STEPS)

    def _findings(self, windows: Sequence[Window], snapshots: pl.DataFrame) -> pl.DataFrame:
        frames = []
        # An alert is about an epoch, and names no instant.
        near = self._shown_by(windows)
        for window, snapshot in zip(windows, snapshots["id"], strict=True) if self.findings.filter(near).height else ():
            found = self.findings.filter(self._shown_by([window]))
            frames.append(found.select(snapshot=pl.lit(snapshot), finding="id"))
        nothing = self.findings.clear().select(snapshot=pl.lit("").alias("snapshot"), finding="id")
        return pl.concat([nothing, *frames])

    def _shown_by(self, windows: Sequence[Window]) -> pl.Expr:
        """Say of findings whether they are about something in windows of epochs that follow each other."""
        of_epoch = pl.col("at_epoch").is_in([window.epoch for window in windows])
        if self.run.epochs_are_islands:
            return of_epoch
        after_ns, end_ns = min(w.after_ns for w in windows), max(w.end_ns for w in windows)
        is_inside = pl.col("t_ns").is_between(after_ns, end_ns, closed="right")
        return is_inside | (pl.col("t_ns").is_null() & of_epoch)

    def _events(
        self,
        vertices: pl.DataFrame,
        edges: pl.DataFrame,
        shown: Shown,
        detail: Detail,
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        if not detail.covers(Detail.CRITICAL):
            vertices, edges = vertices.clear(), edges.clear()
        carries_run = pl.col("type").is_in([str(kind) for kind in FOUND_BY_EPOCH])
        edges = edges.with_columns(
            run=pl.when(carries_run).then(pl.lit(self.run_id)), title=as_read(pl.col("duration_ns"))
        )
        if detail is Detail.CRITICAL:
            # Each window for itself, so that it does not matter which others are read with it.
            edges = edges.join(_near_paths(shown), on=EDGE_KEY, how="semi", maintain_order="left")
            ends = pl.concat([edges["src"], edges["dst"]]).unique()
            vertices = vertices.filter(pl.col("id").is_in(ends.implode()))
        return vertices, edges

    def _ends(self, windows: Sequence[Window], vertices: pl.DataFrame) -> pl.DataFrame:
        islands = self.run.epochs_are_islands
        frames = []
        for window in windows:
            shown = pl.col("epoch") == window.epoch if islands else inside([window], pl.col("t_ns"))
            ends = vertices.filter(shown).group_by("worker").agg(first=pl.col("id").min(), last=pl.col("id").max())
            epoch = pl.lit(window.epoch, pl.Int64).alias("epoch")
            frames.append(ends.sort("worker").select(epoch, "worker", "first", "last"))
        return pl.concat(frames)


def _edges(shown: Shown, *, only_critical: bool) -> pl.DataFrame:
    """Return the edges that windows show, and what ended their waits, each once; ``critical`` is null or true."""
    critical = shown.path_edges().select(EDGE_KEY).unique().with_columns(critical=pl.lit(value=True))
    rows = pl.concat([shown.edges.select(PAG_EDGES.names), shown.enders.select(PAG_EDGES.names)])
    marked = rows.join(critical, on=EDGE_KEY, how="inner" if only_critical else "left", maintain_order="left")
    return marked.unique(EDGE_KEY, keep="first").sort("src", "dst")


def _with_senders(edges: pl.DataFrame, released: pl.DataFrame) -> pl.DataFrame:
    """Return edges with ``ended_by``: of a wait, the event that sent the message which ended it (`RELEASED`)."""
    senders = released.select("dst", ended_by="src")
    sender = pl.when(pl.col("type") == WAITING).then("ended_by")
    return edges.join(senders, on="dst", how="left", maintain_order="left").with_columns(ended_by=sender)


def _divided(steps: pl.DataFrame, segment_of: pl.DataFrame) -> pl.DataFrame:
    """Return how critical paths are divided: one row per ``snapshot`` that has steps, with columns of `_OF_PATH`."""
    is_message = pl.col("worker") != pl.col("to_worker")
    # A path comes into a segment by a message that ends at its first event.
    begins = segment_of.filter(pl.col("id") == pl.col("segment"))["id"]
    counts = steps.group_by("snapshot", maintain_order=True).agg(
        path_steps=pl.len().cast(pl.Int64),
        path_messages=is_message.sum().cast(pl.Int64),
        path_segments=pl.col("edge_dst").filter(is_message & pl.col("edge_dst").is_in(begins.implode())),
    )
    key = ["type", "operator", "worker", "to_worker"]
    lists = (
        steps.with_columns(pl.col("operator").fill_null(_NO_OPERATOR))
        .group_by("snapshot", *key)
        .agg(pl.len().cast(pl.Int64).alias("steps"), pl.col("duration_ns").sum())
        .sort("duration_ns", *key, descending=[True, False, False, False, False])
        .group_by("snapshot", maintain_order=True)
        .agg(pl.col(column).alias(name) for name, column in _PATH_LISTS.items())
        .with_columns(pl.col(name).cast(_OF_PATH[name]) for name in _PATH_LISTS)
    )
    return counts.join(lists, on="snapshot")


def inside(windows: Sequence[Window], t_ns: pl.Expr) -> pl.Expr:
    """Say whether an instant lies in one of several windows.

    Parameters
    ----------
    windows
        At least one. Like all windows they are open at their start (`Window.after_ns`).
    t_ns
        Nanoseconds since the run's origin.

    Returns
    -------
    pl.Expr
        Boolean; null where `t_ns` is null.
    """
    return pl.any_horizontal([t_ns.is_between(w.after_ns, w.end_ns, closed="right") for w in windows])


def _near_paths(shown: Shown) -> pl.DataFrame:
    """Return the edges that windows show and that touch their own critical path: ``src``, ``dst`` and ``type``."""
    rows = pl.concat([frame.select("window", *EDGE_KEY) for frame in (shown.edges, shown.enders)])
    path = shown.path_edges()
    ends = pl.concat([path.select("window", id="src"), path.select("window", id="dst")]).unique()
    touching = [
        rows.join(ends, left_on=["window", end], right_on=["window", "id"], how="semi") for end in ("src", "dst")
    ]
    return pl.concat(touching).select(EDGE_KEY).unique()


def _empty(columns: tuple[str, ...]) -> pl.DataFrame:
    return pl.DataFrame(schema={name: pl.Boolean if name == "critical" else pl.Int64 for name in columns})


def _empty_ends() -> pl.DataFrame:
    return _empty(("epoch", "worker", "first", "last"))
