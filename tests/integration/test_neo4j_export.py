"""Exports: what was committed since the last one, from this process, from tasks, from two schedulers at once."""

from __future__ import annotations

import io
import json
import os
import random
import runpy
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.engines.session import spark_session
from pag_graph.errors import InvalidParameterError, Neo4jError
from pag_graph.neo4j_server import lease as leases
from pag_graph.sinks.neo4j import loader
from pag_graph.sinks.neo4j.connection import Connection, connection_from_environment, connection_to_home
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.export import export_store, record_load
from pag_graph.sinks.neo4j.loader import LoadOptions, load_on_engine, load_run
from pag_graph.sinks.neo4j.settled import read_settled
from pag_graph.sources import convert
from pag_graph.store.history import commits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import neo4j

    from pag_graph.graph.run import Run
    from pag_graph.neo4j_server.server import ServerStatus

pytestmark = pytest.mark.neo4j

ROOT = Path(__file__).parents[2]
PROVE = os.environ.get("PAG_PROVE") == "1"
OPTIONS = LoadOptions(detail=Detail.FULL, group_edges=400, batch_rows=100)


def contents(driver: neo4j.Driver) -> tuple[list[str], list[str]]:
    """Return all that was loaded, without the server's own ids and without what exports record of themselves."""
    nodes = "MATCH (n) WHERE NOT n:Export RETURN labels(n) AS labels, properties(n) AS has"
    between = (
        "MATCH (a)-[r]->(b) WHERE NOT a:Export RETURN type(r) AS type, properties(r) AS has, "
        "properties(a) AS begin, properties(b) AS end"
    )

    def rows(text: str) -> list[str]:
        found = driver.execute_query(text).records
        return sorted(
            repr(
                [(name, sorted(value.items()) if isinstance(value, dict) else value) for name, value in record.items()]
            )
            for record in found
        )

    return rows(nodes), rows(between)


def wipe(driver: neo4j.Driver) -> None:
    driver.execute_query("MATCH (n) DETACH DELETE n")


@pytest.fixture
def connection(neo4j_server: ServerStatus) -> Connection:
    return connection_to_home(neo4j_server.home)


BEFORE, AFTER, LAST = (4, 7, 10) if PROVE else (2, 4, 5)
"""Epochs that are there before an append and after it, and when the run has ended."""


class Growing:
    """A trace that goes on, and the store that is appended to."""

    def __init__(self, folder: Path) -> None:
        self.trace, self.store = folder / "trace", folder / "store"
        shutil.copytree(SAMPLES / "skewed", self.trace)
        self.meta = self.trace / "meta.json"
        self.complete = self.meta.read_text()
        files = sorted((self.trace / "events").glob("*.parquet"))
        self.rows = {file: pq.read_table(file, filters=pc.field("epoch") <= LAST) for file in files}
        self.meta.write_text(self.complete.replace('"complete": true', '"complete": false'))

    def reach(self, epoch: int | None) -> Run:
        """Let the log go up to an epoch, and build."""
        for file, rows in self.rows.items():
            file.unlink(missing_ok=True)
            kept = rows if epoch is None else rows.filter(pc.field("epoch") <= epoch)
            pq.write_table(kept, file)
        if epoch is None:
            self.meta.write_text(self.complete)
        api.build(self.trace, self.store, engine="local", mode="append")
        return api.open(self.store).run


