"""`pag motif`: find a pattern of vertices and edges, by its name or in GraphFrames' motif language."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path  # noqa: TC003  (Typer reads it when the command runs)
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pag_graph.cli.analyses import (
    BetweenOption,
    EpochOption,
    FormatOption,
    LatencyOption,
    RoleOption,
    StoreArgument,
    check_window,
)
from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stderr, stdout
from pag_graph.cli.settings import scalar_setting
from pag_graph.errors import InvalidParameterError
from pag_graph.model.names import with_worker_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pag_graph.engines.motif import SparkMotifQuery
    from pag_graph.graph.run import Run
    from pag_graph.motif.patterns import Pattern
    from pag_graph.motif.polars_query import MotifQuery

MOST_HOPS = 8
"""As in `pag_graph.motif.paths`, which would load Polars for a line of help; a test compares."""
_SHOWN_ROWS = 20
_SHOWN_PATHS = 10


class Through(StrEnum):
    """What finds the matches."""

    LOCAL = "local"
    SPARK = "spark"
    GRAPHFRAMES = "graphframes"


def motif(
    pattern: Annotated[
        str | None,
        typer.Argument(metavar="NAME|PATTERN", help="A named pattern, or a motif. Without it, patterns are listed."),
    ] = None,
    store: Annotated[Path | None, typer.Argument(metavar="STORE", help="Directory of a built store.")] = None,
    epochs: Annotated[
        str | None, typer.Option("--epochs", "-e", metavar="3-7", help="Only edges that end there: 4, or 1,3-7.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", "-w", metavar="FILTER", help="Filter, such as 'e.duration_ns > ms(1)'.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the pattern or the filter.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="a.id,e.type", help="Columns to show, separated by commas.")
    ] = None,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="Two names never stand for the same edge; without this they may.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Most matches to print. Default: 20 in tables, else all.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan only, and find nothing.")] = False,
    analyse: Annotated[bool, typer.Option("--analyse", help="Show the plan with the rows of each step.")] = False,
    engine: Annotated[Through, typer.Option(help="local needs no Java; graphframes needs its jar.")] = Through.LOCAL,
    form: FormatOption = Format.TABLE,
) -> None:
    """Find a pattern of vertices and edges: a named pattern, or a motif in GraphFrames' language.

    Example: pag motif late_sender run.pag --epochs 3-7

    Example: pag motif "(a)-[w]->(z); (s)-[m]->(z)" run.pag --distinct --where "w.type = 'waiting'"
    """
    if pattern is None:
        _list(form)
        return
    from pag_graph.api import Pag

    place, known_pattern = _place(pattern, store), _named(pattern)
    chosen = [column.strip() for column in columns.split(",")] if columns else None
    fields, spark = _fields(known_pattern, chosen), _session(engine)
    pag, epoch_ids = Pag(place), parse_epochs(epochs)
    query = pag.motif(
        pattern,
        where,
        epochs=epoch_ids,
        columns=[*fields.values(), *([] if known_pattern else _keys(pattern, fields))] if fields else chosen,
        limit=limit or (_SHOWN_ROWS if form is Format.TABLE else None),
        parameters=dict(scalar_setting(text) for text in settings or []),
        distinct=distinct,
        spark=spark,
    )
    if explain or analyse:
        _print_plan(query, form, analyse=analyse)
        return
    by_graphframes = engine is Through.GRAPHFRAMES
    table, total = _through_graphframes(pag, query, epoch_ids, spark) if by_graphframes else _matches(query)
    if not known_pattern:
        _note_same_edges(query.same_edges(table))
    shown = _Matches(str(query.question.motif), known_pattern, table, total)
    if form is Format.JSON:
        shown.print_json(fields, epochs)
    else:
        fields = fields or _readable(table, full=form is Format.CSV or columns is not None)
        shown.print_rows(fields, form, pag.run)


class _Matches(NamedTuple):
    """What was found of a motif."""

    motif: str
    pattern: Pattern | None
    """The pattern that was asked for by its name."""
    table: pa.Table
    total: int
    """How many matches there are, also those that the table leaves out."""

    def print_json(self, fields: Mapping[str, str], epochs: str | None) -> None:
        """Print them as JSON: the columns of `fields`, all where there are none."""
        print_json(
            {
                "motif": self.motif,
                "pattern": self.pattern.name if self.pattern else None,
                "epochs": epochs,
                "matches": self.total,
                "shown": self.table.num_rows,
                "rows": _flat(self.table, fields) if fields else self.table.to_pylist(),
            }
        )

    def print_rows(self, fields: Mapping[str, str], form: Format, run: Run) -> None:
        """Print them as CSV or as a table for people."""
        rows = _flat(self.table, fields)
        if form is Format.CSV:
            print_csv(rows, list(fields))
        elif not self.total:
            stdout().print("No match.")
        else:
            cut = f", {self.table.num_rows} shown (--limit)" if self.total > self.table.num_rows else ""
            name = self.pattern.name if self.pattern else self.motif
            print_rows(with_worker_names(rows, run.worker_names), list(fields), f"{name}: {self.total:,} matches{cut}")


def k_hop_paths(
    store: StoreArgument,
    k: Annotated[int, typer.Option("--k", "-k", min=1, max=MOST_HOPS, help="Number of hops, in edges.")] = 2,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Most paths to list; those whose waits end first are listed.")
    ] = _SHOWN_PATHS,
    through_waits: Annotated[
        bool, typer.Option("--through-waits/--causes-only", help="Also follow waits, or follow causes only.")
    ] = True,
    epoch: EpochOption = None,
    role: RoleOption = None,
    between: BetweenOption = None,
    latency: LatencyOption = None,
    spark: Annotated[bool, typer.Option("--spark", help="Use Spark instead of this process.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the paths that lead to the ends of waits in exactly k hops, and say how many there are.

    `pag k-hops` counts walks of all lengths up to k.

    Example: pag k-hop-paths run.pag -k 3 --epoch 7
    """
    from pag_graph.api import Pag

    session = _session(Through.SPARK) if spark else None
    window = check_window(epoch, role, between, latency)
    pag = Pag(store)
    paths = pag.k_hop_paths(k, limit=limit, through_waits=through_waits, spark=session, **window)
    rows = paths.paths.to_pylist()
    if form is Format.JSON:
        print_json({"k": k, "limit": limit, "paths": paths.total, "shown": paths.shown, "rows": rows})
    elif form is Format.CSV:
        print_csv(rows, paths.paths.column_names)
    elif not rows:
        stdout().print(f"No wait of this window has a path of {k} hops that leads to its end.")
    else:
        shown = with_worker_names(rows, pag.run.worker_names)
        print_rows(shown, [name for name in paths.paths.column_names if name not in {"src", "dst"}], str(paths))


