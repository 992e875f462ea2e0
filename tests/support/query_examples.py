"""What the header of a Cypher query shows of its answer, held against the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.cypher import cell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pag_graph.cypher import Query
    from pag_graph.sinks.neo4j.query import Answer


def check_example(query: Query, answer: Answer) -> None:
    """Assert that the example of a query is its answer; what it should be is shown."""
    example = query.example
    assert example is not None, f"{query.name} has no example"
    lines = example_lines(
        query.name, example.sample, example.parameters, answer.columns, answer.rows, len(example.rows)
    )
    assert example.count == len(answer.rows) > 0, lines
    assert example.columns == answer.columns, lines
    for row, answer_row in zip(example.rows, answer.rows, strict=False):
        # What depends on the release or on the day is not shown.
        assert all(text in {"...", cell(answer_row[key])} for text, key in zip(row, answer.columns, strict=True)), lines


def example_lines(
    name: str,
    sample: str,
    parameters: Mapping[str, str],
    names: tuple[str, ...],
    rows: list[dict[str, Any]],
    count: int,
) -> str:
    """Return the lines that the header of a query should have."""
    table = [names, *(tuple(cell(row[key]) for key in names) for row in rows[: count or 3])]
    widths = [max(len(row[n]) for row in table) for n in range(len(names))]
    lines = [f"// example: {sample}{''.join(f' --{key} {value}' for key, value in parameters.items())}"]
    padded = (" | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in table)
    lines.extend(f"//   {row.rstrip()}" for row in padded)
    lines.append(f"//   {len(rows)} row{'' if len(rows) == 1 else 's'}")
    return f"{name}:\n" + "\n".join(lines)
