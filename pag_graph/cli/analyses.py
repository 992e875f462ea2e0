"""One command per analysis, made from its definition when it is called; `pag --help` needs its name and help only."""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from pag_graph.analyses import Analysis, Parameter, Scope, all_entries, table_of
from pag_graph.analyses.result_tables import plain_parameters
from pag_graph.cli.output import (
    Format,
    compiling,
    print_csv,
    print_json,
    print_markdown,
    print_rows,
    print_text,
    progress,
    stdout,
)
from pag_graph.errors import InvalidParameterError
from pag_graph.model.names import with_worker_names
from pag_graph.model.units import nanoseconds
from pag_graph.store.in_place import check_output, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from pag_graph.analyses import Report
    from pag_graph.api import Pag
    from pag_graph.graph.snapshot import Snapshot

ALARM = 9
"""Exit code where an analysis that looks for violations found any."""

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Directory of a built store.", show_default=False)]
EpochOption = Annotated[int | None, typer.Option("--epoch", "-e", help="Epoch to look at. Default: the slowest round.")]
RoleOption = Annotated[
    Literal["startup", "shutdown"] | None,
    typer.Option("--role", help="Look at the startup or the shutdown instead."),
]
BetweenOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--between", metavar="FROM TO", help="Look at any stretch of time, counted from the run's origin: 5ms 7500us."
    ),
]
LatencyOption = Annotated[
    int | None,
    typer.Option("--latency", metavar="EPOCH", help="Look at an epoch from its first event on any worker to its last."),
]
FsyncOption = Annotated[
    bool, typer.Option("--fsync", help="Let commits outlast a loss of power, too; each takes some flushes of the disk.")
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="table for people, json or csv for programs.")]
TopOption = Annotated[int, typer.Option("--top", min=1, help="Rows to show in a table.")]