def test_each_export_loads_what_is_new(neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path) -> None:
    log = Growing(tmp_path)
    first = export_store(log.reach(BEFORE), connection, options=OPTIONS)
    assert first.changed
    assert (first.from_version, first.to_version, first.commits) == (None, 0, 1)
    again = export_store(api.open(log.store).run, connection, options=OPTIONS)
    assert not again.changed
    assert again.commits == 0
    assert again.skipped == len(first.epochs)
    grown = log.reach(AFTER)
    second = export_store(grown, connection, options=OPTIONS)
    assert (second.from_version, second.to_version, second.commits) == (0, 1, 1)
    # Rounds that were final are left alone.
    assert set(second.epochs) < set(grown.epochs["epoch"])
    last = log.reach(None)
    export_store(last, connection, options=OPTIONS)
    records = neo4j_driver.execute_query(
        "MATCH (e:Export)-[:EXPORTED]->(r:Run) RETURN e.from_version AS a, e.to_version AS b, e.epochs AS epochs, "
        "e.to_commit IN COLLECT { MATCH (j:Job {run: r.id}) RETURN j.id } AS known ORDER BY b"
    ).records
    assert [(row["a"], row["b"]) for row in records] == [(None, 0), (0, 1), (1, 2)]
    assert all(row["known"] for row in records)
    assert records[1]["epochs"] == list(second.epochs)
    chain = neo4j_driver.execute_query("MATCH p = (:Job)-[:WAS_INFORMED_BY]->(:Job) RETURN count(p) AS jobs").records
    assert chain[0]["jobs"] == 2
    # What is there is what a load of the last state makes, but for the snapshots of former states.
    neo4j_driver.execute_query("MATCH (old:Snapshot {current: false}) DETACH DELETE old")
    exported = contents(neo4j_driver)
    wipe(neo4j_driver)
    load_run(last, neo4j_driver, options=OPTIONS)
    assert contents(neo4j_driver) == exported


