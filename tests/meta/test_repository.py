"""The repository keeps its own promises: errors travel, tables stay portable, nothing names what it must not."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from pag_graph import errors
from pag_graph.model import tables

ROOT = Path(__file__).parents[2]
LARGEST_FILE = 2**20
"""Bytes. Generated reports and recorded logs that are larger do not belong in the repository."""
ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.PagGraphError)]
SCHEMAS = [value for value in vars(tables).values() if isinstance(value, pa.Schema)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_errors_survive_pickling_whole(kind: type[errors.PagGraphError]) -> None:
    error = kind("what", "what to do", {"worker": 3})
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.message, copy.hint, copy.context) == ("what", "what to do", {"worker": 3})
    assert str(copy) == str(error) == "what\n  hint: what to do"


def test_the_tree_in_the_docstring_is_complete() -> None:
    drawn = set(re.findall(r"(\w+Error)", errors.__doc__ or ""))
    assert {kind.__name__ for kind in ERRORS} <= drawn


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.names[0])
def test_tables_use_only_types_that_every_engine_has(schema: pa.Schema) -> None:
    portable = {pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_()}
    for field in schema:
        assert field.type in portable, field
        assert (field.metadata or {}).get(b"doc"), f"{field.name} is not documented"


def test_layers_hold() -> None:
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


@pytest.fixture(scope="module")
def committed() -> list[Path]:
    """List the committed files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no git checkout, so there is no list of committed files")
    return [ROOT / name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]


def test_no_committed_file_names_a_registry_or_a_home_folder(committed: list[Path]) -> None:
    # Spelled so that this file does not name what it looks for.
    forbidden = re.compile(
        "|".join(["pypi" + r"\.org", "maven" + r"\.org", "crates" + r"\.io", "/ro" + "ot/", "/ho" + "me/"])
    )
    for path in committed:
        if path.suffix not in {".parquet", ".png"}:
            assert not forbidden.search(path.read_text(encoding="utf-8", errors="replace")), path


def test_no_committed_file_is_large(committed: list[Path]) -> None:
    assert {path: size for path in committed if (size := path.stat().st_size) > LARGEST_FILE} == {}


def test_the_picture_in_the_readme_is_drawn_by_the_code(tmp_path: Path) -> None:
    from pag_graph import api
    from pag_graph.cli.demo import SAMPLES
    from pag_graph.sinks.timeline import timeline

    api.build(SAMPLES / "skewed", tmp_path / "store", engine="local")
    drawn = timeline(api.open(tmp_path / "store").snapshot(epoch=4), width=1100)
    assert drawn == (ROOT / "docs" / "pictures" / "skewed-epoch4.svg").read_text(encoding="utf-8")
