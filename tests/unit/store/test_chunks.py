"""Finding chunks by rows, beside a look at each of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pag_graph.store.chunks import Chunk, chunks_of, place_of


@given(
    first=st.integers(0, 5),
    sizes=st.lists(st.integers(1, 4), max_size=6),
    low=st.integers(0, 30),
    high=st.integers(0, 30),
)
def test_the_chunks_of_some_rows_are_those_that_a_look_at_each_finds(
    first: int, sizes: list[int], low: int, high: int
) -> None:
    chunks = []
    for number, rows in enumerate(sizes):
        chunks.append(Chunk(f"{number}", 0, 0, rows, first + sum(sizes[:number]), 0, 0))
    expected = [chunk for chunk in chunks if max(low, chunk.first_row) < min(high, chunk.first_row + chunk.rows)]
    assert list(chunks_of(chunks, low, high)) == expected
    for number, chunk in enumerate(chunks):
        assert {place_of(chunks, chunk.first_row + row) for row in range(chunk.rows)} == {number}
    assert place_of(chunks, first - 1) == -1