def test_a_load_leaves_what_it_loaded_with_times_that_are_times(
    neo4j_driver: neo4j.Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Growing(tmp_path)
    log.reach(BEFORE)
    monkeypatch.chdir(tmp_path)
    run = api.open(log.store.name).run
    record_load(neo4j_driver, run, load_run(run, neo4j_driver, options=OPTIONS))
    (left,) = neo4j_driver.execute_query(
        "MATCH (e:Export)-[:EXPORTED]->(:Run) RETURN e.command AS command, e.store AS store, e.epochs AS epochs, "
        "e.to_commit AS commit"
    ).records
    assert left.data() == {
        "command": "load",
        "store": str(log.store),
        "epochs": run.epochs["epoch"].to_list(),
        "commit": run.info.commit_id,
    }
    (job,) = neo4j_driver.execute_query(
        "MATCH (job:Job {id: $id}) RETURN job.committed AS at", id=left["commit"]
    ).records
    [commit] = commits(run.info)
    assert job["at"].to_native() == datetime.fromisoformat(commit.committed)


class Watch(threading.Thread):
    """Looks all the time at which epochs are visible, and whether each has the whole of a path.

    It reads as the product's queries do: a bare read can see a part of a transaction while the server applies it.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(daemon=True)
        self.connection, self.ended = connection, threading.Event()
        self.looks: list[set[int]] = []
        self.broken: list[dict[str, Any]] = []
        self.mixed = 0

    def run(self) -> None:
        text = (
            "MATCH (epoch:Epoch {published: true})-[:HAS_SNAPSHOT]->(shown:Snapshot {current: true}) "
            "OPTIONAL MATCH (shown)-[:CONTAINS]->(step:CriticalStep) "
            "WITH epoch, shown, sum(step.duration_ns) AS path_ns "
            "RETURN epoch.epoch AS epoch, epoch.end_ns - epoch.start_ns AS span_ns, shown.span_ns AS shown_ns, path_ns"
        )
        with self.connection.open() as driver:
            while not self.ended.is_set():
                settled = read_settled(driver, lambda transaction: list(transaction.run(text)))
                if not settled.is_whole:
                    self.mixed += 1
                    continue
                self.looks.append({row["epoch"] for row in settled.value})
                self.broken += [dict(row) for row in settled.value if len({*row.values()[1:]}) > 1]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join(60)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("exchange_edges", [OPTIONS.exchange_edges, 0], ids=["exchanged", "taken back"])
def test_what_was_visible_stays_so_while_an_append_is_exported(
    neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path, exchange_edges: int
) -> None:
    # An epoch is a group of its own.
    options = replace(OPTIONS, exchange_edges=exchange_edges, group_edges=1)
    log = Growing(tmp_path)
    first = set(export_store(log.reach(BEFORE), connection, options=options).epochs)
    grown = log.reach(AFTER)
    reported: list[set[int]] = []

    def look(*_: object) -> None:
        # Other tests leave runs of their own in the server.
        query = "MATCH (epoch:Epoch {run: $run, published: true}) RETURN epoch.epoch AS epoch"
        rows = neo4j_driver.execute_query(query, run=grown.info.run["run_id"]).records
        reported.append({row["epoch"] for row in rows})

    with Watch(connection) as watch:
        second = export_store(grown, connection, options=options, progress=look)
    whole = set(grown.epochs["epoch"])
    assert first & set(second.epochs), "nothing was there that an append could change"
    assert watch.looks
    assert not watch.broken
    # What is new shows before all of it is loaded.
    assert any(seen - first and seen < whole for seen in reported)
    if exchange_edges:
        assert all(first <= seen for seen in watch.looks)
        assert watch.mixed < len(watch.looks)
    neo4j_driver.execute_query("MATCH (old:Snapshot {current: false}) DETACH DELETE old")
    exported = contents(neo4j_driver)
    wipe(neo4j_driver)
    load_run(grown, neo4j_driver, options=options)
    assert contents(neo4j_driver) == exported


def test_a_read_that_an_append_interrupts_is_done_again(
    neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path
) -> None:
    log = Growing(tmp_path)
    export_store(log.reach(BEFORE), connection, options=OPTIONS)
    grown = log.reach(AFTER)
    text = "MATCH (e:Epoch {run: $run, published: true})-[:HAS_SNAPSHOT]->(s {current: true}) RETURN e.epoch, s.span_ns"
    values = {"run": grown.info.run["run_id"]}
    exported: list[bool] = []

    def twice(transaction: neo4j.ManagedTransaction) -> tuple[list[list[Any]], list[list[Any]]]:
        before = transaction.run(text, values).values()
        if not exported:
            exported.append(export_store(grown, connection, options=OPTIONS).changed)
        return sorted(before), sorted(transaction.run(text, values).values())

    settled = read_settled(neo4j_driver, twice)
    assert exported == [True]
    assert settled.is_whole
    assert settled.value[0] == settled.value[1]
    assert [epoch for epoch, _ in settled.value[0]] == grown.epochs["epoch"].to_list()


def test_what_a_killed_load_saw_of_an_earlier_commit_goes(
    neo4j_driver: neo4j.Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One group of epochs, so that those are in it that the next commit changes.
    log, whole = Growing(tmp_path), LoadOptions(detail=Detail.FULL)
    with monkeypatch.context() as patch:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(loader, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            load_run(log.reach(BEFORE), neo4j_driver, options=whole)
    unshown = "MATCH (snapshot:Snapshot) WHERE NOT (snapshot)<-[:HAS_SNAPSHOT]-() RETURN count(*) AS snapshots"
    assert neo4j_driver.execute_query(unshown).records[0]["snapshots"]
    run = log.reach(None)
    load_run(run, neo4j_driver, options=whole)
    assert neo4j_driver.execute_query(unshown).records[0]["snapshots"] == 0
    loaded = contents(neo4j_driver)
    wipe(neo4j_driver)
    load_run(run, neo4j_driver, options=whole)
    assert contents(neo4j_driver) == loaded


def test_an_export_that_is_killed_hides_nothing(
    neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path
) -> None:
    log = Growing(tmp_path)
    first = set(export_store(log.reach(BEFORE), connection, options=OPTIONS).epochs)
    grown = log.reach(AFTER)
    text = (
        "import sys; from pathlib import Path; from dataclasses import replace; from pag_graph.graph.run import Run\n"
        "from pag_graph.sinks.neo4j.connection import connection_from_environment\n"
        "from pag_graph.sinks.neo4j.export import export_store\n"
        "from pag_graph.sinks.neo4j.detail import Detail\n"
        "from pag_graph.sinks.neo4j.loader import LoadOptions\n"
        "options = LoadOptions(detail=Detail.FULL, group_edges=400, batch_rows=40)\n"
        "run, connection = Run(Path(sys.argv[1])), connection_from_environment()\n"
        "print('ready', flush=True)\n"
        "export_store(run, connection, options=options)\n"
    )
    chance, killed = random.Random(7), 0
    with Watch(connection) as watch:
        for _ in range(20 if PROVE else 2):
            with command("-c", text, log.store, connection=connection) as process:
                assert process.stdout
                assert process.stdout.readline() == "ready\n"
                try:
                    process.wait(chance.uniform(0.0, 1.0))
                except subprocess.TimeoutExpired:
                    process.kill()
                    killed += 1
    assert killed
    assert not watch.broken
    assert all(first <= seen for seen in watch.looks)
    export_store(grown, connection, options=OPTIONS)
    neo4j_driver.execute_query("MATCH (old:Snapshot {current: false}) DETACH DELETE old")
    exported = contents(neo4j_driver)
    wipe(neo4j_driver)
    load_run(grown, neo4j_driver, options=OPTIONS)
    assert contents(neo4j_driver) == exported


def test_only_final_epochs_if_told(neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path) -> None:
    run = Growing(tmp_path).reach(BEFORE + 1)
    done = export_store(run, connection, final_only=True)
    last = run.info.run["last_closed_epoch"]
    assert done.epochs == tuple(epoch for epoch in run.epochs["epoch"] if epoch <= last)
    assert len(done.epochs) < run.epochs.height
    (row,) = neo4j_driver.execute_query("MATCH (e:Epoch) RETURN max(e.epoch) AS last").records
    assert row["last"] == last


class Threads:
    """An engine whose tasks run at the same time, in threads; each is done twice, as a scheduler may do."""

    name = "threads"

    def __init__(self) -> None:
        self.tasks = 0

    def map(
        self, task: Callable[[Any], Any], items: Sequence[Any], *, label: str, progress: Callable[[str, int, int], None]
    ) -> list[Any]:
        del label, progress
        self.tasks += len(items)
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(task, items))
        assert task(items[0]).counts == done[0].counts
        return done

    def stitch(self, staging: Path) -> None:
        raise NotImplementedError(staging)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("epochs", [None, [0, 1, 3]], ids=["all", "some"])
@pytest.mark.parametrize("detail", [Detail.WAITS, Detail.CRITICAL, Detail.FULL])
def test_tasks_load_what_one_process_loads(
    neo4j_driver: neo4j.Driver, connection: Connection, first_rounds: Run, detail: Detail, epochs: list[int] | None
) -> None:
    options = LoadOptions(detail=detail, group_edges=100, batch_rows=50)
    load_run(first_rounds, neo4j_driver, epochs=epochs, options=options)
    expected = contents(neo4j_driver)
    wipe(neo4j_driver)
    engine = Threads()
    done = load_on_engine(first_rounds, connection, engine, epochs=epochs, options=options)
    assert engine.tasks > 6
    assert contents(neo4j_driver) == expected
    assert list(done.epochs) == (epochs or first_rounds.epochs["epoch"].to_list())
    # Once more, over what is there.
    load_on_engine(first_rounds, connection, engine, epochs=epochs, again=True, options=options)
    assert contents(neo4j_driver) == expected


@pytest.mark.parametrize("log", [ROOT / "tests" / "data" / "kineto", SAMPLES / "spans"], ids=["kineto", "spans"])
def test_tasks_load_what_others_than_its_owners_show(
    neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path, log: Path
) -> None:
    """With the detail critical, neighbours of a path that lie in another task's windows were left out."""
    convert(log, tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    run = api.open(tmp_path / "store").run
    options = LoadOptions(detail=Detail.CRITICAL, group_edges=300)

    def loaded(load: Callable[[], object]) -> tuple[list[str], list[str]]:
        wipe(neo4j_driver)
        load()
        return contents(neo4j_driver)

    expected = loaded(lambda: load_run(run, neo4j_driver, options=options))
    engine = Threads()
    assert loaded(lambda: load_on_engine(run, connection, engine, options=options)) == expected
    assert engine.tasks > 6


def test_tasks_load_the_state_that_was_asked_for(
    neo4j_driver: neo4j.Driver, connection: Connection, tmp_path: Path
) -> None:
    """What was committed before tasks began came into windows of the state before."""
    log = Growing(tmp_path)
    asked = log.reach(BEFORE)
    load_run(asked, neo4j_driver, options=OPTIONS)
    expected = contents(neo4j_driver)
    wipe(neo4j_driver)

    class Late(Threads):
        def map(self, task, items, **more):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN202
            log.reach(AFTER)
            return super().map(task, items, **more)

    load_on_engine(asked, connection, Late(), options=OPTIONS)
    assert contents(neo4j_driver) == expected


def surroundings(connection: Connection) -> dict[str, str]:
    """Return the variables that say where to load, and with which Python."""
    return {
        "NEO4J_URI": connection.uri,
        "NEO4J_USERNAME": connection.user,
        "NEO4J_PASSWORD": connection.password,
        "PYSPARK_PYTHON": sys.executable,
    }


def command(*arguments: object, connection: Connection) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **surroundings(connection)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_schedulers_at_once_do_what_one_does(
    neo4j_driver: neo4j.Driver, connection: Connection, first_rounds: Run
) -> None:
    load_run(first_rounds, neo4j_driver, options=LoadOptions(detail=Detail.WAITS))
    expected = contents(neo4j_driver)
    wipe(neo4j_driver)
    arguments = ("-m", "pag_graph.cli.app", "neo4j", "export", first_rounds.info.path, "--format", "json")
    code = "from pag_graph.cli.app import main; main()"
    both = [command("-c", code, *arguments[2:], connection=connection) for _ in range(2)]
    answers = []
    for process in both:
        out, error = process.communicate(timeout=900)
        assert process.returncode == 0, error
        answers.append(json.loads(out))
    loaded = [answer["epochs"] for answer in answers]
    assert sorted(map(len, loaded)) == [0, first_rounds.epochs.height]
    assert sorted(answer["changed"] for answer in answers) == [False, True]
    assert contents(neo4j_driver) == expected


def in_own_process(arguments: list[str], connection: Connection) -> str:
    """Run a job as a user does; return all that it said."""
    with command(*arguments, connection=connection) as process:
        out, error = process.communicate(timeout=900)
    assert process.returncode == 0, error
    assert connection.password not in error
    return out


def in_this_process(arguments: list[str], connection: Connection) -> str:
    """Run a job on the session of Spark that other tests of this process have as well; return what it said."""
    spark_session(master="local[2]", quick=True)
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.setattr(sys, "argv", arguments)
        for name, value in surroundings(connection).items():
            patch.setenv(name, value)
        code: object = 0
        try:
            runpy.run_path(arguments[0], run_name="__main__")
        except SystemExit as ended:
            code = ended.code
    assert not code, said.getvalue()
    return said.getvalue()


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark", "ignore::UserWarning:pyspark")
def test_the_job_loads_from_sparks_tasks(neo4j_driver: neo4j.Driver, connection: Connection, first_rounds: Run) -> None:
    load_run(first_rounds, neo4j_driver, options=LoadOptions(detail=Detail.FULL))
    expected = contents(neo4j_driver)
    wipe(neo4j_driver)
    job = ROOT / "spark_jobs" / "export_neo4j.py"
    run = in_own_process if PROVE else in_this_process
    out = run([str(job), str(first_rounds.info.path), "--detail", "full"], connection)
    answer = json.loads(out.splitlines()[-1])
    assert answer["epochs"] == first_rounds.epochs["epoch"].to_list()
    assert connection.password not in out
    assert contents(neo4j_driver) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "condition"),
    [(["no-such-store"], 4, "STORE_NOT_FOUND"), (["STORE", "--uri", "http://x"], 2, "INVALID_PARAMETER")],
)
def test_the_job_says_what_went_wrong(
    connection: Connection, skewed: Run, arguments: list[str], code: int, condition: str
) -> None:
    job = ROOT / "spark_jobs" / "export_neo4j.py"
    given = [str(skewed.info.path) if word == "STORE" else word for word in arguments]
    with command(job, *given, "--local", connection=connection) as process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == code
    assert json.loads(out)["error"] == condition


