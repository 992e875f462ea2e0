"""The first load of a run into an empty database: files for ``neo4j-admin database import``, then the server.

The files hold what is many: events, activities, segments, steps. The rest is written by the driver when the server
runs, in the same way as by a load, and the epochs are published last. The result is what a load would have made.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.builder.engine import silent
from pag_graph.errors import Neo4jError
from pag_graph.model.enums import ActivityType
from pag_graph.neo4j_server import home as server_home
from pag_graph.neo4j_server import lease as leases
from pag_graph.neo4j_server import server
from pag_graph.sinks.neo4j import load_steps, loader
from pag_graph.sinks.neo4j.content import Content, Reader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.groups import grouped, read_ahead
from pag_graph.sinks.neo4j.model import (
    ACTIVITIES,
    CONTAINS_FINDING,
    CRITICAL,
    EDGE_KEY,
    EVENT,
    NAMELESS,
    RELEASED,
    SEGMENT,
    SNAPSHOT,
    SPENT,
    STEP,
    THEN,
    NodeTable,
    RelationshipTable,
)
from pag_graph.sinks.neo4j.query import plain_errors
from pag_graph.sinks.neo4j.writer import Writer
from pag_graph.store.held import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pag_graph.builder.build import Progress
    from pag_graph.graph.run import Run

_HEAP = "1g"
"""Memory for the import, and for the server then, in Java's notation."""

_FROM, _TO = ":START_ID", ":END_ID"
_BETWEEN = "\x1f"
"""What parts the members of a list: names in lists have no control characters."""

