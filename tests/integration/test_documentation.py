"""Every block of code in README and docs runs on the samples, in order, as printed, each page in a fresh folder."""

from __future__ import annotations

import ast
import configparser
import doctest
import json
import os
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import pag_graph
from pag_graph import samples
from pag_graph.analyses import all_analyses
from pag_graph.engines.session import GRAPHFRAMES_JAR_VARIABLE
from pag_graph.motif.filters import parse_filter
from tests.support.sampling import draw_some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import neo4j
    from _pytest.mark import ParameterSet

    from pag_graph.neo4j_server.server import ServerStatus

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests" / "data" / "spark"
JOBS = 4
"""Jobs of Spark on a page that are run, without ``PAG_PROVE=1``."""
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))

PLACES: dict[str, dict[str, str]] = {
    "README.md": {
        "LOG": "log of five jobs",
        "eventlogs/app-20260110120000-0001": "log",
        "last-week.pag": "store",
        ".pag/skewed.pag": "store",
        "recorded.trace": "trace",
        "traces.json": "spans",
        "last-week.json": "spans",
        "w1.pag": "store",
        "w2.pag": "store of bfs",
        "w4.pag": "store of triangles",
    },
    "docs/advice.md": {"run.trace": "trace of bfs"},
    "docs/analyses.md": {"run.trace": "trace", "run.pag": "store"},
    "docs/cli.md": {"run.pag": "store", "last-good.pag": "store", "new": "log", "base": "log"},
    "docs/cypher.md": {"run.pag": "store"},
    "docs/export.md": {"run.pag": "store"},
    "docs/graphframes.md": {"run.pag": "store"},
    "docs/live.md": {"run.trace": "trace"},
    "docs/motifs.md": {"run.pag": "store"},
    "docs/neo4j.md": {"run.pag": "store"},
    "docs/predictions.md": {"run.pag": "store"},
    "docs/rescaling.md": {
        **{f"{kind}{number}.pag": "store" for kind in ("base", "fork") for number in (1, 2, 3, 4)},
        "pag_graph/samples/elastic": "trace of elastic",
    },
    "docs/standing.md": {"run.trace": "trace"},
    "docs/scaling.md": {"w1.pag": "store", "w2.pag": "store of bfs", "w4.pag": "store of triangles"},
    "docs/spark-cores.md": {"LOG": "log"},
    "docs/spans.md": {
        **dict.fromkeys(("traces.json", "last-week.json", "folder/traces.json"), "spans"),
        "pag_graph/samples/spans/traces.json": "spans",
    },
    "docs/spark.md": {
        **dict.fromkeys(("eventlogs/app-20261121183148-0000", "app-1", "new", "base", "a", "b", "c", "d", "e"), "log"),
    },
    "docs/torch.md": {"traces": "training job"},
    "docs/workbench.md": {"run.pag": "store"},
}
"""What is there before a page is followed; all else its own commands make."""

LOADED = {"docs/cypher.md"}
"""Pages of queries that begin with a database that holds run.pag in full."""


WITH_JAR = {"docs/graphframes.md"}
"""Pages whose statements `test_graphframes.py` runs, where GraphFrames' jar is."""


class NotHere(NamedTuple):
    """A command or statement that is not run, by what it begins with, and why."""

    page: str
    begins: str
    because: str


