"""Parameters of analyses: fields of a dataclass, from which options of commands and arguments of methods are made."""

from __future__ import annotations

import json
import math
import typing
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Any

from pag_graph.errors import InvalidParameterError
from pag_graph.model.units import short

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT64 = (-(2**63), 2**63 - 1)
_SHOWN = 60
"""Letters of a value that is refused."""


@dataclass(frozen=True, slots=True)
class Flags:
    """Spellings of a parameter on the command line, where they are not made of its name."""

    names: tuple[str, ...]
    """Such as ``--from``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One field of a parameters dataclass."""

    name: str
    """Name of the field."""
    kind: Any
    """Its type without `Annotated`."""
    help: str
    """What it says, for people."""
    default: Any
    """`dataclasses.MISSING` where one must be given."""
    flags: tuple[str, ...] = ()
    """Spellings on the command line; empty where they are made of its name."""

    @property
    def optional(self) -> bool:
        """Whether it may be None."""
        return type(None) in typing.get_args(self.kind) and typing.get_origin(self.kind) is not typing.Literal

    @property
    def item(self) -> Any:
        """Type of a value: without ``| None``, and of one item of a tuple."""
        kind = self.kind
        if self.optional:
            kinds = [part for part in typing.get_args(kind) if part is not type(None)]
            kind = kinds[0] if len(kinds) == 1 else str
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
        """Turn what was read from a command line or from JSON into a value of the parameter's type.

        Parameters
        ----------
        value
            Text, or a plain value of JSON; a list where the parameter has many values.

        Returns
        -------
        object
            Of the parameter's type, its members a tuple where there are many.

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
        try:
            converted = _as_kind(value, kind)
        except (ValueError, KeyError, OverflowError) as error:
            message = f"{flag} is {short(repr(value), _SHOWN)}, and must be of type {kind.__name__}."
            raise InvalidParameterError(message) from error
        if isinstance(converted, float) and not math.isfinite(converted):
            message = f"{flag} is {value!r}, and must be finite."
            raise InvalidParameterError(message)
        if isinstance(converted, int) and not _INT64[0] <= converted <= _INT64[1]:
            message = f"{flag} is {short(repr(value), _SHOWN)}, and must fit into 64 bits."
            raise InvalidParameterError(message)
        return converted


def _as_kind(value: Any, kind: type) -> Any:
    """Return a value as one of a type.

    Raises
    ------
    ValueError
        If it is none; a `KeyError` for truths, an `OverflowError` for numbers that no float is near.
    """
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if fits or (kind is float and isinstance(value, int) and not isinstance(value, bool)):
        return kind(value)
    if isinstance(value, str) and kind is bool:
        # As JSON, Python and shells write it.
        return {"true": True, "false": False}[value.lower()]
    if isinstance(value, str):
        return kind(value)
    raise ValueError


def parameters_of(dataclass: type | None) -> tuple[Parameter, ...]:
    """Return the parameters that a dataclass has.

    Parameters
    ----------
    dataclass
        Its fields may be `Annotated` with their help; None for none.

    Returns
    -------
    tuple of Parameter
        In the order of the fields.
    """
    if dataclass is None:
        return ()
    hints = typing.get_type_hints(dataclass, include_extras=True)
    return tuple(_parameter(item.name, hints[item.name], item.default) for item in fields(dataclass))


def make_parameters(name: str, known: typing.Sequence[Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a parameters dataclass from values as they come from a command line or from JSON.

    Parameters
    ----------
    name
        Of the analysis, for errors.
    known
        Its parameters.
    values
        By name; defaults where absent.

    Returns
    -------
    dict
        The values given, converted.

    Raises
    ------
    InvalidParameterError
        If there is no such parameter, one is missing, or has another type.
    """
    by_name = {parameter.name: parameter for parameter in known}
    for argument in values:
        if argument not in by_name:
            message = f"{name} has no parameter {argument!r}; it has {', '.join(by_name) or 'none'}."
            raise InvalidParameterError(message)
    for parameter in known:
        if parameter.default is MISSING and parameter.name not in values:
            message = f"{name} needs the parameter {parameter.name!r}: {parameter.help}"
            raise InvalidParameterError(message)
    return {argument: by_name[argument].convert(value) for argument, value in values.items()}


def value_of(text: str) -> Any:
    """Return what a text means as a value: JSON, or else itself.

    Examples
    --------
    >>> value_of("true"), value_of("50000"), value_of("waiting")
    (True, 50000, 'waiting')
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    kind, text = hint, ""
    flags: tuple[str, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        kind, *notes = typing.get_args(hint)
        text = next((note for note in notes if isinstance(note, str)), "")
        flags = next((note.names for note in notes if isinstance(note, Flags)), ())
    return Parameter(name=name, kind=kind, help=text, default=default, flags=flags)
