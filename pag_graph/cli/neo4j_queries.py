"""`pag neo4j queries`, `query` and `browser`: the Cypher library, and the place to look at graphs."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from pathlib import Path  # noqa: TC003  (read by Typer when the command is called)
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pag_graph.cli.neo4j_reach import Home, Uri, at_server, hints_name_server, reach
from pag_graph.cli.output import Format, print_csv, print_facts, print_json, print_rows, stderr, stdout
from pag_graph.errors import InvalidParameterError, Neo4jError
from pag_graph.store.in_place import check_output, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pag_graph.cypher import Query
    from pag_graph.neo4j_server.server import ServerStatus
    from pag_graph.sinks.neo4j.query import Answer

_Format = Annotated[Format, typer.Option("--format", "-f", help="table for people, json or csv for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Add the commands of this module to those of `pag neo4j`."""
    app.command()(runs)
    app.command()(queries)
    # Parameters of a query are options of the command, whatever their names.
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(query)
    app.command()(browser)


def runs(
    tag: Annotated[str | None, typer.Option("--tag", help="Only runs with this tag.")] = None,
    home: Home = None,
    uri: Uri = None,
    form: _Format = Format.TABLE,
) -> None:
    """List the loaded runs: their names, where and when they ran, and their slowest rounds.

    Example: pag neo4j runs --tag nightly
    """
    from pag_graph.cypher import find_query
    from pag_graph.sinks.neo4j.query import answer_query

    chosen = find_query("runs/runs")
    with reach(home, uri).open() as driver:
        answer = answer_query(driver, chosen, {"tag": tag})
    _print_answer(chosen, {"tag": tag} if tag else {}, answer, 50, form)
    _print_left_out(answer, form)


def queries(
    name: Annotated[
        str | None, typer.Argument(help="Query to describe. Without it, all queries are listed.", show_default=False)
    ] = None,
    form: _Format = Format.TABLE,
) -> None:
    """List the queries of the Cypher library, or show the parameters and columns of one query.

    Example: pag neo4j queries held_up_by
    """
    from pag_graph.cypher import find_query, queries_for_people

    if name is not None:
        _describe(find_query(name), form)
        return
    rows = [_facts(query_) for query_ in queries_for_people()]
    if form is Format.JSON:
        print_json(rows)
        return
    short = [
        {"query": row["query"], "takes": _parameters_in_words(row["parameters"]), "answers": row["purpose"]}
        for row in rows
    ]
    if form is Format.CSV:
        print_csv(short, ["query", "takes", "answers"])
        return
    console = stdout()
    folder = ""
    for row in short:
        if row["query"].rpartition("/")[0] != folder:
            folder = row["query"].rpartition("/")[0]
            console.print(folder, style="bold")
        console.print(f"  {row['query'].rpartition('/')[2]:<24} {row['answers']}", markup=False)
    console.print("Run one: pag neo4j query NAME. What it takes and returns: pag neo4j queries NAME.", style="dim")


def query(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the query, or its last part.", show_default=False)],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="Set a parameter; --NAME VALUE does the same."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows to show in a table.")] = 50,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan, and do not run the query.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Run the query, and show the cost of each step.")] = False,
    home: Home = None,
    uri: Uri = None,
    form: _Format = Format.TABLE,
) -> None:
    """Run a query of the Cypher library. It only reads.

    Its parameters are options: `pag neo4j queries NAME` lists them. The default of --run is the run that started
    last, the default of --epoch its slowest loaded round.

    Example: pag neo4j query waited_for --worker 2 --at_ns 16000000
    """
    from pag_graph.cypher import find_query
    from pag_graph.sinks.neo4j.query import answer_query, complete

    plan = _plan(explain=explain, profile=profile)
    chosen = find_query(name)
    values = dict(_parameters(chosen, context.args, param or []))
    with hints_name_server(home, uri):
        with reach(home, uri).open() as driver:
            parameters = complete(driver, chosen, values)
            answer = answer_query(driver, chosen, parameters, plan=plan)
        if answer.coverage is not None:
            answer.coverage.check()
    if plan is not None and answer.plan is not None:
        _print_plan(answer.plan, form)
        return
    _print_answer(chosen, parameters, answer, top, form)
    _print_left_out(answer, form, partial(at_server, home=home, uri=uri))


