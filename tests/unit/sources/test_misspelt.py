"""Workers that exist only because somebody misspelt their names are findings; those of the examples are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph import sources
from pag_graph.sources.activities import misspelt as names
from pag_graph.store.trace import Trace

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def rows(*names: str) -> str:
    return "worker,start,end,activity\n" + "".join(f"{name},{at},{at + 1},busy\n" for at, name in enumerate(names))


def found(folder: Path, **tables: str) -> list[tuple[str, str, int]]:
    source = folder / "log"
    source.mkdir(exist_ok=True)
    for name, text in tables.items():
        (source / f"{name}.csv").write_text(text, encoding="utf-8")
    sources.convert(source, folder / "trace", replace=True)
    told = Trace.open(folder / "trace").findings.to_pylist()
    return [(row["finding"], row["file"], row["observed"]) for row in told]


OFTEN = ["source-0"] * 3 + ["source-1"] * 3


@pytest.mark.parametrize(
    ("activities", "expected"),
    [
        (rows(*OFTEN), []),
        # One row, one slip of a letter.
        (rows(*OFTEN, "sorce-0"), [("worker_misspelt", "activities.csv, line 8", 1)]),
        (rows("souurce-0", *OFTEN), [("worker_misspelt", "activities.csv, line 2", 1)]),
        (rows(*OFTEN, "soruce-0"), [("worker_misspelt", "activities.csv, line 8", 1)]),
        (rows(*OFTEN, "aource-0", "source_0"), [("worker_misspelt", f"activities.csv, line {n}", 1) for n in (9, 8)]),
        # A digit is a slip where no other worker has a single row.
        (rows(*OFTEN, "source-11"), [("worker_misspelt", "activities.csv, line 8", 1)]),
        (rows(*OFTEN, "source-2", "source-3"), []),
        # Capitals, spaces and signs, however often.
        (rows(*OFTEN, "Source 1", "Source 1"), [("worker_misspelt", "activities.csv, line 8", 2)]),
        # Other names, and names too short to tell.
        (rows(*OFTEN, "sink"), []),
        (rows("cpu", "cpu", "cpu", "gpu"), []),
        (rows("1", "1", "1", "2"), []),
        (rows("1", "1", "1", "11"), [("worker_misspelt", "activities.csv, line 5", 1)]),
    ],
)
def test_names_like_others(tmp_path: Path, activities: str, expected: list[tuple[str, str, int]]) -> None:
    assert sorted(found(tmp_path, activities=activities)) == sorted(expected)


def test_messages_of_a_worker_without_activities(tmp_path: Path) -> None:
    messages = "from,to,sent,received\nsource-0,source-1,1,4\nsource-0,source-7,1,4\nsource-7,source-1,2,4\n"
    told = found(tmp_path, activities=rows(*OFTEN), messages=messages)
    assert told == [("worker_without_activity", "messages.csv, line 3", 2)]


def test_a_table_of_workers_is_all_of_them(tmp_path: Path) -> None:
    told = found(tmp_path, activities=rows(*OFTEN, "sink"), workers="worker\nsource-0\nsource-1\n")
    assert told == [("worker_not_listed", "activities.csv, line 8", 1)]
    # What is listed is meant, however it is spelt.
    listed = "worker\nsource-0\nsource-1\nsorce-0\n"
    assert found(tmp_path, activities=rows(*OFTEN, "sorce-0"), workers=listed) == []


@pytest.mark.parametrize("example", ["flink", "heron", "tensorflow"])
def test_the_examples_have_no_doubtful_names(tmp_path: Path, example: str) -> None:
    source = EXAMPLES / example
    sources.convert(source / "heron.jsonl" if example == "heron" else source, tmp_path / "trace")
    assert Trace.open(tmp_path / "trace").findings.num_rows == 0


@given(st.text("ab1", min_size=1, max_size=5), st.text("ab1", min_size=1, max_size=5))
def test_one_slip_is_what_it_says(name: str, other: str) -> None:
    slips = {name[:at] + name[at + 1 :] for at in range(len(name))}
    slips |= {name[:at] + c + name[at:] for at in range(len(name) + 1) for c in "ab1"}
    slips |= {name[:at] + c + name[at + 1 :] for at in range(len(name)) for c in "ab1"}
    slips |= {name[:at] + name[at + 1] + name[at] + name[at + 2 :] for at in range(len(name) - 1)}
    assert names._one_slip(name, other) == (other in slips - {name})
    # Whatever is one slip away has a piece in common, so that it is compared at all; but for two that changed places.
    if names._one_slip(name, other):
        assert set(names._shortenings(name)) & set(names._shortenings(other))