# ---- who may write


def test_a_load_that_was_overtaken_cannot_write(neo4j_driver: neo4j.Driver, skewed: Run) -> None:
    """A load stops for longer than its lease; another one does the work; the first must not go on."""
    load_run(skewed, neo4j_driver, epochs=[3], options=OPTIONS)
    expected = contents(neo4j_driver)
    wipe(neo4j_driver)
    options = LoadOptions(detail=Detail.FULL, batch_rows=50, lease_s=0.2)
    overtaking = False

    def overtake(_: str, done: int, total: int) -> None:
        nonlocal overtaking
        if not overtaking and done > total // 3:
            overtaking = True
            load_run(skewed, neo4j_driver, epochs=[3], options=OPTIONS)

    with pytest.raises(Neo4jError, match="has taken over"):
        load_run(skewed, neo4j_driver, epochs=[3], options=options, progress=overtake)
    assert contents(neo4j_driver) == expected


def test_the_lease_of_a_process_that_has_ended_is_taken_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        holder = f"{leases._process(process.pid)}/x"
        assert not leases.has_ended(holder)
        process.kill()
    assert leases.has_ended(holder)
    assert not leases.has_ended(f"another-machine:{process.pid}:1/x")
    assert not leases.has_ended("unknown:1:1/x")
    assert not leases.has_ended("")


