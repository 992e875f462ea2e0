"""Everything that users hold in their hands, a line each: commands, Python names, columns, findings, errors, jobs.

Wording of helps and docstrings is no surface, and neither are annotations: a type that says more changes nothing for
who calls. `python -m tests.support.surfaces` adds to the list what is new, and never takes a line away.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import runpy
import sys
import tempfile
import typing
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.analyses import Analysis
    from pag_graph.api import Pag

LIST = Path(__file__).parents[1] / "meta" / "surfaces.txt"

_MODULES = {
    "pag_graph": (),
    "pag_graph.analyses": (),
    "pag_graph.api": ("make_engine", "write_motif"),
    "pag_graph.cypher": (),
    "pag_graph.engines.session": ("graphframes_jar", "spark_session"),
    "pag_graph.errors": (),
    "pag_graph.model.enums": (),
    "pag_graph.motif.query": ("ask",),
    "pag_graph.motif.shape": ("PAG_SHAPE",),
    "pag_graph.rules.rows": ("RuleParameters",),
    "pag_graph.samples": (),
    "pag_graph.sinks.graphframes": ("find",),
    "pag_graph.sources": (),
    "pag_graph.testing.reference": (),
    "pag_graph.testing.strategies": (),
    "pag_graph.testing.traces": (),
}
"""Modules that pages and examples import from, and the names they take beside those that a module lists itself."""

_VARIABLE = re.compile(r"(PAG|NEO4J|PYSPARK|SPARK|JAVA|CARGO|XDG)_[A-Z0-9_]+")
_ENDED = 2


def surfaces() -> list[str]:
    """Return all lines, sorted."""
    return sorted(
        {
            *_commands(),
            *_python(),
            *_tables(),
            *_errors(),
            *_findings(),
            *_jobs(),
            *_queries(),
            *_formats_and_variables(),
        }
    )


# --- Commands and jobs ---------------------------------------------------------------------------------------------


def _commands() -> Iterator[str]:
    from typer.main import get_command

    from pag_graph.cli.app import EXIT_CODES, app

    root = get_command(app)
    yield from _command("pag", root, root.make_context("pag", [], resilient_parsing=True))
    for kind, code in EXIT_CODES:
        yield f"exit {code}: {kind.__name__}"


def _command(path: str, command: Any, context: Any) -> Iterator[str]:
    yield f"command {path}"
    for parameter in command.params:
        names = " ".join(sorted({*parameter.opts, *parameter.secondary_opts}))
        kind = "argument" if parameter.param_type_name == "argument" else "option"
        facts = [_type_name(parameter), f"default {_shown(parameter.default)}"]
        facts += ["required"] * bool(parameter.required)
        facts += [f"{parameter.nargs} values"] * (parameter.nargs not in {1, 0})
        facts += ["repeated"] * bool(getattr(parameter, "multiple", False))
        facts += [f"from {parameter.envvar}"] * bool(parameter.envvar)
        yield f"command {path} {kind} {names}: {', '.join(facts)}"
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        # Commands of analyses are made when they are called.
        _, subcommand, _ = command.resolve_command(context, [name])
        yield from _command(
            f"{path} {name}", subcommand, subcommand.make_context(name, [], context, resilient_parsing=True)
        )


def _type_name(parameter: Any) -> str:
    """Return the values that Typer reads: the words of an enumeration, or the name of a type with its bounds."""
    kind = parameter.type_descriptor.annotation
    if parameter.metavar and "|" in parameter.metavar:
        return parameter.metavar
    kinds = [kind, *typing.get_args(kind)]
    words = [str(word.value) for item in kinds if inspect.isclass(item) and issubclass(item, Enum) for word in item]
    name = "|".join(words) or getattr(kind, "__name__", str(kind))
    limits = [parameter.min, parameter.max]
    return name + ("" if limits == [None, None] else f" {limits[0]}..{limits[1]}")


class _ParsedError(BaseException):
    """Carries the parser of a job out of it, before it does anything."""


def _jobs() -> Iterator[str]:
    def stop(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise _ParsedError(parser)

    for job in sorted((_package().parent / "spark_jobs").glob("*.py")):
        yield f"job {job.name}"
        with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
            try:
                runpy.run_path(str(job), run_name="__main__")
            except _ParsedError as parsed:
                parser = parsed.args[0]
        for action in parser._actions:
            names = " ".join(sorted(action.option_strings)) or action.dest
            facts = [type(action).__name__.strip("_"), f"default {_shown(action.default)}"]
            facts += ["|".join(map(str, action.choices))] if action.choices else []
            facts += ["required"] * action.required
            yield f"job {job.name} {names}: {', '.join(facts)}"


# --- Python --------------------------------------------------------------------------------------------------------


def _python() -> Iterator[str]:
    shown: dict[Any, str] = {}
    for name, unlisted_names in _MODULES.items():
        module = import_module(name)
        for item in sorted({*getattr(module, "__all__", ()), *unlisted_names} or _own_names(module)):
            value = getattr(module, item)
            if inspect.isclass(value) and value in shown:
                yield f"python {name}.{item}: {shown[value]}"
            elif not inspect.ismodule(value):
                yield from _name(f"{name}.{item}", value)
            if inspect.isclass(value):
                shown.setdefault(value, f"{name}.{item}")
    yield from _answers()


def _own_names(module: Any) -> set[str]:
    """Return the public names that a module without ``__all__`` defines itself; constants are not told from imports."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


