"""What tasks of analyses are given: the state that their caller has open, and something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph import api, samples
from pag_graph.engines.following import Following
from pag_graph.engines.local import LocalEngine
from pag_graph.errors import InvalidParameterError
from pag_graph.store.retention import Keep
from pag_graph.testing.traces import draw
from tests.support.growing import GrowingTrace, rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class Meanwhile(LocalEngine):
    """Runs tasks that have nothing but what they are told, after something has happened."""

    in_process = False
    tasks = 2

    def __init__(self, happens: Callable[[], object]) -> None:
        self.happens = happens

    def map(self, task: Callable[[Any], Any], items: Sequence[Any], **more: Any) -> list[Any]:
        self.happens()
        return super().map(task, items, **more)


def written(folder: Path) -> list[str]:
    """Return the rows of all files of a folder."""
    return sorted(str(row) for file in folder.iterdir() for row in pl.read_parquet(file).to_dicts())


@pytest.mark.parametrize("mode", ["append", "replace"])
@pytest.mark.parametrize("name", ["metrics", "diff"])
def test_a_store_that_changes_while_tasks_begin_does_not_mix_its_states(name: str, mode: str, tmp_path: Path) -> None:
    """Rows were of whatever was committed last, under the id of the run that was asked about."""
    growing, store = GrowingTrace(rounds(6), tmp_path / "trace"), tmp_path / "store"
    growing.write_until(3)
    api.build(growing.path, store, engine="local")
    asked, base = api.open(store), tmp_path / "base"
    api.build(growing.path, base, engine="local")
    paths = [path.table for path in asked.critical_paths()]
    options: dict[str, Any] = {"against": base} if name == "diff" else {}
    api.analyse(store, tmp_path / "before", name, engine="local", **options)
    growing.finish()

    def goes_on() -> None:
        api.build(growing.path if mode == "append" else samples.path("skewed"), store, engine="local", mode=mode)

    api.analyse(store, tmp_path / "after", name, engine=Meanwhile(goes_on), **options)
    assert written(tmp_path / "after") == written(tmp_path / "before")
    assert [path.table for path in asked.critical_paths()] == paths


def test_comparisons_without_anything_to_compare_say_so(tmp_path: Path) -> None:
    """They wrote no file, and ended as if all was well."""
    draw("0 start 1 | 5 stop 1 | 9 end").write(tmp_path / "first.trace")
    api.build(tmp_path / "first.trace", tmp_path / "first.pag", engine="local")
    rounds(4).write(tmp_path / "last.trace")
    Following(tmp_path / "last.trace", tmp_path / "last.pag", commit_every_s=0, keep=Keep(epochs=1)).run()
    for against, said in ((None, "has one epoch, and none before it"), (tmp_path / "last.pag", "no epoch in common")):
        with pytest.raises(InvalidParameterError, match=said):
            api.analyse(tmp_path / "first.pag", tmp_path / "out", "diff", engine="local", against=against)
        assert not (tmp_path / "out").exists()
