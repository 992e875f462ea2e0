"""One command per analysis, made from its definition when it is called; `pag --help` needs its name and help only."""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING, asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from pag_graph.analyses import ANALYSES, Analysis, Parameter, Scope, table_of
from pag_graph.cli.output import Format, print_csv, print_json, print_markdown, print_rows, progress, stdout
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import EpochRole

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from pag_graph.analyses import Result
    from pag_graph.api import Pag

ALARM = 9
"""Exit code where an analysis that looks for violations found any."""

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Directory of a built store.", show_default=False)]
EpochOption = Annotated[int | None, typer.Option("--epoch", "-e", help="Epoch to look at; the slowest where absent.")]
RoleOption = Annotated[EpochRole | None, typer.Option("--role", help="Look at the startup or the shutdown instead.")]
BetweenOption = Annotated[
    tuple[int, int] | None,
    typer.Option("--between", metavar="FROM TO", help="Look at a free window, in ns from the run's origin."),
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="table for people, json or csv for programs.")]
TopOption = Annotated[int, typer.Option("--top", min=1, help="How many rows to show in a table.")]


class _AnswerFormat(StrEnum):
    """How to print the answer of an analysis."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


_COMMON: dict[str, tuple[Any, Any]] = {
    "form": (
        Annotated[
            _AnswerFormat,
            typer.Option("--format", "-f", help="table for people, json or csv for programs, markdown for issues."),
        ],
        _AnswerFormat.TABLE,
    ),
    "top": (TopOption, 20),
}
_WINDOW: dict[str, tuple[Any, Any]] = {
    "epoch": (EpochOption, None),
    "role": (RoleOption, None),
    "between": (BetweenOption, None),
}
_PAIR: dict[str, tuple[Any, Any]] = {
    "against": (
        Annotated[
            Path | None,
            typer.Option("--against", metavar="STORE", help="The run to compare with; without it, the same."),
        ],
        None,
    ),
    "against_epoch": (
        Annotated[int | None, typer.Option("--against-epoch", help="Its epoch; else the same, or the median round.")],
        None,
    ),
    "against_role": (
        Annotated[EpochRole | None, typer.Option("--against-role", help="Its startup or shutdown.")],
        None,
    ),
    "against_between": (
        Annotated[
            tuple[int, int] | None, typer.Option("--against-between", metavar="FROM TO", help="A free window of it.")
        ],
        None,
    ),
}
_OPTIONS = {
    Scope.WINDOW: {**_WINDOW},
    Scope.RUN: {},
    Scope.PAIR: {**_WINDOW, **_PAIR},
}


class AnalysisGroup(TyperGroup):
    """A group that knows the names of all analyses and makes their commands when they are called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._analyses = {analysis.name: analysis for analysis in ANALYSES}
        for name in self._analyses:
            self.commands.setdefault(name, TyperCommand(name=name))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first lines of all commands' help, analyses after the others."""
        del ctx
        others = [
            (name, (command.help or "").partition("\n\n")[0].replace("\n", " "))
            for name, command in self.commands.items()
            if name not in self._analyses
        ]
        for title, lines in (
            ("Commands", others),
            ("Analyses of a built graph", [(name, analysis.help) for name, analysis in self._analyses.items()]),
        ):
            with formatter.section(title):
                formatter.write_dl(lines)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run, made in full."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in self._analyses:
            command = command_of(self._analyses[name])
        return name, command, rest


