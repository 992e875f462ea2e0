"""What was tried of an advice, and what came of it: a JSON file that goes along with a program.

Definitions: `docs/model.md`, section "Advice"; Tang and Gedik (2013) 5.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pag_graph.graph.run import Run

FORMAT = "pag-advice"
FORMAT_VERSION = 1
DEFAULT_ALPHA = 0.5
Blacklisting = Literal["global", "configuration"]


@dataclass(frozen=True, order=True, slots=True)
class PortName:
    """What a port is called in any run of a program, as numbers and addresses change from run to run."""

    name: str
    """What the operator is called."""
    occurrence: int = 0
    """Which of the operators with this name, in the order of their addresses, from 0."""
    input: int = 0
    """Which of its inputs."""

    def __str__(self) -> str:
        """Return what a person reads."""
        suffix = f" #{self.occurrence + 1}" if self.occurrence else ""
        return f"{self.name}{suffix}" + (f" input {self.input}" if self.input else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blacklisted:
    """A port that did not help."""

    port: PortName
    reason: str
    configuration: tuple[PortName, ...]
    """Ports that were there when it was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceState:
    """What is known of a program's ports."""

    alpha: float = DEFAULT_ALPHA
    """A share of ports that did not help above which nothing more is proposed."""
    kept: tuple[PortName, ...] = ()
    """The configuration: ports that are there."""
    blacklist: tuple[Blacklisted, ...] = ()
    candidates: tuple[PortName, ...] = ()
    """Ports that ever were candidates."""
    trials: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)
    """What was evaluated, in time order: the runs before and after, the ports and the decisions."""
    halt: str | None = None
    """Why nothing more is proposed."""

    def avoided(self, blacklisting: Blacklisting = "global") -> frozenset[PortName]:
        """Return ports that are not proposed again: ever, or as long as the same ports are there."""
        return frozenset(
            entry.port
            for entry in self.blacklist
            if blacklisting == "global" or set(entry.configuration) == set(self.kept)
        )

    @property
    def blacklisted_share(self) -> float:
        """The share of the ports that ever were candidates that are on the blacklist."""
        ports = {*self.candidates, *(entry.port for entry in self.blacklist)}
        return len({entry.port for entry in self.blacklist}) / len(ports) if ports else 0.0

    @property
    def text(self) -> str:
        """What its file holds; to be written whole or not at all."""
        plain = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def read_state(file: Path) -> AdviceState:
    """Read what was tried.

    Parameters
    ----------
    file
        With the text of an `AdviceState`; there may be none yet.

    Returns
    -------
    AdviceState
        Where there is no file, one that knows nothing.

    Raises
    ------
    InvalidParameterError
        If the file is something else, or of another version.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return AdviceState()
    except (OSError, ValueError) as error:
        # Also what is no text, and a name that no file can have.
        message = f"The state {file} cannot be read: {error}."
        raise InvalidParameterError(message, "Choose another file.", {"file": str(file)}) from error
    try:
        return _state_of(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"{file} is not a state of {FORMAT} {FORMAT_VERSION}: {error}."
        raise InvalidParameterError(message, "Choose another file, or begin a new one.", {"file": str(file)}) from error


def _state_of(plain: Mapping[str, Any]) -> AdviceState:
    if (plain.get("format"), plain.get("format_version")) != (FORMAT, FORMAT_VERSION):
        message = f"it says {plain.get('format')!r} {plain.get('format_version')!r}"
        raise ValueError(message)
    blacklist = (
        Blacklisted(
            port=PortName(**entry["port"]),
            reason=str(entry["reason"]),
            configuration=_names(entry["configuration"]),
        )
        for entry in plain["blacklist"]
    )
    return AdviceState(
        alpha=float(plain["alpha"]),
        kept=_names(plain["kept"]),
        blacklist=tuple(blacklist),
        candidates=_names(plain["candidates"]),
        trials=tuple(plain["trials"]),
        halt=plain["halt"],
    )


def _names(entries: Iterable[Mapping[str, Any]]) -> tuple[PortName, ...]:
    return tuple(PortName(**entry) for entry in entries)


@lru_cache(maxsize=32)
def port_names(run: Run) -> Mapping[int, PortName]:
    """Return what the ports at a run's operators are called; made once, as a run stays as it is."""
    names: dict[int, PortName] = {}
    counts: dict[str, int] = {}
    for row in sorted(run.operators.unique("operator", keep="first").to_dicts(), key=_by_address):
        name = row["name"] or f"operator {row['operator']}"
        names[row["operator"]] = PortName(name, counts.get(name, 0))
        counts[name] = counts.get(name, 0) + 1
    return names


def _by_address(row: Mapping[str, Any]) -> tuple[Any, ...]:
    parts = str(row["address"]).split(".")
    numbers = [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
    return tuple(numbers), row["operator"]
