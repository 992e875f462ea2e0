"""The reference of all queries, ``docs/cypher.md``: what their headers say."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING

from pag_graph.cypher import KNOWN, TOPICS, Over, cell, queries_for_people

if TYPE_CHECKING:
    from pag_graph.cypher import Example, Query

_OVER_IN_WORDS = {
    Over.EPOCHS: "all epochs of the run, or those from `first_epoch` to `last_epoch`",
    Over.ROUNDS: "all rounds of the run",
    Over.ROUNDS_OF_BOTH: "all rounds of both runs",
    Over.ROUNDS_BEFORE: "the epoch and the rounds before it",
    Over.AGAINST: "both epochs",
    Over.INSTANT: "the epoch whose window holds the instant",
    Over.EVENT_BACK: "the epochs from the event back to `back_ns` before it",
    Over.EVENT_AHEAD: "the epochs from the event on to `ahead_ns` after it",
    Over.EVENT_ROUNDS: "the event's epoch and the `rounds` before it",
}

_HEAD = """\
# Cypher queries

*Which query answers my question in Neo4j, and what do its parameters and columns mean?*

```sh
pag neo4j queries                                   # list all queries
pag neo4j query held_up_by                          # the latest run, its slowest round
pag neo4j query waited_for --worker 2 --at_ns 16000000 --format json
```

Each query is one file. You can also paste it into Neo4j Browser as it is, and set its parameters with `:param`.
Examples show answers for bundled traces; the tests check their numbers.

- **Defaults.** `run` may be left out. If several runs are loaded, it is the one that started last. `epoch` is the
  slowest round that is loaded with enough detail.
- **Detail.** A query says if it needs more than the detail `waits` of an epoch. An answer says which epochs it left out
  because they are not loaded, or loaded with less detail.
- **Units.** Names of times end in `_ns`. Times are nanoseconds; instants count from the run's origin.
- **Safety.** Queries look only at published epochs, and run in read access mode.

This page is made from the files in `cypher/`. To change it, change them, and run
`python -m pag_graph.cli.cypher_page > docs/cypher.md`.
"""


def page() -> str:
    """Return the text of ``docs/cypher.md``."""
    queries = queries_for_people()
    parts = [_HEAD]
    for folder, group in groupby(queries, key=lambda query: query.folder):
        parts.append(f"\n## {TOPICS.get(folder, folder)}\n\n")
        members = list(group)
        parts.append("| query | answers |\n|---|---|\n")
        parts.extend(f"| [{query.name}](#{_anchor(query.name)}) | {query.purpose} |\n" for query in members)
        parts.extend(_section(query) for query in members)
    return "".join(parts)


def _anchor(name: str) -> str:
    return name.replace("/", "")


def _section(query: Query) -> str:
    lines = [f"\n### {query.name}\n", query.purpose, ""]
    if query.details:
        lines += [f"Needs the detail {' or '.join(f'`{param}`' for param in query.details)}.", ""]
    if query.over in _OVER_IN_WORDS:
        lines += [f"Looks at {_OVER_IN_WORDS[query.over]}.", ""]
    own_params = [param for param in query.params.values() if param.name not in KNOWN]
    takes = " and ".join(f"`{param}`" for param in query.params if param in KNOWN)
    lines += [
        f"Takes {takes}{':' if own_params else '.'}" if takes else "Takes:" if own_params else "Takes nothing.",
        "",
    ]
    if own_params:
        lines += ["| parameter | type | default | meaning |", "|---|---|---|---|"]
        for param in own_params:
            kind = ", ".join(f"`{word}`" for word in param.choices) or param.kind or "any"
            default = "must be given" if param.required else "" if param.default is None else f"`{cell(param.default)}`"
            lines.append(f"| `{param.name}` | {kind} | {default} | {param.meaning} |")
        lines.append("")
    lines += [f"Returns {query.returns}.".replace("..", "."), ""]
    if query.example is not None:
        lines += _shown(query, query.example)
    return "\n".join(lines)


def _shown(query: Query, example: Example) -> list[str]:
    options = "".join(f" --{name} {value}" for name, value in example.parameters.items())
    row_count = f", {len(example.rows)} of {example.count} rows" if len(example.rows) < example.count else ""
    lines = [f"`pag neo4j query {query.name}{options}` of the bundled trace `{example.sample}`{row_count}:", ""]
    lines += [f"| {' | '.join(example.columns)} |", f"|{'---|' * len(example.columns)}"]
    lines += [f"| {' | '.join(row)} |" for row in example.rows]
    return [*lines, ""]


if __name__ == "__main__":
    sys.stdout.write(page())