def command_of(analysis: Analysis) -> Any:
    """Return the command of an analysis."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    text = f"{analysis.help}\n\nExample: pag {analysis.name} run.pag {analysis.example}".rstrip()
    settings = {"help_option_names": ["-h", "--help"]}
    app.command(analysis.name, help=text, context_settings=settings)(_callback(analysis))
    return typer.main.get_command(app)


def _callback(analysis: Analysis) -> Callable[..., None]:
    """Return a function whose signature Typer reads: the store, the window, the parameters, and the format."""
    taken = {**_OPTIONS[analysis.scope], **_COMMON}
    options: dict[str, tuple[Any, Any]] = {"store": (StoreArgument, inspect.Parameter.empty)}
    options.update(_OPTIONS[analysis.scope])
    options.update({parameter.name: _option(parameter) for parameter in analysis.parameter_list})
    options.update(_COMMON)

    def run(**given: Any) -> None:
        values = {
            parameter.name: parameter.convert(given[parameter.name])
            for parameter in analysis.parameter_list
            if given[parameter.name] is not None and given[parameter.name] != []
        }
        _run(analysis, {name: given[name] for name in ("store", *taken)}, values)

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


def check_window(epoch: int | None, role: EpochRole | None, between: tuple[int, int] | None) -> dict[str, Any]:
    """Return the choice of a window as arguments of `Pag`.

    Raises
    ------
    InvalidParameterError
        If there is more than one.
    """
    if sum(value is not None for value in (epoch, role, between)) > 1:
        message = "Give only one of --epoch, --role and --between."
        raise InvalidParameterError(message)
    return {"epoch": epoch, "role": role, "between": between}


def open_pag(store: Path) -> Pag:
    """Open a store; loads what reading needs."""
    from pag_graph.api import Pag

    return Pag(store)


def _run(analysis: Analysis, given: dict[str, Any], values: dict[str, Any]) -> None:
    parameters = analysis.make_parameters(values)
    options: dict[str, Any] = {}
    if analysis.scope is not Scope.RUN:
        options = check_window(given["epoch"], given["role"], given["between"])
    if analysis.scope is Scope.PAIR:
        other = {name: given[f"against_{name}"] for name in ("epoch", "role", "between")}
        options |= {f"against_{name}": value for name, value in check_window(**other).items()}
        options["against"] = open_pag(given["against"]) if given["against"] is not None else None
    pag = open_pag(given["store"])
    with progress(quiet=given["form"] is not _AnswerFormat.TABLE or analysis.scope is not Scope.RUN) as report:
        result = pag.analyse(analysis.name, parameters, progress=report, **options)
    facts: dict[str, Any] = {}
    if analysis.scope is Scope.WINDOW:
        facts = _window_facts(pag, options)
    if parameters is not None:
        facts |= {name: _plain(value) for name, value in asdict(parameters).items()}
    _print(analysis, result, facts, form=given["form"], top=given["top"])
    if analysis.alarm and table_of(result).num_rows:
        sys.stdout.flush()
        raise typer.Exit(ALARM)


def _window_facts(pag: Pag, options: dict[str, Any]) -> dict[str, Any]:
    chosen = any(value is not None for value in options.values())
    window = pag.run.window(**options) if chosen else pag.run.slowest()
    return {
        "window": window.name,
        "epoch": window.epoch,
        "role": str(window.role) if window.role else None,
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "span_ns": window.span_ns,
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _print(
    analysis: Analysis, result: pa.Table | Result, facts: dict[str, Any], *, form: _AnswerFormat, top: int
) -> None:
    table = table_of(result)
    rows = table.to_pylist()
    if form is _AnswerFormat.JSON:
        more = result.summary() if result is not table else {}
        print_json({**facts, **more, analysis.rows: rows})
        return
    if form is _AnswerFormat.CSV:
        print_csv(rows, table.column_names)
        return
    heaviest = analysis.heaviest
    ranked = sorted(rows, key=lambda row: -(row[heaviest] or 0)) if heaviest else rows
    title = f"{'heaviest first' if heaviest else analysis.name} ({min(top, len(rows))} of {len(rows)})"
    columns = list(analysis.columns) or table.column_names
    if form is _AnswerFormat.MARKDOWN:
        report = getattr(result, "markdown", None)
        if report is not None:
            sys.stdout.write(report(top=top) + "\n")
        else:
            print_markdown(ranked[:top], columns, f"{analysis.name}: {title}")
        return
    headline = getattr(result, "headline", None)
    if headline is not None:
        stdout().print(headline(), markup=False)
    print_rows(ranked[:top], columns, title)