def parse_epochs(text: str | None) -> list[int] | None:
    """Return the epochs that a text such as ``1,3-7`` names; None for none.

    Parameters
    ----------
    text
        Numbers and ranges, separated by commas.

    Returns
    -------
    list of int or None
        In the order given.

    Raises
    ------
    InvalidParameterError
        If it is no such text.

    Examples
    --------
    >>> parse_epochs("1,3-5")
    [1, 3, 4, 5]
    """
    if text is None:
        return None
    epoch_ids: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if low > high:
            message = f"{text!r} names no epochs."
            raise InvalidParameterError(message, "Write 4, or 3-7, or 1,3-7.", {"epochs": text})
        if high - low > 1_000_000:  # noqa: PLR2004  (no run has more; a typing error should not fill the memory)
            message = f"{part.strip()} are more than a million epochs."
            raise InvalidParameterError(message, "Leave --epochs out to take all.")
        epoch_ids += range(low, high + 1)
    return epoch_ids


def _list(form: Format) -> None:
    from pag_graph.motif.patterns import PATTERNS

    rows = [
        {
            "name": pattern.name,
            "purpose": pattern.purpose,
            "parameters": ", ".join(f"{name}={p.default}" for name, p in pattern.parameters.items()),
        }
        for pattern in PATTERNS.values()
    ]
    if form is Format.JSON:
        print_json(
            [{**row, "motif": PATTERNS[row["name"]].motif, "where": PATTERNS[row["name"]].where} for row in rows]
        )
    elif form is Format.CSV:
        print_csv(rows, list(rows[0]))
    else:
        print_rows(rows, list(rows[0]))