NOT_HERE = (
    NotHere("README.md", "make demo", "makes an environment; its steps are commands that pages show"),
    NotHere("README.md", "make test", "runs this test"),
    NotHere("README.md", "pip install", "installs; test_spark_submit.py runs an installed wheel"),
    NotHere("README.md", "pag record", "compiles Rust for minutes; test_record.py runs it"),
    NotHere(
        "README.md",
        "pag latency",
        "needs a program that says when its input is due; test_due_times.py has simulated ones",
    ),
    NotHere("README.md", "pag rescale", "needs workers that come or go; docs/rescaling.md has some"),
    NotHere("docs/advice.md", "pag advise-evaluate", "needs eight recordings; test_advise_evaluate.py has some"),
    NotHere("docs/advice.md", "pag record", "compiles Rust for minutes; test_record.py runs it"),
    NotHere("docs/advice.md", "python -m bench", "runs programs for minutes"),
    NotHere("docs/differential.md", "python -m bench", "runs programs for minutes"),
    NotHere(
        "docs/latency.md",
        "pag latency",
        "needs a program that says when its input is due; test_due_times.py has simulated ones",
    ),
    NotHere("docs/latency.md", "pag load-curve", "likewise"),
    NotHere("docs/live.md", "pag follow eventlogs/app-1", "ends as its log does; test_follow_event_logs.py has one"),
    NotHere("docs/live.md", "pag ongoing app.pag", "likewise"),
    NotHere("docs/live.md", "pag convert eventlogs/app-1", "likewise"),
    NotHere("docs/live.md", "umask", "a command of the shell; test_sent_traces.py makes a token"),
    NotHere("docs/live.md", "openssl", "another program; test_wire.py makes certificates"),
    NotHere("docs/live.md", "pag follow received.trace", "listens until a program sends; test_sent_traces.py has one"),
    NotHere("docs/live.md", "pag replay run.trace --to tcp", "needs who listens; likewise"),
    NotHere("docs/neo4j.md", "pag neo4j rescale", "needs workers that come or go; test_neo4j_answers.py has some"),
    NotHere("docs/neo4j.md", "pag neo4j query analyses/rescalings", "likewise"),
    NotHere("docs/latency.md", "adjustable -w 1", "compiles Rust for minutes; tests of the adapter run it"),
    NotHere("docs/latency.md", "pag latency open.trace", "reads what is not recorded"),
    NotHere(
        "docs/rescaling.md", "pag record", "compiles Rust for minutes; test_rescaling_elastic.py has the recording"
    ),
    NotHere("docs/neo4j.md", "pag neo4j stop", "the server is that of other tests; test_neo4j_bulk.py stops one"),
    NotHere("docs/neo4j.md", "pag neo4j load run.pag --detail full --bulk", "likewise; test_neo4j_bulk.py runs it"),
    NotHere("docs/neo4j.md", "pag neo4j copy", "likewise; test_neo4j_bulk.py makes a copy"),
    NotHere("docs/neo4j.md", "pag neo4j start --home /srv", "starts the copy"),
    NotHere("docs/neo4j.md", "from airflow.sdk", "needs Airflow"),
    NotHere("docs/neo4j.md", "@dag", "needs Airflow"),
    NotHere("docs/neo4j.md", "keep_neo4j_current()", "needs Airflow"),
    NotHere("docs/reliability.md", "PAG_PROVE=1", "kills for an hour; test_kills.py tries a part of it"),
    NotHere("docs/reliability.md", ".venv/bin/python -m pytest", "runs the tests beside this one"),
    NotHere("docs/predictions.md", "python -m bench", "measures for hours"),
    NotHere("docs/scaling.md", "pag record", "compiles Rust for minutes; test_record.py runs it"),
    NotHere("docs/scaling.md", "pag build w1.trace", "builds what is not recorded"),
    NotHere("docs/spark-cores.md", "python -m bench", "measures for hours"),
    NotHere("docs/spark-itself.md", "python -m bench", "runs Spark for minutes"),
    NotHere("docs/spark-truth.md", "python -m bench", "runs Spark for an hour"),
    NotHere("docs/spark.md", "pag spark one-core", "needs two logs of a program; test_spark_crowding.py has some"),
    NotHere("docs/spark.md", "pag mcp", "serves until its input ends; test_spark_assistant.py does"),
    NotHere("docs/workbench.md", "pip install", "installs; test_spark_submit.py runs an installed wheel"),
    NotHere("docs/workbench.md", "pag serve", "serves until somebody ends it; test_workbench.py does"),
    NotHere("docs/spark-cores.md", "python bench/", "measures for hours"),
)
NEEDS_JAR = (NotHere("README.md", "graph = pag.graphframe", "needs GraphFrames' jar"),)
"""Run where a copy of GraphFrames' jar is named. Its own page: `test_graphframes.py` runs the recipes there."""

ONLY_SHOWN = {
    "mermaid": "a picture",
    "csv": "the smallest example, which a test below follows",
    "cron": "a line of a table of jobs",
    "rust": "a piece of a program; `make adapter` compiles the whole ones of the crate",
    "text": "an answer of measured runs, or a drawing, unless it begins with a command",
}
"""Blocks that are not run."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code: where it begins, its language and text, and the last line of prose before it."""

    page: str
    line: int
    language: str
    text: str
    before: str


