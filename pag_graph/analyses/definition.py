"""What an analysis is: one frozen value, from which every surface is made.

The CLI command with its options, the Spark job, the method of `Pag`, the page of the documentation and the schema of
the result all come from it. A definition holds names only; the module behind it is imported when somebody asks for
more, so that listing all analyses costs nothing.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import typing
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from types import UnionType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.model.enums import RuleSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    import pyarrow as pa

    from pag_graph.graph.snapshot import Run, Window

_PACKAGE = "pag_graph.analyses"


class Scope(StrEnum):
    """What an analysis looks at."""

    WINDOW = "window"
    """One window: ``f(snapshot, parameters)``."""
    RUN = "run"
    """All rounds of a run: ``part(snapshot, parameters)`` for each, and ``f(run, parameters, parts=...)`` over their
    rows; or ``f(run, parameters)``, where rounds cannot be looked at one by one."""
    PAIR = "pair"
    """Two windows, or two lists of windows: ``f(before, after, parameters)``."""


@runtime_checkable
class Result(Protocol):
    """What an analysis may return instead of a table, if there is more to say than rows."""

    @property
    def table(self) -> pa.Table:
        """Rows of the analysis' schema."""

    def summary(self) -> dict[str, Any]:
        """Return what holds for all rows, as plain values."""