def _place(pattern: str, store: Path | None) -> Path:
    """Return the store to look in."""
    if store is None:
        message = f"{pattern!r} needs a store to look in."
        raise InvalidParameterError(message, f'pag motif "{pattern}" STORE')
    return store


def _note_same_edges(edge_groups: Sequence[Sequence[str]]) -> None:
    """Say which names stand for one edge in every row."""
    if edge_groups:
        pairs = ", ".join(" and ".join(pair) for pair in edge_groups)
        stderr().print(f"note: {pairs} are the same edge in every row; --distinct keeps named edges apart.")


def _named(pattern: str) -> Pattern | None:
    from pag_graph.motif.patterns import find_pattern

    return find_pattern(pattern)


def _print_plan(query: Any, form: Format, *, analyse: bool) -> None:
    """Print how a motif is found."""
    text = query.explain(analyse=analyse)
    if form is Format.JSON:
        print_json({"motif": str(query.question.motif), "plan": text.splitlines()})
    elif form is Format.CSV:
        print_csv([{"plan": line} for line in text.splitlines()], ["plan"])
    else:
        stdout().print(text, markup=False)


def _keys(pattern: str, fields: Mapping[str, str]) -> list[str]:
    """Return the columns that tell named edges apart, beside those that are shown."""
    from pag_graph.motif.shape import PAG_SHAPE
    from pag_graph.motif.syntax import parse_motif

    motif = parse_motif(pattern)
    keys = [f"{name}.{column}" for name in motif.columns if name in motif.edges for column in PAG_SHAPE.edge_key]
    return [key for key in keys if key not in fields.values()]


def _fields(known_pattern: Pattern | None, chosen: list[str] | None) -> dict[str, str]:
    """Return the columns to print, by title; empty where it depends on the answer."""
    if chosen:
        return {column: column for column in chosen} if all("." in column for column in chosen) else {}
    return dict(known_pattern.shown) if known_pattern else {}


def _readable(table: pa.Table, *, full: bool) -> dict[str, str]:
    from pag_graph.motif.shape import OF_EDGE, OF_VERTEX

    fields: dict[str, str] = {}
    for column in table.schema:
        names = [child.name for child in column.type]
        shown_names = OF_EDGE if "src" in names else OF_VERTEX
        fields |= {f"{column.name}.{name}": f"{column.name}.{name}" for name in names if full or name in shown_names}
    return fields


def _flat(table: pa.Table, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    parts = {title: column.partition(".") for title, column in fields.items()}
    return [{title: row[element][name] for title, (element, _, name) in parts.items()} for row in table.to_pylist()]


def _session(engine: Through) -> Any:
    if engine is Through.LOCAL:
        return None
    from pag_graph.engines.session import spark_session

    return spark_session(resolve_graphframes=engine is Through.GRAPHFRAMES)


def _matches(query: MotifQuery | SparkMotifQuery) -> tuple[pa.Table, int]:
    """Return the matches that are asked for, and how many there are."""
    table = query.table()
    return table, query.total if query.limit is not None else table.num_rows


def _through_graphframes(
    pag: Any, query: MotifQuery | SparkMotifQuery, epochs: list[int] | None, spark: Any
) -> tuple[pa.Table, int]:
    """Do as `_found` with GraphFrames itself."""
    from pag_graph.sinks.graphframes import find

    matches = find(pag.graphframe(spark, epochs), query.question)
    return (matches if query.limit is None else matches.limit(query.limit)).toArrow(), matches.count()