def browser(
    home: Home = None,
    saved: Annotated[
        Path | None,
        typer.Option(
            "--saved", help="Write all queries into this archive; drop the file onto Browser to save them there."
        ),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve guide and colours for the Browser of another server, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option("--port", help="Port to serve on; 0 means any free port.")] = 0,
    form: _Format = Format.TABLE,
) -> None:
    """Say where to open Neo4j Browser, its guide, its colours and the saved queries.

    With the server of `pag neo4j start`, the guide opens by itself after the login.

    Example: pag neo4j browser --saved queries.zip
    """
    from pag_graph.neo4j_server import browser as pages
    from pag_graph.neo4j_server import server

    console = stdout()
    if saved is not None:
        check_output(saved, ".zip")
        write_whole(saved, pages.saved_queries())
        console.print(
            f"Wrote {saved}. Drop it onto Browser's window: the queries stand under Favorites then.", markup=False
        )
        return
    if serve:
        _serve(port)
        return
    now = server.status(home)
    address = _address(now)
    facts = {
        "browser": f"{address}/browser/",
        "user": now.user,
        "password_file": str(now.password_file),
        "guide": pages.guide_uri(address),
        "style": pages.style_uri(address),
    }
    if print_facts(facts, form):
        return
    console.print(f"Neo4j Browser: {facts['browser']}", markup=False)
    console.print(f"  log in as {now.user}; the password is in {now.password_file}", markup=False)
    console.print("  the guide opens by itself; later:", markup=False)
    console.print(f"    :play {facts['guide']}", markup=False)
    console.print(f"    :style {facts['style']}", markup=False)


def _address(now: ServerStatus) -> str:
    """Return where the server answers to HTTP.

    Raises
    ------
    Neo4jError
        If it does not run.
    """
    from pag_graph.neo4j_server.home import own_command

    if now.http_uri is None:
        message = f"No Neo4j server runs in {now.home}."
        start = own_command("start", now.home)
        raise Neo4jError(message, f"Start it: `{start}`; for Browser elsewhere: `pag neo4j browser --serve`.")
    return now.http_uri


def _serve(port: int) -> None:
    """Serve the pages until somebody interrupts it."""
    from pag_graph.neo4j_server import browser as pages

    console = stdout()
    with pages.served(port) as address:
        console.print("In Browser, whose server has to allow this host (browser.remote_content_hostname_whitelist):")
        console.print(f"  :style {address}/style.grass", markup=False)
        console.print(f"  :play {address}/guide.html", markup=False)
        console.print("Ctrl-C ends it.", style="dim")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


def _plan(*, explain: bool, profile: bool) -> Literal["explain", "profile"] | None:
    """Return what to say of how the server answers.

    Raises
    ------
    InvalidParameterError
        If both are asked for.
    """
    if explain and profile:
        message = "Give only one of --explain and --profile."
        raise InvalidParameterError(message)
    return "explain" if explain else "profile" if profile else None


def _print_answer(chosen: Query, parameters: dict[str, Any], answer: Answer, top: int, form: Format) -> None:
    """Print the rows."""
    rows = [{column: _plain(row[column]) for column in answer.columns} for row in answer.rows]
    if form is Format.JSON:
        print_json(rows)
    elif form is Format.CSV:
        print_csv(rows, answer.columns)
    else:
        _print_table(chosen, parameters, rows, answer.columns, top)


def _print_table(
    chosen: Query, parameters: dict[str, Any], rows: list[dict[str, Any]], columns: Sequence[str], top: int
) -> None:
    console = stdout()
    asked_with = ", ".join(f"{key} {value}" for key, value in parameters.items())
    console.print(f"{chosen.name}{f' ({asked_with})' if asked_with else ''}", markup=False, style="dim")
    if not rows:
        console.print("No rows.")
        return
    print_rows(rows[:top], columns)
    if len(rows) > top:
        console.print(f"{len(rows) - top} more; --top shows them.", style="dim")


def _print_left_out(answer: Answer, form: Format, complete_line: Callable[[str], str] = str) -> None:
    """Say what was left out, and that there may be more rows: after a table, beside what programs read."""
    console = stdout() if form is Format.TABLE else stderr()
    for line in answer.lines():
        console.print(complete_line(line))
    if answer.limit is not None:
        console.print(f"There may be more than these {answer.limit:,} rows; --limit says how many to return.")


