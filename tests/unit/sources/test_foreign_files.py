from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from pag_graph.errors import MissingColumnError, SchemaError, TraceFormatError
from pag_graph.sources.foreign_files import (
    fingerprint,
    iter_frames,
    parquet_columns,
    read_facts,
    read_rows,
    refuse_rows,
)

if TYPE_CHECKING:
    from pathlib import Path


def read_frame(file: Path, columns: dict[str, Any]) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=columns), *iter_frames(file, columns)])


def test_pieces_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "log.parquet"
    pl.DataFrame({"a": range(5), "b": ["x"] * 5}, schema={"a": pl.UInt32, "b": pl.String}).write_parquet(file)
    pieces = list(iter_frames(file, {"a": pl.Int64}, rows=2))
    assert [piece["a"].to_list() for piece in pieces] == [[0, 1], [2, 3], [4]]
    assert pieces[0].schema == {"a": pl.Int64}
    assert read_frame(file, {"b": pl.String, "a": pl.Int64}).columns == ["b", "a"]


def test_an_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "log.parquet"
    pl.DataFrame({"a": []}, schema={"a": pl.Int64}).write_parquet(file)
    assert read_frame(file, {"a": pl.Int64}).height == 0


def test_what_is_wrong_with_a_parquet_file(tmp_path: Path) -> None:
    file = tmp_path / "log.parquet"
    with pytest.raises(TraceFormatError, match=r"log.parquet cannot be read as Parquet"):
        read_frame(file, {"a": pl.Int64})
    file.write_text("not Parquet")
    with pytest.raises(TraceFormatError, match=r"log.parquet cannot be read as Parquet"):
        read_frame(file, {"a": pl.Int64})
    pl.DataFrame({"a": [2**63]}, schema={"a": pl.UInt64}).write_parquet(file)
    with pytest.raises(MissingColumnError, match=r"log.parquet lacks .* b") as caught:
        read_frame(file, {"b": pl.Int64})
    assert caught.value.hint == "Look at whether the file is of this format."
    with pytest.raises(SchemaError, match=r"log.parquet holds values that do not fit"):
        read_frame(file, {"a": pl.Int64})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pl.Series("a", [True, None]), pl.Int64),
        (pl.Series("a", [0.5, None]), pl.String),
        (pl.Series("a", [7]), pl.String),
        (pl.Series("a", [b"x"]), pl.String),
        (pl.Series("a", [[1]]), pl.Int64),
    ],
)
def test_columns_of_another_type_are_refused(tmp_path: Path, values: pl.Series, kind: type[pl.DataType]) -> None:
    file = tmp_path / "log.parquet"
    values.to_frame().write_parquet(file)
    with pytest.raises(SchemaError, match=r"log.parquet holds values that do not fit: a is of type .* must be"):
        read_frame(file, {"a": kind})


@pytest.mark.parametrize("kind", [pl.Int64, pl.String])
@pytest.mark.parametrize("written", [pl.Boolean, pl.Float64, pl.Int8, pl.String])
def test_a_column_of_nothing_may_be_of_any_type(
    tmp_path: Path, kind: type[pl.DataType], written: type[pl.DataType]
) -> None:
    file = tmp_path / "log.parquet"
    pl.DataFrame({"a": [None, None]}, schema={"a": written}).write_parquet(file)
    assert read_frame(file, {"a": kind})["a"].to_list() == [None, None]


def test_refused_rows_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, 2, 3]})
    refuse_rows(frame, pl.col("a") > 3, file=tmp_path, problem="")
    with pytest.raises(TraceFormatError, match="row 101: a is 2"):
        refuse_rows(frame, pl.col("a") > 1, file=tmp_path, problem="a is {a}", first_row=100)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("id,name\n1,a\nx,b\n", "line 3: invalid literal"),
        ("id,name\n1,a\n\n2\n,b", "line 5: invalid literal"),
        ("id\n1\n", r"lacks the column\(s\) name; it has id"),
        ("", "it has none"),
        ('id,name\n1,"a\n', "cannot be read as CSV"),
    ],
)
def test_what_is_wrong_with_a_csv_file(tmp_path: Path, text: str, match: str) -> None:
    file = tmp_path / "operators-0.csv"
    file.write_text(text)
    with pytest.raises(TraceFormatError, match=match) as caught:
        read_rows(file, {"id": int, "name": str})
    assert "operators-0.csv" in caught.value.message


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "cannot be read as JSON"),
        ("3", "holds int, not an object"),
        ("{}", "'pid' must be of type int, but is None"),
        ('{"pid": true}', "is True"),
    ],
)
def test_what_is_wrong_with_a_json_file(tmp_path: Path, text: str, match: str) -> None:
    file = tmp_path / "meta-0.json"
    file.write_text(text)
    with pytest.raises(TraceFormatError, match=match) as caught:
        read_facts(file, {"pid": int})
    assert "meta-0.json" in caught.value.message


def test_fingerprints() -> None:
    assert len(fingerprint([("a", b"b")])) == 32
    assert fingerprint([("a", b"b")]) == fingerprint([("a", b"b")])
    assert fingerprint([("a", b"bc"), ("d", b"")]) != fingerprint([("a", b"b"), ("d", b"c")])


def test_rows_that_a_footer_states_and_a_file_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.parquet"
    pl.DataFrame({"a": [1, 2, 3]}).write_parquet(file)
    real = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *a, **k: list(real(*a, **k))[:0])
    with pytest.raises(TraceFormatError, match=r"a\.parquet .* its footer states 3 rows, but it holds 0"):
        read_frame(file, {"a": pl.Int64})


def test_names_of_columns_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pl.DataFrame({"long_name": [1]}).write_parquet(file)
    file.write_bytes(file.read_bytes().replace(b"long_name", b"long\xff\xfeame"))
    with pytest.raises(TraceFormatError, match=r"a\.parquet cannot be read as Parquet"):
        parquet_columns(file)