def _name(path: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"python {path}{'' if issubclass(value, Enum | BaseException) else _signature(value)}"
        yield from _members(path, value)
    elif callable(value) and not dataclasses.is_dataclass(value):
        yield f"python {path}{_signature(value)}"
    else:
        yield f"python {path}: a value"


def _members(path: str, kind: type) -> Iterator[str]:
    """Give the public members of a class, with those that it inherits from this package."""
    if issubclass(kind, Enum):
        yield from (f"python {path}.{member.name} = {member.value!r}" for member in kind)
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    fields |= set(getattr(kind, "_fields", ()))
    yield from (f"python {path}.{name}: a field" for name in sorted(fields) if not name.startswith("_"))
    for base in kind.__mro__:
        if not base.__module__.startswith("pag_graph"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or name in fields or isinstance(member, Enum):
                continue
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if isinstance(plain, FunctionType):
                yield f"python {path}.{name}{_signature(plain)}"
            elif isinstance(plain, property) or hasattr(plain, "__get__"):
                yield f"python {path}.{name}: an attribute"


def _signature(function: Any) -> str:
    """Return names, kinds and defaults of parameters."""
    parameters = inspect.signature(function).parameters.values()
    return str(
        inspect.Signature(
            [
                parameter.replace(
                    annotation=parameter.empty,
                    default=parameter.empty if parameter.default is parameter.empty else _Shown(parameter.default),
                )
                for parameter in parameters
                # It makes unknown names an error for type checkers; nobody can give it.
                if parameter.name != "unknown"
            ]
        )
    )


class _Shown:
    """Shows a default the same way in every process and wherever it is defined."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return _shown(self._value)


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_shown, value)))}}}"
    if isinstance(value, Path):
        return repr(str(value))
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if "Sentinel" in type(value).__name__ or "MISSING" in repr(value) or "UNSET" in repr(value):
        return "none"
    return "none" if value is None else re.sub(r" at 0x[0-9a-f]+", "", repr(value))


# --- Analyses and their answers ------------------------------------------------------------------------------------


def _answers() -> Iterator[str]:
    """Give what every analysis answers on a bundled trace: its class, and the keys of its summary."""
    import pag_graph
    from pag_graph.analyses import ANALYSES, Scope

    with tempfile.TemporaryDirectory() as folder:
        pags = {}
        for rules in ("timely", "st2"):
            store = Path(folder, rules)
            pag_graph.build(pag_graph.samples.path("skewed"), store, rules=rules, engine="local")
            pags[rules] = pag_graph.open(store)
        yield from (f"python run.{line}" for line in _run_names(pags["timely"]))
        for analysis in ANALYSES:
            words = [str(analysis.scope), f"rows under {analysis.rows!r}", f"rules {_shown(analysis.needs.rule_sets)}"]
            words += ["across partitions"] * analysis.across + ["alarm"] * analysis.alarm
            words += [f"query {analysis.cypher}"] if analysis.cypher else []
            yield f"analysis {analysis.name}: {', '.join(words)}"
            if analysis.parameters is not None:
                yield from _name(f"parameters of {analysis.name}", analysis.parameters)
            if analysis.scope is not Scope.PAIR or analysis.name == "diff":
                yield from _answer(pags[str(analysis.needs.usual)], analysis)
            for line in _columns(analysis.schema):
                yield f"column of {analysis.name}: {line}"


def _answer(pag: Pag, analysis: Analysis) -> Iterator[str]:
    result = pag.analyse(analysis.name, **dict(analysis.example_values))
    if isinstance(result, pa.Table):
        yield f"answer of {analysis.name}: a table"
        return
    yield f"answer of {analysis.name}: {type(result).__name__}"
    yield from (f"answer of {analysis.name}: key {key}" for key in result.summary())
    yield from _members(f"answer of {analysis.name}", type(result))


def _run_names(pag: Pag) -> Iterator[str]:
    """Give what `Pag.run` offers: pages call it."""
    for line in _members("run", type(pag.run)):
        yield line.removeprefix("python run.")


# --- Tables, errors, findings, queries -----------------------------------------------------------------------------


def _tables() -> Iterator[str]:
    from pag_graph.model import live_tables, tables

    named = {f"trace {name.removeprefix('TRACE_').lower()}": name for name in dir(tables) if name.startswith("TRACE_")}
    for title, name in named.items():
        if isinstance(schema := getattr(tables, name), pa.Schema):
            yield from (f"column of {title}: {line}" for line in _columns(schema))
    for name, schema in {**tables.STORE_TABLES, **live_tables.LIVE_TABLES}.items():
        yield from (f"column of store {name}: {line}" for line in _columns(schema))
    yield f"format of traces: {tables.TRACE_FORMAT_VERSION}"
    yield f"format of stores: {tables.STORE_FORMAT_VERSION}"


def _columns(schema: pa.Schema) -> Iterator[str]:
    for place, field in enumerate(schema):
        optional = ", may be absent" if b"optional" in (field.metadata or {}) else ""
        yield f"{place:02d} {field.name} {field.type}{'' if field.nullable else ' not null'}{optional}"


def _errors() -> Iterator[str]:
    from pag_graph import errors

    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if kind.__module__ == errors.__name__:
            bases = ", ".join(base.__name__ for base in kind.__bases__)
            yield f"error {name}({bases}): {kind.condition}"


def _findings() -> Iterator[str]:
    """Give the findings that pages explain, as long as code names them."""
    docs = _package().parent / "docs"
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(_package().rglob("*.py")))
    for page in ("model.md", "spark.md"):
        section = (docs / page).read_text("utf-8")
        if page == "model.md":
            section = section.partition("## Findings")[2].partition("\n## ")[0]
        for row in re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", section, re.MULTILINE):
            for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", row):
                if f'"{name}"' in text:
                    yield f"finding {name}"


def _queries() -> Iterator[str]:
    from pag_graph.cypher import list_queries, load_query
    from pag_graph.motif.patterns import PATTERNS

    for name in list_queries():
        query = load_query(name)
        yield f"query {name}"
        for parameter in query.params.values():
            default = "required" if parameter.required else f"default {_shown(parameter.default)}"
            yield f"query {name} ${parameter.name}: {parameter.kind or 'a column'}, {default}"
        if query.example is not None:
            yield f"query {name} returns {', '.join(query.example.columns)}"
    for name, pattern in PATTERNS.items():
        values = ", ".join(f"{key}={value.default}" for key, value in pattern.parameters.items())
        yield f"pattern {name}({values}): {', '.join(pattern.shown)}"


def _formats_and_variables() -> Iterator[str]:
    from pag_graph.sources import FORMATS

    yield from (f"format of logs: {name}" for name in FORMATS)
    for path in sorted(_package().rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        # What tests start, and codes of errors, are no variables that users set.
        if path.name != "errors.py" and "testing" not in path.parts:
            yield from (f"environment {text}" for text in texts if _VARIABLE.fullmatch(text))


def _package() -> Path:
    import pag_graph

    return Path(pag_graph.__file__).parent


def main() -> int:
    """Add what is new to the list; name what has vanished, and leave it there."""
    listed = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    today = surfaces()
    LIST.write_text("".join(f"{line}\n" for line in sorted({*listed, *today})), encoding="utf-8")
    vanished = sorted({*listed} - {*today})
    for line in vanished:
        sys.stderr.write(f"gone or changed: {line}\n")
    if vanished:
        sys.stderr.write(f"Delete what is meant to go or change from {LIST} by hand, with a line in CHANGELOG.md.\n")
    return _ENDED if vanished else 0


if __name__ == "__main__":
    sys.exit(main())