class _AnswerFormat(StrEnum):
    """How to print the answer of an analysis."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"


_COMMON: dict[str, tuple[Any, Any]] = {
    "form": (
        Annotated[
            _AnswerFormat,
            typer.Option(
                "--format",
                "-f",
                help="table for people, json or csv for programs, markdown for issues, html with a picture.",
            ),
        ],
        _AnswerFormat.TABLE,
    ),
    "top": (TopOption, 20),
    "picture": (
        Annotated[
            Path | None, typer.Option("--picture", metavar="FILE.svg", help="Also write a picture of the answer.")
        ],
        None,
    ),
}
_WINDOW: dict[str, tuple[Any, Any]] = {
    "epoch": (EpochOption, None),
    "role": (RoleOption, None),
    "between": (BetweenOption, None),
    "latency": (LatencyOption, None),
}
_SERIES: dict[str, tuple[Any, Any]] = {
    "each": (
        Annotated[
            bool,
            typer.Option(
                "--each",
                help="Look at every epoch of the run, also startup and shutdown; rows have the column `epoch`.",
            ),
        ],
        False,
    ),
    "every": (
        Annotated[
            str | None,
            typer.Option("--every", metavar="TIME", help="Look at windows of this length, one after the other: 10ms."),
        ],
        None,
    ),
    "step": (
        Annotated[
            str | None,
            typer.Option(
                "--step",
                metavar="TIME",
                help="With --every: time from the start of one window to the next; 5ms lets windows of 10ms overlap.",
            ),
        ],
        None,
    ),
}
_PAIR: dict[str, tuple[Any, Any]] = {
    "against": (
        Annotated[
            Path | None,
            typer.Option(
                "--against", metavar="STORE", help="Store of the run to compare with. Default: the same store."
            ),
        ],
        None,
    ),
    "against_epoch": (
        Annotated[
            int | None,
            typer.Option(
                "--against-epoch",
                help="Epoch to compare with. Default: the same epoch of the other run, or the median round.",
            ),
        ],
        None,
    ),
    "against_role": (
        Annotated[
            Literal["startup", "shutdown"] | None,
            typer.Option("--against-role", help="Compare with the startup or the shutdown."),
        ],
        None,
    ),
    "against_between": (
        Annotated[
            tuple[str, str] | None,
            typer.Option("--against-between", metavar="FROM TO", help="Compare with any stretch of time."),
        ],
        None,
    ),
    "against_latency": (
        Annotated[
            int | None,
            typer.Option(
                "--against-latency",
                metavar="EPOCH",
                help="Compare with an epoch, from its first event on any worker to its last.",
            ),
        ],
        None,
    ),
}
_OPTIONS = {
    Scope.WINDOW: {**_WINDOW, **_SERIES},
    Scope.RUN: {},
    Scope.PAIR: {**_WINDOW, **_PAIR},
}


class AnalysisGroup(TyperGroup):
    """A group that knows the names of all analyses and makes their commands when they are called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # A command of this package keeps its name, whatever other distributions call their analyses.
        self._entries = {entry.name: entry for entry in all_entries() if entry.name not in self.commands}
        for name in self._entries:
            self.commands.setdefault(name, TyperCommand(name=name))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first lines of all commands' help, analyses after the others."""
        del ctx
        other_commands = [
            (name, (command.help or "").partition("\n\n")[0].replace("\n", " "))
            for name, command in self.commands.items()
            if name not in self._entries
        ]
        for title, lines in (
            ("Commands", other_commands),
            ("Analyses of a built graph", [(name, entry.help) for name, entry in self._entries.items()]),
        ):
            with formatter.section(title):
                formatter.write_dl(lines)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run, made in full."""
        name, command, arguments = super().resolve_command(ctx, args)
        if name in self._entries:
            command = command_of(self._entries[name].load())
        return name, command, arguments


def command_of(analysis: Analysis[Any]) -> Any:
    """Return the command of an analysis."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    text = f"{analysis.help}\n\nExample: pag {analysis.name} {analysis.example_store} {analysis.example}".rstrip()
    settings = {"help_option_names": ["-h", "--help"]}
    app.command(analysis.name, help=text, context_settings=settings)(_callback(analysis))
    return typer.main.get_command(app)


def _callback(analysis: Analysis[Any]) -> Callable[..., None]:
    """Return a function whose signature Typer reads: the store, the window, the parameters, and the format."""
    fixed_options = {**_OPTIONS[analysis.scope], **_COMMON}
    options: dict[str, tuple[Any, Any]] = {"store": (StoreArgument, inspect.Parameter.empty)}
    options.update(_OPTIONS[analysis.scope])
    options.update({parameter.name: _option(parameter) for parameter in analysis.parameter_list})
    options.update(_COMMON)

    def run(**options_given: Any) -> None:
        values = {
            parameter.name: parameter.convert(options_given[parameter.name])
            for parameter in analysis.parameter_list
            if options_given[parameter.name] is not None and options_given[parameter.name] != []
        }
        _run(analysis, {name: options_given[name] for name in ("store", *fixed_options)}, values)

    kind = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, kind, annotation=annotation, default=default)
            for name, (annotation, default) in options.items()
        ]
    )
    run.__annotations__ = {name: annotation for name, (annotation, _) in options.items()}
    return run


def _option(parameter: Parameter) -> tuple[Any, Any]:
    """Return the annotation and the default with which Typer makes an option of a parameter."""
    item = parameter.item
    if parameter.choices or item not in {int, float, bool, str}:
        item = str
    kind: Any = list[item] if parameter.many else item  # type: ignore[valid-type]
    default: Any = parameter.default
    if default is MISSING:
        default = inspect.Parameter.empty
    elif default is None or default == ():
        default = None
    elif parameter.many:
        default = [str(value) if item is str else value for value in default]
    elif item is str:
        default = str(default)
    if default is None:
        kind |= None
    flags = parameter.flags or ((f"-{parameter.name}",) if len(parameter.name) == 1 else ())
    metavar = "[" + "|".join(parameter.choices) + "]" if parameter.choices else None
    # Without spellings of its own, a parameter is called by its name.
    option = typer.Option(*flags, help=parameter.help, metavar=metavar)
    return Annotated[kind, option], default