def _parameters(chosen: Query, words: Iterable[str], pairs: Iterable[str]) -> Iterable[tuple[str, Any]]:
    """Yield name and value of every parameter of a command line: ``--name value``, ``--name=value``, ``name=value``.

    Raises
    ------
    InvalidParameterError
        If something is no parameter of the query, or has no value.
    """
    texts: list[tuple[str, str | None]] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if not word.startswith("--"):
            message = f"{word!r} belongs to no parameter of {chosen.name}."
            raise InvalidParameterError(message, _usage(chosen))
        name, equals, value = word[2:].partition("=")
        texts.append((name.replace("-", "_"), value if equals else remaining.pop(0) if remaining else None))
    for pair in pairs:
        name, equals, value = pair.partition("=")
        texts.append((name, value if equals else None))
    for name, text in texts:
        if name not in chosen.params:
            message = f"The query {chosen.name} has no parameter {name}."
            raise InvalidParameterError(message, _usage(chosen))
        if text is None:
            message = f"The parameter {name} of {chosen.name} has no value."
            raise InvalidParameterError(message, _usage(chosen))
        param = chosen.params[name]
        yield name, None if text == "null" and param.default is None else param.convert(text)


def _usage(chosen: Query) -> str:
    takes = _parameters_in_words(_facts(chosen)["parameters"])
    return f"pag neo4j query {chosen.name} {takes}".rstrip()


def _parameters_in_words(parameters: list[dict[str, Any]]) -> str:
    words = []
    for param in parameters:
        kind = param["type"] or "value"
        option = f"--{param['name']} {kind if '|' in kind else kind.upper()}"
        words.append(option if param["required"] and param["name"] not in {"run", "epoch"} else f"[{option}]")
    return " ".join(words)


def _facts(chosen: Query) -> dict[str, Any]:
    return {
        "query": chosen.name,
        "purpose": chosen.purpose,
        "parameters": [
            {
                "name": param.name,
                "type": param.kind,
                "required": param.required,
                "default": None if param.required else param.default,
                "meaning": param.meaning,
            }
            for param in chosen.params.values()
        ],
        "returns": chosen.returns,
        "detail": list(chosen.details),
        "over": chosen.over,
    }


def _describe(chosen: Query, form: Format) -> None:
    facts = _facts(chosen)
    if form is Format.JSON:
        print_json({**facts, "text": chosen.text})
        return
    if form is Format.CSV:
        print_csv(facts["parameters"], ["name", "type", "required", "default", "meaning"])
        return
    console = stdout()
    console.print(chosen.name, style="bold", markup=False)
    console.print(chosen.purpose, markup=False)
    if chosen.details:
        console.print(f"Needs epochs of the detail {' or '.join(chosen.details)}.", markup=False)
    console.print(_usage(chosen), markup=False, style="green")
    for param in chosen.params.values():
        default = "" if param.required or param.default is None else f" [{param.default}]"
        console.print(f"  --{param.name:<10} {param.meaning}{default}", markup=False)
    console.print(f"returns {chosen.returns}", markup=False)
    if chosen.example is not None:
        options = "".join(f" --{name} {value}" for name, value in chosen.example.parameters.items())
        rows = [dict(zip(chosen.example.columns, row, strict=True)) for row in chosen.example.rows]
        shown = f"{len(rows)} of {chosen.example.count} rows"
        print_rows(rows, chosen.example.columns, f"of the bundled trace {chosen.example.sample}{options} ({shown})")


def _print_plan(plan: dict[str, Any], form: Format) -> None:
    """Print the tree of the server's operators, the last to run first."""
    steps: list[dict[str, Any]] = []

    def walk(step: dict[str, Any], depth: int) -> None:
        facts = step.get("args", {})
        steps.append(
            {
                "operator": "  " * depth + step["operatorType"].split("@")[0],
                "estimated_rows": round(float(facts.get("EstimatedRows", 0)), 1),
                "rows": facts.get("Rows"),
                "db_hits": facts.get("DbHits"),
                "details": " ".join(str(facts.get("Details", "")).split()),
            }
        )
        for child in step.get("children", ()):
            walk(child, depth + 1)

    walk(plan, 0)
    if form is Format.JSON:
        print_json(steps)
        return
    columns = [name for name in steps[0] if any(step[name] is not None for step in steps)]
    if form is Format.CSV:
        print_csv(steps, columns)
        return
    print_rows(steps, columns)


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it; what else the server has, such as dates, is text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