# ---- how to reach a server


def test_the_environment_says_where_to_load(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush\n", encoding="utf-8")
    given = connection_from_environment(
        environment={"NEO4J_URI": "neo4j+s://db.example:7687", "NEO4J_PASSWORD_FILE": str(secret)}
    )
    assert (given.uri, given.user, given.password, given.ca) == ("neo4j+s://db.example:7687", "neo4j", "hush", None)
    assert "hush" not in repr(given)
    with given.open() as driver:
        assert driver.encrypted
    ca = ROOT / "pyproject.toml"
    with pytest.raises(InvalidParameterError, match="no such file"):
        connection_from_environment("bolt://x", {"NEO4J_PASSWORD": "x", "NEO4J_CA": str(tmp_path / "none")})
    assert connection_from_environment("bolt://x", {"NEO4J_PASSWORD": "x", "NEO4J_CA": str(ca)}).ca == str(ca)
    for address in ("", "localhost:7687", "http://localhost:7474"):
        with pytest.raises(InvalidParameterError, match="not an address"):
            connection_from_environment(address, {"NEO4J_PASSWORD": "x"})
    with pytest.raises(Neo4jError, match="no password"):
        connection_from_environment("bolt://x", {})


def test_no_epoch_is_lost_between_tasks(skewed: Run) -> None:
    """The yardstick of the tests above: the store is whole, so that equal contents mean something."""
    rows = skewed.epochs
    assert rows["start_ns"][1:].to_list() == rows["end_ns"][:-1].to_list()
    assert rows.select(pl.col("epoch").diff().drop_nulls() == 1).to_series().all()