def blocks_of(page: str) -> list[Block]:
    """Return all fenced blocks of a page, in order."""
    found: list[Block] = []
    fence: int | None = None
    language, before, inside = "", "", list[str]()
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            if fence is not None:
                inside.append(line)
            elif line:
                before = line
        elif fence is None:
            fence, language, inside = number, line[3:], []
        else:
            found.append(Block(page=page, line=fence, language=language, text="\n".join(inside), before=before))
            fence = None
    assert fence is None, f"{page}: the block of line {fence} has no end"
    return found


def left_out(page: str, text: str) -> bool:
    """Whether a command or statement is in one of the lists above."""
    jar = bool(os.environ.get(GRAPHFRAMES_JAR_VARIABLE))
    lists = NOT_HERE if jar else NOT_HERE + NEEDS_JAR
    return any(each.page == page and text.startswith(each.begins) for each in lists)


def commands_of(block: Block) -> Iterator[list[str]]:
    """Give the commands of a block for a shell that are run, as words."""
    for line in block.text.replace("\\\n", " ").splitlines():
        # A command with others after it stands for itself.
        for part in line.partition("  #")[0].split(" && "):
            if part.strip() and not left_out(block.page, part.strip()):
                yield shlex.split(part, comments=True)


def shell_commands(page: str) -> Iterator[list[str]]:
    """Give the commands of a page that are run."""
    return (words for block in blocks_of(page) if block.language == "sh" for words in commands_of(block))


def builds_on_spark(words: Sequence[str]) -> bool:
    """Whether a command starts a session of Spark."""
    return words[0] == "spark-submit" or (words[1] == "build" and "local" not in words)


def needs_spark(page: str) -> bool:
    """Whether a page starts a session of Spark."""
    blocks = blocks_of(page)
    return any(map(builds_on_spark, shell_commands(page))) or (
        page not in WITH_JAR and any("spark" in block.text for block in blocks if block.language == "python")
    )


def needs_neo4j(page: str) -> bool:
    """Whether a page asks a server of Neo4j, which is a fixture."""
    return page in LOADED or any(
        words[:2] == ["pag", "neo4j"]
        for block in blocks_of(page)
        for words in (commands_of(block) if block.language == "sh" else [block.text.split()[1:3]])
    )


def start_spark() -> None:
    """Start the session that all take that need one; it is shared with other modules, and ends with the process."""
    from pag_graph.engines.session import spark_session

    spark_session(master="local[2]", quick=True)


