"""The methods of `Pag`, made from the definitions: ``python -m pag_graph.analyses.signatures > pag_graph/methods.py``.

Their signatures stand in a file, so that editors complete them, type checkers find slips of the pen, and nothing is
imported to show them. A test compares the file.
"""

from __future__ import annotations

import sys
import textwrap
import typing
from dataclasses import MISSING
from enum import StrEnum
from types import UnionType
from typing import Any

from pag_graph.analyses import ANALYSES, Analysis, Parameter, RunAnalysis, Scope

_HEAD = '''\
"""A method for every analysis, made from the definitions: change them, and run `pag_graph.analyses.signatures`.

A method takes the fields of its parameters one by one, or all of them at once as `parameters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Never, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

{imports}
    from pag_graph.api import Pag
    from pag_graph.builder.engine import Engine
    from pag_graph.model.enums import ActivityType, EpochRole

__all__ = ["AnalysisMethods"]


class AnalysisMethods:
    """What `Pag` can be asked.

    Every analysis of a window takes `epoch`, `role`, `between` or `latency` to choose it, and the slowest round where
    none is given: see `Pag.snapshot`. A name that is no parameter is an error: for type checkers, because nothing is of
    the type `Never`, and when it runs.
    """

    def _ask(self, name: str, given: dict[str, Any]) -> Any:
        """Run an analysis with what its method was called with."""
        raise NotImplementedError
'''
_BY_HAND = {"critical-path"}
"""Methods that `Pag` has itself."""
_WINDOW = (
    ("epoch", "int | None", "Number of the epoch to look at; the slowest round where nothing is chosen."),
    ("role", 'EpochRole | Literal["startup", "shutdown"] | None', "The startup or the shutdown instead."),
    ("between", "tuple[int, int] | None", "A free window instead, in nanoseconds from the run's origin."),
    ("latency", "int | None", "Number of an epoch instead: from its first event on any worker to its last."),
)
_SPARK = ("spark", "SparkSession | None", "Spread every window over this session's executors; the answer is the same.")
_ROUNDS = (
    ("engine", "Engine | str", "Where the rounds are looked at; each is one task."),
    ("progress", "Callable[[str, int, int], None] | None", "Called with (label, done, all)."),
)
_AGAINST = ("against", "Pag | None", "The other run to compare with, if it is not this one.")
_DEFAULTS = {"engine": '"local"'}
_WIDTH = 120


def source() -> str:
    """Return the text of ``pag_graph/methods.py``.

    Returns
    -------
    str
        Python.
    """
    analyses = [analysis for analysis in ANALYSES if analysis.name not in _BY_HAND]
    names: dict[str, set[str]] = {}
    for analysis in analyses:
        for type_ in (analysis.parameters, analysis.report):
            if type_ is not None:
                names.setdefault(type_.__module__, set()).add(type_.__name__)
    imports = "\n".join(f"    from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names))
    return _HEAD.format(imports=imports) + "".join(_method(analysis) for analysis in analyses)


def _window_arguments(analysis: Analysis[Any]) -> list[tuple[str, str, str]]:
    """Return the arguments beside the parameters: name, type and meaning."""
    if analysis.scope is Scope.RUN:
        # Where rounds are not looked at one by one there is nothing to give to an engine.
        parts = isinstance(analysis, RunAnalysis) and analysis.part is not None
        return [*((_SPARK,) if analysis.across else ()), *(_ROUNDS if parts else ())]
    if analysis.scope is Scope.PAIR:
        other_side = [
            (f"against_{name}", kind, f"Of the other side: {text[0].lower()}{text[1:]}") for name, kind, text in _WINDOW
        ]
        return [*_WINDOW, _AGAINST, *other_side]
    return [*_WINDOW, *((_SPARK,) if analysis.across else ())]


def _method(analysis: Analysis[Any]) -> str:
    window_arguments = _window_arguments(analysis)
    kind = "None" if analysis.parameters is None else f"{analysis.parameters.__name__} | None"
    lines = ["self,", f"parameters: {kind} = None,"]
    lines.append("*,")
    lines += [f"{name}: {kind} = {_DEFAULTS.get(name, 'None')}," for name, kind, _ in window_arguments]
    lines += [f"{item.name}: {_annotation(item.kind)}{_default(item)}," for item in analysis.parameter_list]
    lines.append("**unknown: Never,")
    returned = "pa.Table" if analysis.report is None else analysis.report.__name__
    shown = f'"{returned}"'
    return "\n".join(
        [
            f"\n    def {analysis.method}(",
            *(f"        {line}" for line in lines),
            f"    ) -> {returned}:",
            textwrap.indent(_doc(analysis, window_arguments, returned), "        "),
            f'        return cast({shown}, self._ask("{analysis.name}", locals()))',
            "",
        ]
    )


def _doc(analysis: Analysis[Any], window_arguments: list[tuple[str, str, str]], returned: str) -> str:
    parts = [f'"""{analysis.help}', "", "Parameters", "----------", "parameters"]
    parts += _meaning("All that follow the choice of windows, at once." if analysis.parameters else "None.")
    for name, meaning in [
        *((name, text) for name, _, text in window_arguments),
        *((item.name, item.help) for item in analysis.parameter_list),
    ]:
        parts += [name, *_meaning(meaning)]
    parts += ["unknown", *_meaning("Nothing: an error, as a method has no other arguments.")]
    parts += ["", "Returns", "-------", returned]
    parts += _meaning(f"See docs/analyses.md#{analysis.name} for the rows, `{analysis.output}`.")
    return "\n".join([*parts, '"""'])


def _meaning(text: str) -> list[str]:
    # 8 columns of the class and the method, and 4 of the list.
    return textwrap.indent(textwrap.fill(text, _WIDTH - 12), "    ").splitlines()


def _annotation(kind: Any) -> str:
    """Return a type as it is written in code."""
    parts = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return f"Literal[{', '.join(f'{chr(34)}{value}{chr(34)}' for value in parts)}]"
    if origin in {typing.Union, UnionType}:
        return " | ".join(_annotation(part) for part in parts)
    if origin is tuple:
        return f"Sequence[{_annotation(parts[0])}] | {_annotation(parts[0])}"
    if kind is type(None):
        return "None"
    return f"{kind.__name__} | str" if issubclass(kind, StrEnum) else str(kind.__name__)


def _default(item: Parameter) -> str:
    if item.default is MISSING:
        return ""
    return f' = "{item.default}"' if isinstance(item.default, str) else f" = {item.default!r}"


if __name__ == "__main__":
    sys.stdout.write(source())
