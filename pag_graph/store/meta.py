"""What holds for a whole trace: ``meta.json``, checked entry by entry."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pag_graph.errors import FormatVersionError, TraceFormatError
from pag_graph.model.enums import RuleSet
from pag_graph.model.tables import TRACE_FORMAT_VERSION
from pag_graph.store.safe_files import parse_json
from pag_graph.store.trace_columns import MOST_COUNT
from pag_graph.store.trace_files import CONVERT_AGAIN, META

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_T = TypeVar("_T")

_WITHOUT_GAPS = frozenset({"pag-timely"})
"""Formats whose writers number a worker's events 1, 2, 3 and so on, without gaps."""
_IDLE_LOGGED = {"st2-raw": False, "st2-lrs": False, "timely-prototype": True, "pag-timely": True}
"""For traces without the entry, by format: whether such logs say when a worker had nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """Where a trace comes from."""

    system: str
    """The system that ran, such as ``timely``."""
    version: str
    """Its version as the log states it; empty when the log does not."""
    format: str
    """Name of the log format that was converted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceMeta:
    """What holds for a whole trace; the content of ``meta.json``."""

    trace_id: str
    """Identity of the recorded run: the same log gives the same id."""
    source: TraceSource
    """System and log format."""
    workers: int
    """Number of workers: rows of the workers table."""
    format_version: int = TRACE_FORMAT_VERSION
    """Version of contract 1."""
    prepared: bool = False
    """Whether the source already reordered and filtered the log, so that `seq` need not increase."""
    aligned: bool = True
    """Whether the workers' offsets lead to one common clock."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows of the source that are no events of contract 1, counted by reason."""
    complete: bool = True
    """Whether the run had ended when the log was read."""
    missing_progress: Sequence[str] = ()
    """Scopes in which data moved but whose progress messages nobody logged; empty when the source cannot tell."""
    rules: RuleSet = RuleSet.TIMELY
    """Rule set that the source asks for."""
    idle_logged: bool | None = None
    """Whether the log says when its workers had nothing to do; None where the source does not tell. Where the log does
    not say it, it is inferred."""

    @property
    def gapless(self) -> bool:
        """Whether `seq` counts the events of each worker without gaps: where a number is missing, an event is."""
        return self.source.format in _WITHOUT_GAPS and not self.prepared


def refuse_store(folder: Path) -> None:
    """Refuse a store where a trace is asked for.

    Parameters
    ----------
    folder
        What was given; need not be there.

    Raises
    ------
    TraceFormatError
        If it is a store.
    """
    if (folder / "epochs" / "_delta_log").is_dir():
        message = f"{folder} is a store, not a trace: it has been built."
        hint = f"Look into it: `pag info {shlex.quote(str(folder))}`."
        raise TraceFormatError(message, hint, {"file": str(folder / META)})


def read_meta(file: Path) -> TraceMeta:
    """Read the description of a trace, and check every entry.

    Parameters
    ----------
    file
        ``meta.json`` of the trace.

    Returns
    -------
    TraceMeta
        What it says; where an entry may be absent, what that means.

    Raises
    ------
    TraceFormatError
        If it is missing or no JSON, or an entry is missing, of another type, or out of range; names file and entry.
    FormatVersionError
        If it was written in another version of contract 1.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    context = {"file": str(file)}
    try:
        entries = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        refuse_store(file.parent)
        message = f"The trace at {file.parent} has no {META}."
        raise TraceFormatError(message, CONVERT_AGAIN, context) from error
    except (OSError, ValueError) as error:
        message = f"{file} cannot be read as JSON: {error}."
        raise TraceFormatError(message, CONVERT_AGAIN, context) from error
    if not isinstance(entries, dict):
        message = f"{file} holds {type(entries).__name__}, not an object."
        raise TraceFormatError(message, CONVERT_AGAIN, context)
    version = entries.get("format_version")
    if version != TRACE_FORMAT_VERSION or type(version) is not int:
        raise FormatVersionError.from_found_and_known(where=str(file), found=version, known=TRACE_FORMAT_VERSION)
    source = _entry(entries, "source", dict, file)
    dropped = _entry(entries, "dropped", dict, file)
    return TraceMeta(
        format_version=version,
        trace_id=_entry(entries, "trace_id", str, file),
        source=TraceSource(
            system=_entry(source, "system", str, file),
            version=_entry(source, "version", str, file),
            format=_entry(source, "format", str, file),
        ),
        workers=_entry(entries, "workers", int, file),
        prepared=_entry(entries, "prepared", bool, file),
        aligned=_entry(entries, "aligned", bool, file),
        dropped={reason: _entry(dropped, reason, int, file) for reason in dropped},
        complete=_entry(entries, "complete", bool, file),
        missing_progress=tuple(
            _scope_name(scope) for scope in _entry({"missing_progress": [], **entries}, "missing_progress", list, file)
        ),
        rules=_rules(entries, file),
        idle_logged=_idle_logged(entries, file),
    )


def write_meta(meta: TraceMeta, file: Path) -> None:
    """Write the description of a trace.

    Parameters
    ----------
    meta
        The description.
    file
        ``meta.json`` of the trace, which is written anew.
    """
    text = json.dumps({**asdict(meta), "dropped": dict(meta.dropped)}, indent=2, sort_keys=True)
    file.write_text(text + "\n", encoding="utf-8")


def _rules(entries: dict[str, object], file: Path) -> RuleSet:
    word = entries.get("rules", str(RuleSet.TIMELY))
    if not isinstance(word, str) or word not in set(RuleSet):
        message = f"{file}: the entry 'rules' is {word!r}, and must be one of {', '.join(RuleSet)}."
        raise TraceFormatError(message, CONVERT_AGAIN, {"file": str(file), "entry": "rules"})
    return RuleSet(str(word))


def _idle_logged(entries: dict[str, object], file: Path) -> bool | None:
    if entries.get("idle_logged") is None:
        source = entries["source"]
        return _IDLE_LOGGED.get(str(source.get("format"))) if isinstance(source, dict) else None
    return _entry(entries, "idle_logged", bool, file)


def _scope_name(scope: object) -> str:
    """Name a scope as an adapter wrote it down: its own words, or an object with the address of the `scope`."""
    return str(scope.get("scope", scope)) if isinstance(scope, dict) else str(scope)


def _entry(content: dict[str, object], key: str, kind: type[_T], file: Path) -> _T:
    value = content.get(key)
    # bool is an int to Python, but not to a reader of JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        shown = "missing" if key not in content else repr(value)
        message = f"{file}: the entry {key!r} must be of type {kind.__name__}, but is {shown}."
        raise TraceFormatError(message, CONVERT_AGAIN, {"file": str(file), "entry": key})
    if isinstance(value, int) and not 0 <= value <= MOST_COUNT:
        message = f"{file}: the entry {key!r} is {value}, and counts go from 0 to {MOST_COUNT}."
        raise TraceFormatError(message, CONVERT_AGAIN, {"file": str(file), "entry": key})
    return value