def check_window(
    epoch: int | None, role: str | None, between: tuple[str, str] | None, latency: int | None = None
) -> dict[str, Any]:
    """Return the choice of a window as arguments of `Pag`.

    Raises
    ------
    InvalidParameterError
        If there is more than one, or a time is none.
    """
    if sum(value is not None for value in (epoch, role, between, latency)) > 1:
        message = "Give only one of --epoch, --role, --between and --latency."
        raise InvalidParameterError(message)
    times = None if between is None else (nanoseconds(between[0]), nanoseconds(between[1]))
    return {"epoch": epoch, "role": role, "between": times, "latency": latency}


def open_pag(store: Path) -> Pag:
    """Open a store; loads what reading needs."""
    from pag_graph.api import Pag

    return Pag(store)


def _run(analysis: Analysis[Any], options_given: dict[str, Any], values: dict[str, Any]) -> None:
    parameters = analysis.make_parameters(values)
    check_output(options_given["picture"], ".svg")
    options: dict[str, Any] = {}
    if analysis.scope is not Scope.RUN:
        options = check_window(**{name: options_given[name] for name in _WINDOW})
    if options_given.get("each") or options_given.get("every") is not None or options_given.get("step") is not None:
        _run_many(analysis, options_given, options, parameters)
        return
    if analysis.scope is Scope.PAIR:
        other_window = {name: options_given[f"against_{name}"] for name in _WINDOW}
        options |= {f"against_{name}": value for name, value in check_window(**other_window).items()}
        options["against"] = open_pag(options_given["against"]) if options_given["against"] is not None else None
    pag = open_pag(options_given["store"])
    quiet = options_given["form"] is not _AnswerFormat.TABLE
    with progress(quiet=quiet) as report, compiling(*_parts(analysis), quiet=quiet, report=report):
        shown = report if analysis.scope is Scope.RUN else _unseen
        result = pag.analyse(analysis.name, parameters, progress=shown, **options)
    if options_given["picture"] is not None:
        _draw(pag, analysis, result, options, options_given["picture"])
    if options_given["form"] is _AnswerFormat.HTML:
        from pag_graph.sinks.report import page

        snapshot = _snapshot(pag, analysis, options)
        sys.stdout.write(page(analysis, result, run=pag.run, snapshot=snapshot, top=options_given["top"]))
    elif options_given["form"] is _AnswerFormat.JSON:
        window = pag.run.choose(**options) if analysis.scope is Scope.WINDOW else None
        print_json(analysis.plain(result, parameters, window))
    else:
        _print(analysis, result, form=options_given["form"], top=options_given["top"], workers=pag.run.worker_names)
    if analysis.alarm and table_of(result).num_rows:
        sys.stdout.flush()
        raise typer.Exit(ALARM)


def _parts(analysis: Analysis[Any]) -> tuple[str, ...]:
    """Return what kernels an analysis is expected to call; the small ones compile their few by themselves."""
    return ("why",) if analysis.name == "why" else ()


def _unseen(label: str, done: int, total: int) -> None:
    """Show no progress: an analysis of one window is done before a bar is drawn."""


def _snapshot(pag: Pag, analysis: Analysis[Any], options: dict[str, Any]) -> Snapshot | None:
    """Return what an analysis of one window looked at."""
    return pag.snapshot(**options) if analysis.scope is Scope.WINDOW else None