@dataclass(frozen=True, slots=True)
class Flags:
    """Spellings of a parameter on the command line, where they are not made of its name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """How to draw a result."""

    kind: typing.Literal["bars", "lines", "matrix", "timeline"]
    """A timeline shows the window itself, and takes no columns."""
    x: tuple[str, ...] = ()
    """Columns that together name a bar, or that lie along the first axis."""
    y: tuple[str, ...] = ()
    """Columns that are measured, side by side; for a matrix the column along the second axis."""
    value: str | None = None
    """For a matrix: column that gives the shade."""
    colour: tuple[str, ...] = ()
    """Columns that tell series apart; of bars they are stacked."""
    panel: str | None = None
    """Column that makes a panel of its own for each of its values."""
    unit: str | None = None
    """Column with the unit of what is measured, where its name does not say it: ns, or share."""
    interval: tuple[str, str] | None = None
    """For bars: columns with the ends of an interval around what is measured."""

    @property
    def columns(self) -> set[str]:
        """All columns that it shows."""
        named = {*self.x, *self.y, *self.colour, *(self.interval or ())}
        return named | {name for name in (self.value, self.panel, self.unit) if name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One field of a parameters dataclass."""

    name: str
    kind: Any
    """Its type without `Annotated`."""
    help: str
    default: Any
    """`dataclasses.MISSING` where one must be given."""
    flags: tuple[str, ...] = ()

    @property
    def optional(self) -> bool:
        """Whether it may be None."""
        return type(None) in typing.get_args(self.kind) and typing.get_origin(self.kind) is not typing.Literal

    @property
    def item(self) -> Any:
        """Type of a value: without ``| None``, and of one item of a tuple."""
        kind = self.kind
        if self.optional:
            rest = [part for part in typing.get_args(kind) if part is not type(None)]
            kind = rest[0] if len(rest) == 1 else str
        return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind

    @property
    def many(self) -> bool:
        """Whether it is a tuple of any length."""
        kinds = [self.kind, *typing.get_args(self.kind)] if self.optional else [self.kind]
        return any(typing.get_origin(kind) is tuple for kind in kinds)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it can have, where they are few."""
        if typing.get_origin(self.item) is typing.Literal:
            return tuple(str(value) for value in typing.get_args(self.item))
        if isinstance(self.item, type) and issubclass(self.item, StrEnum):
            return tuple(str(value) for value in self.item)
        return ()

    def convert(self, value: Any) -> Any:
        """Return a value of the parameter's type from one that was read from a command line or from JSON.

        Raises
        ------
        InvalidParameterError
            If that cannot be.
        """
        if value is None and self.optional:
            return None
        if self.many:
            items = [value] if isinstance(value, str) or not isinstance(value, list | tuple) else value
            return tuple(self._convert_one(item) for item in items)
        return self._convert_one(value)

    def _convert_one(self, value: Any) -> Any:
        flag = self.flags[-1] if self.flags else f"--{self.name.replace('_', '-')}"
        if self.choices:
            if str(value) not in self.choices:
                message = f"{flag} is {str(value)!r}; it must be {' or '.join(self.choices)}."
                raise InvalidParameterError(message)
            return value if typing.get_origin(self.item) is typing.Literal else self.item(value)
        if isinstance(self.item, UnionType):
            # A number, or a name: a text stays one, also where it is made of digits.
            if isinstance(value, typing.get_args(self.item)) and not isinstance(value, bool):
                return value
            message = f"{flag} is {value!r}, and must be of type {self.item}."
            raise InvalidParameterError(message)
        kind = self.item if isinstance(self.item, type) else str
        fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if fits or (kind is float and isinstance(value, int) and not isinstance(value, bool)):
            return kind(value)
        try:
            if isinstance(value, str) and kind is bool:
                # As JSON, Python and shells write it.
                return {"true": True, "false": False}[value.lower()]
            if isinstance(value, str):
                return kind(value)
        except (ValueError, KeyError):
            pass
        message = f"{flag} is {value!r}, and must be of type {kind.__name__}."
        raise InvalidParameterError(message)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis, by names; its function, parameters, schema and help are loaded when they are asked for."""

    name: str
    """As on the command line; with underscores, the module, the function and the method of `Pag`."""
    output: str
    """Name of the result's schema in `pag_graph.model.tables`; of other distributions in the module."""
    parameters_name: str | None = None
    """Name of the dataclass of parameters in the module, if the function takes any."""
    example: str = ""
    """Arguments of an example call, after the store."""
    example_values: tuple[tuple[str, Any], ...] = ()
    """Names and values of parameters that an example in Python, and of a job, must give."""
    package: str = _PACKAGE
    """Package that the module is in; another one for analyses of other distributions."""
    module_name: str = ""
    """Module in the package, where it is not the name."""
    function_name: str = ""
    """Function in it, where it is not the name."""
    part_name: str = ""
    """For the scope `RUN`: function of one snapshot, if there is one."""
    many_name: str = ""
    """Function of many windows at once, where there is one that reads them together: ``f(run, windows, parameters)``
    gives the rows of the function, or of the part, with a column ``window``, the place in the list."""
    choose_name: str = ""
    """For parts: function of the run and the parameters that says which rounds to look at, where not at all."""
    scope: Scope = Scope.WINDOW
    rows: str = "rows"
    """What the rows are called in JSON."""
    heaviest: str = ""
    """Column by which a table for people is sorted, most first; the result's own order where it is empty."""
    columns: tuple[str, ...] = ()
    """Columns of a table for people; all where it is empty."""
    cypher: str | None = None
    """Query of the Cypher library that answers the same in Neo4j."""
    chart: Chart | None = None
    rules: frozenset[RuleSet] = field(default=frozenset(RuleSet))
    """Rule sets whose runs it can analyse."""
    across: bool = False
    """Whether the function, or the part, also takes `pag_graph.analyses.frames.Frames`, so that Spark can spread one
    window over many tasks."""
    alarm: bool = False
    """Whether rows are bad news: the command's exit code then says that there are any."""

    @property
    def method(self) -> str:
        """Name in Python."""
        return self.name.replace("-", "_")

    @property
    def only_rules(self) -> RuleSet | None:
        """The rule set that a run has to be built with for it, where that is not the usual one."""
        return None if RuleSet.TIMELY in self.rules else min(self.rules)

    @property
    def example_store(self) -> str:
        """What its examples call the store that they look at."""
        return "run.pag" if self.only_rules is None else f"run-{self.only_rules}.pag"

    @property
    def _file(self) -> str:
        return self.module_name or self.method

    @cached_property
    def module(self) -> ModuleType:
        """The module behind it."""
        return import_module(f"{self.package}.{self._file}")

    @cached_property
    def function(self) -> Callable[..., pa.Table | Result]:
        """What computes it; arguments depend on the scope."""
        function: Callable[..., pa.Table | Result] = getattr(self.module, self.function_name or self.method)
        return function

    @cached_property
    def part(self) -> Callable[..., pa.Table]:
        """For the scope `RUN`: what computes the rows of one snapshot."""
        part: Callable[..., pa.Table] = getattr(self.module, self.part_name)
        return part

    @cached_property
    def parameters(self) -> type | None:
        """Dataclass of parameters."""
        return getattr(self.module, self.parameters_name) if self.parameters_name else None

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        own = self.package == _PACKAGE
        return getattr(import_module("pag_graph.model.tables") if own else self.module, self.output)

    @cached_property
    def help(self) -> str:
        """First line of the function's docstring; the module is read for it, and not imported."""
        return self.doc.splitlines()[0]

    @cached_property
    def doc(self) -> str:
        """The function's docstring."""
        name = self.function_name or self.method
        source = (pkgutil.get_data(self.package, f"{self._file}.py") or b"").decode()
        # Of all analyses' modules only these functions are parsed: the help of the command waits for it.
        found = re.search(rf"^def {name}\(.*?(?=^[^\s)]|\Z)", source, re.MULTILINE | re.DOTALL)
        for node in ast.parse(found[0]).body if found else ():
            if isinstance(node, ast.FunctionDef):
                return ast.get_docstring(node) or ""
        # A function that comes from elsewhere, or a package without sources.
        return inspect.getdoc(self.function) or ""

    @cached_property
    def parameter_list(self) -> tuple[Parameter, ...]:
        """The parameters, in the order of the dataclass."""
        if self.parameters is None:
            return ()
        hints = typing.get_type_hints(self.parameters, include_extras=True)
        return tuple(_parameter(item.name, hints[item.name], item.default) for item in fields(self.parameters))

    def make_parameters(self, values: Mapping[str, Any] | None = None) -> Any:
        """Return the parameters dataclass, from values as they come from a command line or from JSON.

        Parameters
        ----------
        values
            By name; defaults where absent.

        Returns
        -------
        dataclass or None
            None for an analysis without parameters.

        Raises
        ------
        InvalidParameterError
            If there is no such parameter, one is missing, or has another type.
        """
        known = {parameter.name: parameter for parameter in self.parameter_list}
        given = dict(values or {})
        for name in given:
            if name not in known:
                message = f"{self.name} has no parameter {name!r}; it has {', '.join(known) or 'none'}."
                raise InvalidParameterError(message)
        for name, parameter in known.items():
            if parameter.default is MISSING and name not in given:
                message = f"{self.name} needs the parameter {name!r}: {parameter.help}"
                raise InvalidParameterError(message)
        if self.parameters is None:
            return None
        return self.parameters(**{name: known[name].convert(value) for name, value in given.items()})

    def check_rules(self, rules: RuleSet) -> None:
        """Refuse a run whose rule set the analysis has no meaning for.

        Raises
        ------
        UnsupportedPlanError
            With the rule sets that it has one for.
        """
        if rules not in self.rules:
            able = " or ".join(sorted(str(rule) for rule in self.rules))
            message = f"{self.name} is defined for runs of the rule set {able}, and this one was built with {rules}."
            raise UnsupportedPlanError(message, f"Build the trace with `--rules {self.only_rules or RuleSet.TIMELY}`.")

    def check_across(self) -> None:
        """Refuse to be spread over partitions, if it follows edges one after the other.

        Raises
        ------
        UnsupportedPlanError
            With what to do instead.
        """
        if not self.across:
            message = f"{self.name} follows a window's edges one after the other, so it needs all of them in one task."
            hint = "Leave out the Spark session: engine='spark' gives every window a task of its own."
            raise UnsupportedPlanError(message, hint)

    def chosen(self, run: Run, rounds: list[Window], parameters: Any) -> list[Window]:
        """Return the rounds to look at, for an analysis of the whole run."""
        if not self.choose_name:
            return rounds
        windows: list[Window] = getattr(self.module, self.choose_name)(run, parameters)
        return windows

    def over(self, run: Run, windows: Sequence[Window], parameters: Any = None) -> pa.Table:
        """Look at many windows, reading what they show together.

        Parameters
        ----------
        run
            The run.
        windows
            In time order.
        parameters
            Of the analysis.

        Returns
        -------
        pa.Table
            The rows of all windows in their order, each with the place of its ``window``.
        """
        import pyarrow as pa

        arguments = () if self.parameters is None else (parameters,)
        # Epochs of the rule set st2 share no edge, whatever their clocks say.
        apart = run.rules is RuleSet.ST2 or all(a.end_ns <= b.start_ns for a, b in pairwise(windows))
        if self.many_name and apart and any(window.span_ns > 0 for window in windows):
            many: pa.Table = getattr(self.module, self.many_name)(run, windows, *arguments)
            if self.part_name:
                return many
            # As the function itself has it: the columns of the schema, and their types.
            place = many["window"].cast(pa.int64())
            return many.select(self.schema.names).cast(self.schema).append_column("window", place)
        function = self.part if self.part_name else self.function
        tables = []
        for place, snapshot in enumerate(run.snapshots(windows)):
            table = table_of(function(snapshot, *arguments))
            tables.append(table.append_column("window", pa.repeat(pa.scalar(place, pa.int64()), table.num_rows)))
        return pa.concat_tables(tables, promote_options="permissive")

    def __call__(self, *subjects: Any, parameters: Any = None, **more: Any) -> pa.Table | Result:
        """Run the analysis on what its scope asks for."""
        arguments = subjects if self.parameters is None else (*subjects, parameters)
        return self.function(*arguments, **more)


def table_of(result: pa.Table | Result) -> pa.Table:
    """Return the rows of what an analysis returned."""
    return result.table if isinstance(result, Result) else result


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    kind, text = hint, ""
    flags: tuple[str, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        kind, *notes = typing.get_args(hint)
        text = next((note for note in notes if isinstance(note, str)), "")
        flags = next((note.names for note in notes if isinstance(note, Flags)), ())
    return Parameter(name=name, kind=kind, help=text, default=default, flags=flags)