_NO_OPERATORS = """\
MATCH (segment:Segment {run: $run})
WHERE segment.operators IS NULL
WITH segment LIMIT $batch_rows
SET segment.operators = [], segment.operators_ns = [], segment.operator_names = []
RETURN count(*) AS changed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkReport:
    """What was imported."""

    run: str
    detail: Detail
    epochs: tuple[int, ...]
    nodes: int
    """Nodes in the files."""
    relationships: int
    """Relationships in the files."""
    activities: int
    """Those of the relationships that are activities and messages between events."""
    events: int
    """Those of the nodes that are events."""
    segments: int
    """Those of the nodes that are segments."""
    files_s: float
    """Time for writing the files."""
    import_s: float
    """Time of ``neo4j-admin``, start of Java included."""
    seconds: float
    """All of it, with the start of the server and publishing."""


def load_bulk(
    run: Run,
    home: Path | None = None,
    *,
    detail: Detail = Detail.FULL,
    overwrite: bool = False,
    options: loader.LoadOptions | None = None,
    ports: tuple[int, int] = (7687, 7474),
    progress: Progress | None = None,
) -> BulkReport:
    """Load all epochs of a run into the embedded server's database, which is made anew; the server is started then.

    Parameters
    ----------
    run
        A committed run.
    home
        The server's folder; the server must not run.
    detail
        How much to load.
    overwrite
        Whether to do so when the server has a database already, all of which is lost.
    options
        Batches and groups, as for `loader.load_run`.
    ports
        For Bolt and HTTP, where the server shall listen afterwards.
    progress
        Called with (label, done, all).

    Returns
    -------
    BulkReport
        What was done. Memory holds a group of epochs and all segments; files take about 150 bytes per event on disk,
        and are removed in the end.

    Raises
    ------
    Neo4jError
        If the server runs, has a database already, or the import fails.
    """
    began = time.monotonic()
    report = progress or silent
    options = options or loader.LoadOptions()
    folder = server_home.home_folder(home)
    database = folder / "data" / "databases" / "neo4j"
    if database.exists() and not overwrite and not server_home.is_half_imported(folder):
        message = f"The server in {folder} already has a database; an import replaces it, and all its data is lost."
        raise Neo4jError(message, "Load without --bulk, or give --overwrite.", {"home": str(folder)})
    if server.status(folder).running:
        message = f"The Neo4j server in {folder} runs; an import needs it stopped."
        raise Neo4jError(message, f"Stop it: `{server_home.own_command('stop', folder)}`.", {"home": str(folder)})
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder("pag-graph-import-") as scratch:
        files = ImportFiles(Reader(run, options.labels), detail, scratch)
        with ThreadPoolExecutor(1) as pool:
            prepared = pool.submit(server.prepare, folder, report)
            files.write(options.group_edges, report)
            prepared.result()
        files_s = time.monotonic() - began
        report("import", 0, 1)
        before = time.monotonic()
        with server_home.importing(folder):
            shutil.rmtree(database, ignore_errors=True)
            server.administer(files.arguments(), folder, heap=_HEAP)
        import_s = time.monotonic() - before
        report("import", 1, 1)
    started = server.start(folder, bolt_port=ports[0], http_port=ports[1], heap=_HEAP, progress=report)
    _finish(started, files, options)
    return BulkReport(
        run=files.reader.run_id,
        detail=detail,
        epochs=tuple(run.epochs["epoch"].to_list()),
        nodes=sum(files.nodes.values()),
        relationships=files.relationships,
        activities=files.activities,
        events=files.nodes[EVENT.label],
        segments=files.nodes[SEGMENT.label],
        files_s=files_s,
        import_s=import_s,
        seconds=time.monotonic() - began,
    )


def _finish(started: server.ServerStatus, files: ImportFiles, options: loader.LoadOptions) -> None:
    """Write what the files do not hold, and publish."""
    run_id = files.reader.run_id
    with server.driver(started) as driver, plain_errors(f"publish run {run_id}"):

        def write_small_parts() -> None:
            with leases.held(driver, run_id, lanes=1) as lease:
                writer = Writer(driver, lease)
                load_steps.describe(writer, files.reader, options.batch_rows)
                for content in files.contents:
                    load_steps.begin(writer, content)
                    writer.merge(SNAPSHOT, content.snapshots, options.batch_rows)
                    writer.merge(CONTAINS_FINDING, content.findings, options.batch_rows)

        load_steps.prepare_schema(driver, meanwhile=write_small_parts)
        # A lease of its own: until the indexes are filled an earlier one may have run out.
        with leases.held(driver, run_id, lanes=1) as lease:
            writer = Writer(driver, lease)
            values = {"run": run_id, "batch_rows": options.batch_rows}
            while writer.write(_NO_OPERATORS, values)[0]["changed"]:
                pass
            for content in files.contents:
                load_steps.publish(writer, content)


class ImportFiles:
    """Files of a run for ``neo4j-admin database import``.

    Parameters
    ----------
    reader
        Of the run.
    detail
        How much to load.
    folder
        Where to write; must exist.
    """

    def __init__(self, reader: Reader, detail: Detail, folder: Path) -> None:
        self.reader, self.detail, self.folder = reader, detail, folder
        self._numbers = _Numbers()
        self.contents: list[Content] = []
        """Per group of epochs: what is few, for the driver to write."""
        self.nodes: Counter[str] = Counter()
        """Nodes in the files, by label."""
        self.relationships = 0
        self.activities = 0
        self._events_left, self._activities_left = pl.DataFrame(), pl.DataFrame()
        self._headers: dict[tuple[str, str], Path] = {}
        self._parts: dict[tuple[str, str], list[Path]] = {}

    def write(self, group_edges: int, progress: Progress) -> None:
        """Write all files; to be called once.

        Parameters
        ----------
        group_edges
            Most edges of a group of epochs (`pag_graph.sinks.neo4j.groups.grouped`); memory holds two groups. Events
            and activities that a later group may show are kept until it is written; of a detail below `full`, and where
            epochs are islands, that is all of them.
        progress
            Called with ("write files", epochs that are done, all epochs) after each group.

        Raises
        ------
        StoreError
            If a file of the store is missing or damaged.

        Notes
        -----
        O(edges log edges). Afterwards `contents`, `nodes`, `relationships` and `activities` say what the files hold,
        and `arguments` how to import them.
        """
        run = self.reader.run
        windows = run.windows()
        has_events = self.detail.covers(Detail.CRITICAL)
        self._numbers.give(EVENT, run.scan("vertices").filter(has_events).select("id").collect()["id"])
        self._numbers.give(SNAPSHOT, run.epochs["epoch"])
        segments, then_links, released_links, spent = [], [], [], []
        groups = grouped(run, windows, {}, self.detail, group_edges)
        done = 0
        for group, content in read_ahead(self.reader, groups):
            segments.append(content.segments)
            then_links.append(content.then)
            released_links.append(content.released)
            spent.append(content.spent.join(content.snapshots.select("epoch", snapshot="id"), on="snapshot"))
            self._steps(content)
            self._snapshots(content)
            self._complete(content, is_last=group is groups[-1])
            self.contents.append(content.small())
            done += len(group.windows)
            progress("write files", done, len(windows))
        # Segments are few, and later groups may show them as well.
        distinct_segments = pl.concat(segments).unique("id")
        self._numbers.give(SEGMENT, distinct_segments["id"])
        self._nodes(SEGMENT, distinct_segments)
        self._relationships(THEN, pl.concat(then_links).unique(["source", "target"]))
        messages = _merged(released_links)
        self._relationships(RELEASED, messages)
        self._relationships(CRITICAL, messages.filter(pl.col("critical")))
        operators = pl.concat(spent).select("operator").unique()
        self._numbers.give(NAMELESS, operators["operator"])
        self._nodes(NAMELESS, operators, key="operator")
        self._relationships(SPENT, pl.concat(spent), source="epoch")

    def _complete(self, content: Content, *, is_last: bool) -> None:
        """Write the events and activities that no later group shows, and keep the others."""
        start_ns, end_ns = content.windows[0].start_ns, content.windows[-1].end_ns
        # Of these, a later epoch may show what an earlier one did not; all is kept until the end.
        keep = self.detail is not Detail.FULL or content.islands
        new_events = content.events
        if not keep and start_ns:
            # Events before the group are written already.
            new_events = new_events.filter(pl.col("t_ns") > start_ns)
        events = pl.concat([self._events_left, new_events]).unique("id") if self._events_left.width else new_events
        activities = content.activities
        if self._activities_left.width:
            activities = _merged([self._activities_left, activities])
        if is_last or keep:
            is_complete = ended = pl.lit(is_last)
        else:
            is_complete = ~(pl.col("t_ns") > end_ns)
            ended = pl.max_horizontal("start_ns", pl.col("start_ns") + pl.col("duration_ns")) <= end_ns
        self._nodes(EVENT, events.filter(is_complete))
        self._activities(activities.filter(ended))
        self._events_left, self._activities_left = events.filter(~is_complete), activities.filter(~ended)

    def arguments(self) -> list[str]:
        """Return the arguments of ``neo4j-admin`` that import the files."""
        arguments = ["database", "import", "full", "neo4j", "--overwrite-destination=true", "--input-type=csv"]
        arguments += ["--id-type=actual", f"--array-delimiter={_BETWEEN}", "--normalize-types=true"]
        arguments += [f"--report-file={self.folder / 'report'}"]
        for (kind, label), parts in sorted(self._parts.items()):
            files = ",".join(str(path) for path in (self._headers[kind, label], *parts))
            arguments.append(f"--{kind}={label.split('/')[0]}={files}")
        return arguments

    def _steps(self, content: Content) -> None:
        if not content.steps.height:
            return
        # Places in the path of an epoch, far enough apart for every path.
        steps = content.steps.with_columns(key=pl.col("epoch") * (1 << 40) + pl.col("step"))
        self._numbers.give(STEP, steps["key"])
        self._nodes(STEP, steps, key="key")
        ends = {_FROM: self._numbers.of(SNAPSHOT, steps["epoch"]), _TO: self._numbers.of(STEP, steps["key"])}
        self._write(("relationships", "CONTAINS/steps"), {}, steps, ends)
        self.relationships += steps.height

    def _snapshots(self, content: Content) -> None:
        number = {":ID": self._numbers.of(SNAPSHOT, content.snapshots["epoch"])}
        self._write(("nodes", SNAPSHOT.label), {"run:string": "run", "id:string": "id"}, content.snapshots, number)
        self.nodes[SNAPSHOT.label] += content.snapshots.height

    def _nodes(self, table: NodeTable, rows: pl.DataFrame, key: str = "id") -> None:
        columns = {"run:string": "run", **_typed(table.columns, rows)}
        if table.has_lane:
            columns[":LABEL"] = "lane"
        self._write(("nodes", table.label), columns, rows, {":ID": self._numbers.of(table, rows[key])})
        self.nodes[table.label] += rows.height

    def _activities(self, rows: pl.DataFrame) -> None:
        self.activities += rows.height
        for kind in ActivityType:
            self._relationships(ACTIVITIES[kind], rows.filter(pl.col("type") == str(kind)))

    def _relationships(self, table: RelationshipTable, rows: pl.DataFrame, source: str = "") -> None:
        ends = {
            _FROM: self._numbers.of(table.source, rows[source or table.source_columns[0]]),
            _TO: self._numbers.of(table.target, rows[table.target_columns[0]]),
        }
        columns = {**({"run:string": "run"} if table.carries_run else {}), **_typed(table.columns, rows)}
        self._write(("relationships", table.type), columns, rows, ends)
        self.relationships += rows.height

    def _write(
        self, file: tuple[str, str], columns: dict[str, str], rows: pl.DataFrame, numbers: Mapping[str, pl.Series]
    ) -> None:
        """Add rows to a file; `columns` are the fields of its header with the columns that they come from.

        `numbers` are fields with the numbers of nodes, which come first.
        """
        if not rows.height:
            return
        parts = self._parts.setdefault(file, [])
        name = "-".join(file).replace("/", "-")
        if file not in self._headers:
            self._headers[file] = self.folder / f"{name}-header.csv"
            self._headers[file].write_text(",".join([*numbers, *columns]) + "\n", encoding="utf-8")
        parts.append(self.folder / f"{name}-{len(parts)}.csv")
        run_rows = rows.with_columns(run=pl.lit(self.reader.run_id))
        chosen = [_field(run_rows, column).alias(str(place)) for place, column in enumerate(columns.values())]
        first = [series.alias(field) for field, series in numbers.items()]
        run_rows.select(*first, *chosen).write_csv(parts[-1], include_header=False, quote_style="necessary")


class _Numbers:
    """Numbers of nodes, without gaps, which the server takes for its own: it need not find a node by its key then."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[int, pl.Series]] = {}
        """By label: the first number, and the keys in the order of their numbers."""
        self._next = 0

    def give(self, table: NodeTable, keys: pl.Series) -> None:
        """Give numbers to nodes of a label by their keys, all different; earlier ones of the label are forgotten."""
        self._keys[table.label] = self._next, keys.sort()
        self._next += keys.len()

    def of(self, table: NodeTable, keys: pl.Series) -> pl.Series:
        """Return the numbers of nodes; each key has one."""
        first, known = self._keys[table.label]
        return first + known.search_sorted(keys).cast(pl.Int64)


def _typed(columns: Sequence[str], rows: pl.DataFrame) -> dict[str, str]:
    """Return the fields of a header, with types, for columns."""
    return {f"{name}:{_type(rows.schema[name])}": name for name in columns}


def _type(kind: pl.DataType) -> str:
    if isinstance(kind, pl.List):
        return "string[]" if kind.inner == pl.String else "long[]"
    if kind == pl.String:
        return "string"
    return "boolean" if kind == pl.Boolean else "long"


def _field(rows: pl.DataFrame, column: str) -> pl.Expr:
    if isinstance(rows.schema[column], pl.List):
        return pl.col(column).cast(pl.List(pl.String)).list.join(_BETWEEN)
    return pl.col(column)


def _merged(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Join relationships that are the same; critical is what is so in any window."""
    rows = pl.concat(frames, how="vertical_relaxed")
    marked = rows.filter(pl.col("critical")).select(EDGE_KEY).unique().with_columns(critical=pl.lit(value=True))
    return (
        rows.unique(EDGE_KEY, keep="first").drop("critical").join(marked, on=EDGE_KEY, how="left").select(rows.columns)
    )