def _draw(pag: Pag, analysis: Analysis[Any], result: pa.Table | Report, options: dict[str, Any], file: Path) -> None:
    from pag_graph.cli.output import stderr
    from pag_graph.sinks.charts import picture

    drawn = picture(analysis, result, run=pag.run, snapshot=_snapshot(pag, analysis, options))
    write_whole(file, drawn)
    stderr().print(f"Wrote {file}.")


def _run_many(analysis: Analysis[Any], options_given: dict[str, Any], window: dict[str, Any], parameters: Any) -> None:
    """Run an analysis on every epoch, or on a series of windows, and print the rows of all."""
    if options_given["picture"] is not None or options_given["form"] is _AnswerFormat.HTML:
        message = "Pictures and HTML show one window, and --each and --every make many."
        raise InvalidParameterError(message, "Choose one with --epoch or --between.")
    facts: dict[str, Any] = {}
    if options_given["each"]:
        other_choices = (*window.values(), options_given["every"], options_given["step"])
        if any(value is not None for value in other_choices):
            message = "--each looks at every epoch, so no window can be chosen beside it."
            raise InvalidParameterError(message, "Leave out --each, or the other choice.")
        with progress(quiet=options_given["form"] is not _AnswerFormat.TABLE) as report:
            table = open_pag(options_given["store"]).each(analysis.name, parameters, progress=report)
    else:
        between = window.pop("between")
        if options_given["every"] is None or any(value is not None for value in window.values()):
            message = "--every and --step make windows of the whole run, or of --between FROM TO; --step needs --every."
            raise InvalidParameterError(message)
        every_ns, step_ns = (
            None if options_given[name] is None else nanoseconds(options_given[name]) for name in ("every", "step")
        )
        facts = {"every_ns": every_ns, "step_ns": every_ns if step_ns is None else step_ns}
        table = open_pag(options_given["store"]).series(
            analysis.name, parameters, every_ns=every_ns or 0, step_ns=step_ns, between=between
        )
    rows = table.to_pylist()
    if options_given["form"] is _AnswerFormat.JSON:
        print_json(
            {**facts, **plain_parameters(parameters), analysis.rows if options_given["each"] else "windows": rows}
        )
    elif options_given["form"] is _AnswerFormat.CSV:
        print_csv(rows, table.column_names)
    else:
        show = print_markdown if options_given["form"] is _AnswerFormat.MARKDOWN else print_rows
        top = options_given["top"]
        columns = table.column_names
        if options_given["each"]:
            columns = ["epoch", *(name for name in analysis.columns or columns if name != "epoch")]
        names = open_pag(options_given["store"]).run.worker_names
        show(with_worker_names(rows[:top], names), columns, f"{analysis.name} ({min(top, len(rows))} of {len(rows)})")


def _print(
    analysis: Analysis[Any],
    result: pa.Table | Report,
    *,
    form: _AnswerFormat,
    top: int,
    workers: Mapping[int, str],
) -> None:
    table = table_of(result)
    rows = table.to_pylist()
    report: Report | None = None if result is table else result
    if form is _AnswerFormat.CSV:
        print_csv(rows, table.column_names)
        return
    heaviest = analysis.heaviest
    ranked = sorted(rows, key=lambda row: -(row[heaviest] or 0)) if heaviest else rows
    shown = with_worker_names(ranked[:top], workers)
    title = f"{'heaviest first' if heaviest else analysis.name} ({min(top, len(rows))} of {len(rows)})"
    columns = list(analysis.columns) or table.column_names
    headline = report.headline().splitlines() if report else []
    if form is _AnswerFormat.MARKDOWN:
        markdown = report.markdown(top=top) if report else None
        if markdown is not None:
            sys.stdout.write(markdown + "\n")
        else:
            for line in headline:
                sys.stdout.write(line + "\n\n")
            print_markdown(shown, columns, f"{analysis.name}: {title}")
        return
    text = report.text(top=top) if report else None
    if text is not None:
        print_text(text)
        return
    for line in headline:
        stdout().print(line, markup=False)
    print_rows(shown, columns, title)