@dataclass(kw_only=True)
class Reader:
    """Someone who follows a page: a folder, a shell without a process, and a Python session."""

    page: str
    folder: Path
    run_pag: Callable[..., tuple[int, str, str]]
    capsys: pytest.CaptureFixture[str]
    start_neo4j: Callable[[], None]
    jobs: list[list[str]]
    """Jobs of Spark that are run; others are like them."""
    names: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def follow(self, block: Block) -> None:
        """Do what a block says; what goes wrong is noted, with its place."""
        does: dict[str, Callable[[Block], object]] = {
            "sh": self.shell,
            "python": self.python,
            "text": self.answer,
            "sql": lambda each: [parse_filter(line, {"least_ns": 1}) for line in each.text.splitlines()],
            "json": lambda each: json.loads(each.text),
            "toml": lambda each: tomllib.loads(each.text),
            "ini": lambda each: configparser.ConfigParser().read_string(each.text),
            "cypher": self.cypher,
        }
        if block.language not in does:
            assert block.language in ONLY_SHOWN, f"{block.page}:{block.line}: nobody knows what to do with it"
            return
        try:
            does[block.language](block)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever a block raises is what the test is about)
            self.failures.append(f"{block.page}:{block.line}: {type(error).__name__}: {error}")

    def start_spark(self) -> None:
        assert needs_spark(self.page), f"{self.page} runs where no other test has a session of Spark"
        start_spark()

    def cypher(self, block: Block) -> None:
        from pag_graph.neo4j_server import server

        self.start_neo4j()
        with server.driver(server.status()) as driver:
            driver.execute_query(block.text)

    def shell(self, block: Block) -> None:
        for words in commands_of(block):
            if words[0] != "spark-submit" or words in self.jobs:
                self.command(words)

    def command(self, words: Sequence[str]) -> str:
        """Run one command; return what it said. A failure is noted, and the page goes on."""
        words, target = list(words), None
        if ">>" in words:
            words, target = words[: words.index(">>")], words[-1]
        if "RUN" in " ".join(words):
            run = pag_graph.open(self.folder / "run.pag").run.info.run["run_id"]
            words = [word.replace("RUN", run) for word in words]
        program, *arguments = words
        if builds_on_spark(words):
            self.start_spark()
        if program == "pag":
            if arguments[0] == "neo4j":
                self.start_neo4j()
            code, out, err = self.run_pag(*arguments)
        else:
            assert program == "spark-submit", f"nobody knows how to run {program}"
            code, out, err = self.submit(arguments)
        # Analyses that look for violations end with 9 where they found some.
        alarms = {each.name for each in all_analyses() if each.alarm}
        is_alarm = code == 9 and arguments[0] in alarms
        # A machine that has other work to do may be late; the replay is whole all the same.
        is_late = code == 1 and arguments[0] == "replay" and "Too late for measuring" in err
        if code and not (is_alarm or is_late):
            self.failures.append(f"{self.page}: {' '.join(words)}: exit code {code}: {err or out}")
        # An example that finds nothing, or an edge twice, shows nothing.
        if out.startswith("No match") or "same edge" in err:
            self.failures.append(f"{self.page}: {' '.join(words)}: {out}{err}")
        if target is not None:
            with (self.folder / target).open("a", encoding="utf-8") as file:
                file.write(out)
        return out

    def submit(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        """Run a job in this process, on its Spark session."""
        before, sys.argv = sys.argv, list(arguments)
        code = 0
        try:
            runpy.run_path(str(self.folder / arguments[0]), run_name="__main__")
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.argv = before
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def python(self, block: Block) -> None:
        if block.text.startswith(">>>"):
            for example in doctest.DocTestParser().get_examples(block.text + "\n"):
                self.session(example.source, example.want)
            return
        for statement in ast.parse(block.text).body:
            source = ast.get_source_segment(block.text, statement) or ""
            if isinstance(statement, ast.FunctionDef) and statement.decorator_list:
                source = "\n".join(
                    block.text.splitlines()[statement.decorator_list[0].lineno - 1 : statement.end_lineno]
                )
            if not left_out(self.page, source):
                self.session(source, "")

    def session(self, source: str, want: str) -> None:
        """Run a statement in the page's session, and compare what it prints where the page shows it."""
        if "spark" in source:
            self.start_spark()
        exec(compile(source, self.page, "single" if want else "exec"), self.names)
        printed = self.capsys.readouterr().out
        assert not want or printed == want, f"{source}prints\n{printed}and not\n{want}"

    def answer(self, block: Block) -> None:
        """Run the command that a block begins with, and compare its answer."""
        first, _, shown = block.text.partition("\n")
        if first.startswith("$ pag "):
            said = self.command(shlex.split(first[2:]))
            assert said.rstrip("\n") == shown, f"{first[2:]} says\n{said}"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return what pages begin with."""
    stores = tmp_path_factory.mktemp("documentation")
    for name in ("skewed", "bfs", "triangles"):
        pag_graph.build(samples.path(name), stores / f"{name}.pag", engine="local")
    return {
        "store": stores / "skewed.pag",
        "store of bfs": stores / "bfs.pag",
        "store of triangles": stores / "triangles.pag",
        "trace": samples.path("skewed"),
        "trace of bfs": samples.path("bfs"),
        "trace of elastic": samples.path("elastic"),
        "log": LOGS / "two-jobs.zstd",
        "log of five jobs": LOGS / "cores" / "cores-many-jobs-1.zstd",
        "spans": samples.FOLDER / "spans" / "traces.json",
        "training job": ROOT / "docs" / "examples" / "torch",
    }


@pytest.fixture
def follow_page(
    places: dict[str, Path],
    tmp_path: Path,
    run_pag: Callable[..., tuple[int, str, str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., None]:
    def follow(page: str, start_neo4j: Callable[[], None]) -> None:
        # Who reads has a checkout, and what the table says.
        for name in ("docs", "spark_jobs"):
            (tmp_path / name).symlink_to(ROOT / name)
        for name, what in PLACES.get(page, {}).items():
            place = tmp_path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if places[what].is_dir() else shutil.copyfile)(places[what], place)
        monkeypatch.chdir(tmp_path)
        jobs = draw_some([words for words in shell_commands(page) if words[0] == "spark-submit"], JOBS)
        reader = Reader(page=page, folder=tmp_path, run_pag=run_pag, capsys=capsys, start_neo4j=start_neo4j, jobs=jobs)
        if page in LOADED:
            reader.command(shlex.split("pag neo4j load run.pag --detail full"))
        for block in blocks_of(page):
            if page not in WITH_JAR or block.language != "python":
                reader.follow(block)
        assert not reader.failures, "\n\n".join(reader.failures)

    return follow


def _cases(pages: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(page, marks=[pytest.mark.spark] if needs_spark(page) else []) for page in pages]


def _no_neo4j() -> None:
    message = "this page is followed without a server of Neo4j"
    raise AssertionError(message)


@pytest.mark.parametrize("page", _cases(page for page in PAGES if not needs_neo4j(page)))
@pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark", "ignore::UserWarning:pyspark")
def test_a_page_can_be_followed(page: str, follow_page: Callable[..., None]) -> None:
    follow_page(page, _no_neo4j)


@pytest.mark.neo4j
@pytest.mark.parametrize("page", _cases(page for page in PAGES if needs_neo4j(page)))
@pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark", "ignore::UserWarning:pyspark")
def test_a_page_about_neo4j_can_be_followed(
    page: str,
    follow_page: Callable[..., None],
    neo4j_server: ServerStatus,
    neo4j_driver: neo4j.Driver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del neo4j_driver  # The database is empty.

    def start_neo4j() -> None:
        assert neo4j_server.home.name == "neo4j"
        monkeypatch.setenv("PAG_HOME", str(neo4j_server.home.parent))

    follow_page(page, start_neo4j)


def test_what_is_left_out_is_there() -> None:
    for each in NOT_HERE + NEEDS_JAR:
        assert each.because
        assert any(each.begins in block.text for block in blocks_of(each.page)), each
    assert set(PLACES) | LOADED <= set(PAGES)


def test_the_smallest_example_is_what_the_page_says(tmp_path: Path) -> None:
    for block in blocks_of("docs/generic.md"):
        if block.language == "csv":
            named = re.search(r"`(\S+\.csv)`", block.before)
            assert named is not None
            (tmp_path / named[1]).write_text(block.text + "\n", encoding="utf-8")
    pag_graph.convert(tmp_path, tmp_path / "trace")
    pag_graph.build(tmp_path / "trace", tmp_path / "store", engine="local")
    path = pag_graph.open(tmp_path / "store").critical_path().steps
    # Between its parts are steps that take no time.
    found = [(step["type"], step["duration_ns"]) for step in path.to_pylist() if step["duration_ns"]]
    assert found == [("io", 4_000_000), ("data_message", 1_000_000), ("processing", 4_000_000)]


def test_commands_within_sentences_exist(run_pag: Callable[..., tuple[int, str, str]]) -> None:
    helps: dict[tuple[str, ...], str] = {}
    wrong = []
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for span in re.findall(r"`(pag [^`]+)`", prose):
            words = span.split()[1:]
            name = tuple(words[: 2 if words[0] == "neo4j" else 1])
            # The command of an analysis that a reader may write.
            if (
                name == ("longest-waits",)
                or any(not re.fullmatch(r"[a-z0-9-]+", word) for word in name)
                or name[0].startswith("-")
            ):
                continue
            if name not in helps:
                code, text, _ = run_pag(*name, "--help")
                helps[name] = text if code == 0 else ""
            options = [word.partition("=")[0] for word in words if word.startswith("--")]
            # Parameters of a query are options of that query alone.
            if not helps[name] or (name[-1] != "query" and any(option not in helps[name] for option in options)):
                wrong.append(f"{page}: {' '.join(span.split())}")
    assert not wrong
    assert len(helps) > 20
