"""How hard Hypothesis tries, in which order tests run, and the command.

There are few examples, always the same; with ``PAG_QUICK=1`` fewer, and with ``PAG_PROVE=1`` thousands.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from pag_graph.analyses import all_entries
from pag_graph.cli import app
from pag_graph.store import in_place
from tests.support.groups import MARK, GroupScheduling, write_groups
from tests.support.sampling import VARIABLE, left_out, sampling_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

settings.register_profile(
    "default",
    max_examples=10,
    derandomize=True,
    deadline=None,
    # Kernels compile at the first example, and traces are built up step by step.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("prove", settings.get_profile("default"), max_examples=10_000, derandomize=False)
settings.register_profile("quick", settings.get_profile("default"), max_examples=5)
settings.load_profile(
    next((name for name in ("prove", "quick") if os.environ.get(f"PAG_{name.upper()}") == "1"), "default")
)

PROVE = os.environ.get("PAG_PROVE") == "1"

_IN_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 8 << 30
"""A run leaves a gigabyte or two until it ends."""

# What is started is dear: a process that has Neo4j or Spark keeps it for all tests that need it.
_SHARED = ("neo4j", "spark")
_LONG_FIRST = ("integration", "properties", "attack", "meta")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test the group whose tests run in one process: its own, its server's or its file's."""
    if item.get_closest_marker(MARK):
        return
    kinds = [name for name in _SHARED if item.get_closest_marker(name)]
    if kinds == ["neo4j"] and "neo4j_server" not in getattr(item, "fixturenames", ()):
        # It has a server of its own, if any.
        kinds = []
    item.add_marker(pytest.mark.xdist_group(kinds[0] if kinds else item.nodeid.partition("::")[0]))


def pytest_configure() -> None:
    """Draw once, for all processes; keep temporary files in memory, where there is room and programs may lie there."""
    sampling_seed()
    if not PROVE and _IN_MEMORY.is_dir():
        place = os.statvfs(_IN_MEMORY)
        if place.f_bavail * place.f_frsize >= _ROOM_BYTES and not place.f_flag & os.ST_NOEXEC:
            # Pytest's own name for where its folders lie.
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


def pytest_report_header() -> str:
    """Say which cases of sampled tests run, so that they can be run again."""
    return "sampled tests: all cases" if PROVE else f"sampled tests: cases of {VARIABLE}={sampling_seed()}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw cases, and begin with what takes minutes, so that no process is left alone with it at the end.

    Tests that only read what Neo4j was loaded with come first, then those that begin with it, then who empties it.
    """
    if not PROVE and (left := left_out(items)):
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
    here = Path(__file__).parent

    def place(item: pytest.Item) -> tuple[int, bool, bool, bool]:
        kinds = [number for number, name in enumerate(_SHARED) if item.get_closest_marker(name)]
        names = getattr(item, "fixturenames", ())
        folder = item.path.relative_to(here).parts[0]
        begins = "bundled_runs" in names and "neo4j_driver" not in names
        return min(kinds, default=len(_SHARED)), "bundled_driver" not in names, not begins, folder not in _LONG_FIRST

    items.sort(key=place)


_GROUPS = pytest.StashKey[Path]()
"""Where processes that run tests write the groups of all tests."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Make a place for the groups, before any process that runs tests is there."""
    folder = tempfile.TemporaryDirectory(prefix="groups-")
    config.add_cleanup(folder.cleanup)
    config.stash[_GROUPS] = Path(folder.name) / "groups.json"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a process that runs tests where to write the groups."""
    if node.config.getoption("dist") == "loadgroup":
        node.workerinput["groups"] = str(node.config.stash[_GROUPS])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the groups, if other processes hand out the tests; what is there by now is no garbage to look for."""
    gc.collect()
    gc.freeze()
    # An eighth of what tests took went into looking.
    gc.set_threshold(50_000, 20, 50)
    file = getattr(session.config, "workerinput", {}).get("groups")
    if file is not None:
        write_groups(session.items, Path(file))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """Hand out tests in groups, where that is asked for."""
    return GroupScheduling(config, log, config.stash[_GROUPS]) if config.getoption("dist") == "loadgroup" else None


class _Killed(BaseException):
    """Stands for SIGKILL; nothing that works on files does anything any more."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], bool]:
    """Run a function as if its process were killed at a step: at one of its calls that change a folder.

    Call with the number of the step, from 0, and the function; gives False where it takes fewer steps. What the process
    had locked is free afterwards. What the libraries for Parquet and Delta do by themselves is no step.
    """

    def run(step: int, function: Callable[[], object]) -> bool:
        taken = 0

        def counted(real: Callable[..., object], *arguments: object, **more: object) -> object:
            nonlocal taken
            taken += 1
            if taken > step:
                raise _Killed
            return real(*arguments, **more)

        with monkeypatch.context() as patch:
            for name in ("mkdir", "rename", "replace", "link", "unlink", "remove", "rmdir"):
                patch.setattr(os, name, partial(counted, getattr(os, name)))
            patch.setattr(in_place, "_exchange", partial(counted, in_place._exchange))
            try:
                function()
            except _Killed:
                return True
        return False

    return run


_get_command = typer.main.get_command


@cache
def _commands(analyses: object) -> object:
    """Put the commands together, once for these analyses: Typer does at every call, and most answers take less."""
    del analyses
    return _get_command(app.app)


@pytest.fixture(scope="session", autouse=True)
def _put_together_once() -> Iterator[None]:
    def get_command(of: typer.Typer) -> object:
        return _commands(all_entries()) if of is app.app else _get_command(of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", get_command)
        patch.setattr(typer.testing, "_get_command", get_command)
        yield


@pytest.fixture
def run_pag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run the command ``pag`` in this process, with the arguments as words; gives its exit code and what it said."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pag", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run
