"""Loading a run into Neo4j: ways to write the same rows, beside the plainest of them; details; the bulk import."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.harness import Bench, Figure, Session, Yardstick
from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.errors import PagGraphError
from pag_graph.model.enums import ActivityType
from pag_graph.neo4j_server import jars, lease, server
from pag_graph.sinks.neo4j.bulk import ImportFiles, load_bulk
from pag_graph.sinks.neo4j.content import Content, Reader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.events import EventSync
from pag_graph.sinks.neo4j.load_steps import prepare_schema
from pag_graph.sinks.neo4j.loader import BATCH_ROWS, GROUP_EDGES, default_sessions
from pag_graph.sinks.neo4j.model import ACTIVITIES, EVENT, create_relationships
from pag_graph.sinks.neo4j.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import neo4j

    from pag_graph.graph.run import Run

EDGES = 40_000
"""Activities that each way of loading writes: enough that a transaction's own costs do not matter."""

PLAIN, OURS = "plain", "ours"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What each way of loading writes."""

    driver: neo4j.Driver
    run: Run
    content: Content

    @property
    def edges(self) -> int:
        """Number of activities."""
        return self.content.activities.height

    def wipe(self) -> None:
        """Remove what earlier runs wrote."""
        text = "MATCH (node:Event) WITH node LIMIT 10000 DETACH DELETE node RETURN count(*) AS removed"
        while self.driver.execute_query(text).records[0]["removed"]:
            pass

    def plain(self, batch_rows: int = 10_000) -> None:
        """Write as any tutorial does: one session, UNWIND of rows, ends found by their key."""
        properties = ", ".join(f"{name}: row.{name}" for name in EVENT.columns)
        with self.driver.session() as session:
            for part in self.content.events.iter_slices(batch_rows):
                text = f"UNWIND $rows AS row CREATE (:Event {{run: $run, {properties}}})"
                session.run(text, {"run": PLAIN, "rows": part.to_dicts()}).consume()
            for kind in ActivityType:
                table = ACTIVITIES[kind]
                properties_of = ", ".join(f"{name}: row.{name}" for name in table.columns)
                rows = self.content.activities.filter(pl.col("type") == str(kind))
                for part in rows.iter_slices(batch_rows):
                    text = (
                        "UNWIND $rows AS row MATCH (source:Event {run: $run, id: row.src}) "
                        "MATCH (target:Event {run: $run, id: row.dst}) "
                        f"CREATE (source)-[:{table.type} {{{properties_of}}}]->(target)"
                    )
                    session.run(text, {"run": PLAIN, "rows": part.to_dicts()}).consume()

    def columns(self, batch_rows: int = BATCH_ROWS) -> None:
        """Write with one list per column instead of one map per row; ends found by their key."""
        listed = ", ".join(f"{name}: ${name}[i]" for name in EVENT.columns)
        with self.driver.session() as session:
            for part in self.content.events.select(EVENT.columns).iter_slices(batch_rows):
                text = f"UNWIND range(0, size($id) - 1) AS i CREATE (:Event {{run: $run, {listed}}})"
                session.run(text, {"run": OURS, **part.to_dict(as_series=False)}).consume()
            for kind in ActivityType:
                table = ACTIVITIES[kind]
                rows = self.content.activities.filter(pl.col("type") == str(kind)).select(table.all_columns)
                for part in rows.iter_slices(batch_rows):
                    values = {"run": OURS, **part.to_dict(as_series=False)}
                    session.run(create_relationships(table), values).consume()

    def by_element_id(self, batch_rows: int = BATCH_ROWS) -> None:
        """Write as `columns`, with ends found by the ids that the server gave to the events."""
        listed = ", ".join(f"{name}: ${name}[i]" for name in EVENT.columns)
        element_ids: dict[int, str] = {}
        with self.driver.session() as session:
            for part in self.content.events.select(EVENT.columns).iter_slices(batch_rows):
                text = (
                    f"UNWIND range(0, size($id) - 1) AS i CREATE (event:Event {{run: $run, {listed}}}) "
                    "RETURN event.id AS id, elementId(event) AS given"
                )
                created = session.run(text, {"run": OURS, **part.to_dict(as_series=False)})
                element_ids.update((row["id"], row["given"]) for row in created)
            for kind in ActivityType:
                table = ACTIVITIES[kind]
                properties = ", ".join(f"{name}: ${name}[i]" for name in table.columns)
                rows = self.content.activities.filter(pl.col("type") == str(kind)).select(table.all_columns)
                for part in rows.iter_slices(batch_rows):
                    values: dict[str, Any] = {"run": OURS, **part.to_dict(as_series=False)}
                    values["src"] = [element_ids[id_] for id_ in values["src"]]
                    values["dst"] = [element_ids[id_] for id_ in values["dst"]]
                    text = (
                        "UNWIND range(0, size($src) - 1) AS i "
                        "MATCH (source) WHERE elementId(source) = $src[i] "
                        "MATCH (target) WHERE elementId(target) = $dst[i] "
                        f"CREATE (source)-[:{table.type} {{{properties}}}]->(target)"
                    )
                    session.run(text, values).consume()

    def stretches(self, batch_rows: int = BATCH_ROWS, sessions: int = 1) -> None:
        """Write as the product does: stretches of events with the activities between them, several sessions."""
        with lease.held(self.driver, OURS, lanes=sessions) as run_lease:
            sync = EventSync(self.run, Writer(self.driver, run_lease), self.content, batch_rows)
            sync.write_nodes(lambda _: None)
            sync.write_rest(lambda _: None)


def run(session: Session) -> None:
    """Make all measurements."""
    opened = opened_run(session)
    with running(session.scratch / "neo4j") as driver:
        prepare_schema(driver)
        content = _middle_epochs(opened, EDGES // (2 if session.quick else 1))
        _measure_ways(session, Rows(driver=driver, run=opened, content=content))
    _details(session, opened)
    _bulk(session, opened)


@contextmanager
def running(home: Path) -> Iterator[neo4j.Driver]:
    """Start a server for as long as it is asked."""
    started = server.start(home, bolt_port=0, http_port=0, heap="1g")
    try:
        with server.driver(started) as driver:
            yield driver
    finally:
        server.stop(home)


@contextmanager
def holding(session: Session, opened: Run, folder: str) -> Iterator[neo4j.Driver]:
    """Start the server whose home ``PAG_BENCH_NEO4J_HOME`` names, or else one that a run is loaded into."""
    given_home = os.environ.get("PAG_BENCH_NEO4J_HOME")
    home = Path(given_home) if given_home else session.new_folder(folder)
    if not given_home:
        load_bulk(opened, home, ports=(0, 0))
        server.stop(home)
    with running(home) as driver:
        yield driver


def opened_run(session: Session) -> Run:
    """Open the run of the store that ``PAG_BENCH_STORE`` names, or that of the bundled `bfs`."""
    store = os.environ.get("PAG_BENCH_STORE")
    return api.open(Path(store) if store else session.fixed("bfs.pag", _build)).run


def _build(path: Path) -> None:
    api.build(SAMPLES / "bfs", path, engine="local")


def _middle_epochs(opened: Run, edges: int) -> Content:
    """Read epochs in the middle of a run that have about so many edges."""
    rows = opened.epochs.select("epoch", "edges").rows()
    first = len(rows) // 3
    chosen: list[int] = []
    for epoch, count in rows[first:] + rows[:first]:
        if chosen and (edges <= 0 or epoch < chosen[-1]):
            break
        chosen.append(epoch)
        edges -= count
    return Reader(opened).read([opened.window(epoch=epoch) for epoch in chosen], Detail.FULL)


def _measure_ways(session: Session, rows: Rows) -> None:
    stick = Yardstick(name="one session, UNWIND of rows", run=rows.plain)
    ways: list[tuple[str, Any]] = [
        ("lists of columns", rows.columns),
        ("ends by elementId", rows.by_element_id),
        ("stretches, 2,000 rows", lambda: rows.stretches(2_000)),
        ("stretches, 5,000 rows", lambda: rows.stretches(5_000)),
        ("stretches, 10,000 rows", lambda: rows.stretches(10_000)),
        ("stretches, 5,000 rows, 2 sessions", lambda: rows.stretches(5_000, 2)),
        ("stretches, 5,000 rows, 4 sessions", lambda: rows.stretches(5_000, 4)),
    ]
    for name, write in ways:
        _measure(session, rows, stick, name, write)
    name = f"the default ({BATCH_ROWS:,} rows, sessions by cores: {default_sessions()})"
    _measure(session, rows, stick, name, lambda: rows.stretches(BATCH_ROWS, default_sessions()), "ratio <= 0.71")


def _measure(session: Session, rows: Rows, stick: Yardstick, name: str, write: Any, target: str = "") -> None:
    session.measure(
        name,
        lambda _: write(),
        before=rows.wipe,
        against=stick,
        items=rows.edges,
        unit="relationships",
        repeat=5,
        most_seconds=120,
        target=target,
    )


def _details(session: Session, opened: Run) -> None:
    """Count what each detail loads; nothing is timed."""
    counts = {}
    for detail in Detail:
        files = ImportFiles(Reader(opened), detail, session.new_folder(f"count-{detail}"))
        files.folder.mkdir(parents=True)
        files.write(GROUP_EDGES, lambda *_: None)
        # An epoch has a node, and leads to the next one, from the run, to its snapshot and on to the commit.
        counts[detail] = files.nodes.total() + files.relationships + 5 * opened.epochs.height
    times = counts[Detail.FULL] / counts[Detail.WAITS]
    values = {str(detail): count for detail, count in counts.items()} | {"full / waits": round(times, 1)}
    session.keep(Figure(name="nodes and relationships by detail", values=values, target="full / waits >= 50"))


def _bulk(session: Session, opened: Run) -> None:
    home = session.scratch / "neo4j-bulk"
    runs = []
    for _ in range(1 if session.quick else 5):
        # A first load finds no database, and a disk that is not busy with what an earlier one left to be written.
        shutil.rmtree(home, ignore_errors=True)
        os.sync()
        runs.append(load_bulk(opened, home, ports=(0, 0)))
        server.stop(home)
    last_load = runs[-1]
    session.keep(
        Figure(
            name="bulk import",
            seconds=[load.import_s for load in runs],
            items=last_load.nodes + last_load.relationships,
            unit="entities",
            target="75,000 entities/s",
            note="time of neo4j-admin with the start of Java, right after the files were written",
            values={"files_s": round(last_load.files_s, 1), "published_after_s": round(last_load.seconds, 1)},
        )
    )


def needs() -> str:
    """Say whether Java is missing."""
    try:
        jars.find_java()
    except PagGraphError as error:
        return error.message
    return ""


BENCH = Bench(
    name="neo4j_load",
    title="Loading into Neo4j",
    about=(
        "The events of some epochs, and the activities between them, are written to the embedded server in"
        " several ways, in turn with the simplest way. Relationships per second include the time for the events."
        " The processor of the server is the limit. Below that, the section gives how much each detail holds of"
        " the whole run, and the bulk import of all of it. The run is the bundled `bfs`, or the one of the store"
        " that `PAG_BENCH_STORE` names."
    ),
    run=run,
    needs=needs,
)
