"""Every exception that this package raises.

The tree::

    PagGraphError
    ├── TraceFormatError(ValueError)
    │   └── FormatVersionError
    ├── SchemaError(ValueError)
    │   └── MissingColumnError
    ├── PagError
    │   └── CycleError
    ├── StoreError
    │   ├── StoreExistsError(FileExistsError)
    │   ├── StoreNotFoundError(FileNotFoundError)
    │   └── StoreConflictError
    ├── AnalysisError
    │   ├── InvalidParameterError(ValueError)
    │   │   └── MotifSyntaxError
    │   └── UnsupportedPlanError(NotImplementedError)
    ├── EngineError
    ├── SinkError
    │   └── Neo4jError
    └── MissingExtraError(ImportError)

A *bad trace* is data as long as it can be understood: it gives rows in the ``findings`` table. Exceptions
are for input that cannot be read, for misuse, and for infrastructure that fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class PagGraphError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    message
        What happened and where, in plain words.
    hint
        What the user can do about it, best with the corrected call.
    context
        Facts for programs (file, worker, event, ...); keys are stable per condition.
    """

    condition = "PAG_ERROR"
    """Stable name of the condition, for programs and for support."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        context: Mapping[str, object] | None = None,
    ) -> None:
        # Everything is positional: errors cross Spark's process borders by pickle, which calls
        # the class again with `args`.
        super().__init__(message, hint, dict(context or {}))
        self.message = message
        self.hint = hint
        self.context: dict[str, object] = dict(context or {})

    def __str__(self) -> str:
        """Return the message, followed by the hint on a line of its own."""
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class TraceFormatError(PagGraphError, ValueError):
    """Raised when a trace cannot be read or contradicts itself; names file, worker and event."""

    condition = "TRACE_FORMAT"


class FormatVersionError(TraceFormatError):
    """Raised when a trace or a store was written in a format version that this release does not know."""

    condition = "FORMAT_VERSION"

    @classmethod
    def from_found_and_known(cls, *, where: str, found: object, known: int) -> FormatVersionError:
        """Build the error from the version found in a file and the one that this release reads.

        Parameters
        ----------
        where
            The file, as the message is to name it; also ``file`` of the context.
        found
            What the file says, whatever that is: in a damaged file it may be no number.
        known
            The only version that this release reads.

        Returns
        -------
        FormatVersionError
            To be raised by the caller.
        """
        return cls(
            f"{where} has format version {found!r}; this release reads version {known}.",
            "Use the release that wrote it, or convert or build it again with this one.",
            {"file": where, "found": found, "known": known},
        )


class SchemaError(PagGraphError, ValueError):
    """Raised when a table does not have the declared columns or types."""

    condition = "SCHEMA"


class MissingColumnError(SchemaError):
    """Raised when a required column is absent; the message lists the columns that are there."""

    condition = "MISSING_COLUMN"

    @classmethod
    def from_missing_and_available(
        cls,
        *,
        where: str,
        missing: list[str],
        available: list[str],
        hint: str = "Convert the source again with `pag convert`.",
    ) -> MissingColumnError:
        """Build the error from the column names that are missing and those that are available.

        Parameters
        ----------
        where
            The file or table, as the message is to name it; also ``file`` of the context.
        missing, available
            Names of columns, as they are to be listed; of `available` there may be none.
        hint
            What to do about it; unless given, to convert the source again, as helps for files of a canonical trace.

        Returns
        -------
        MissingColumnError
            To be raised by the caller.
        """
        return cls(
            f"{where} lacks the column(s) {', '.join(missing)}; it has {', '.join(available) or 'none'}.",
            hint,
            {"file": where, "missing": missing, "available": available},
        )


class PagError(PagGraphError):
    """Raised when a graph breaks a property that an algorithm relies on."""

    condition = "PAG"


class CycleError(PagError):
    """Raised when a walk along the graph comes back to where it has been; names the vertex."""

    condition = "PAG_CYCLE"


class StoreError(PagGraphError):
    """Raised when a store cannot be read or written."""

    condition = "STORE"


class StoreExistsError(StoreError, FileExistsError):
    """Raised when a build would write into a store that already holds a run."""

    condition = "STORE_EXISTS"


class StoreNotFoundError(StoreError, FileNotFoundError):
    """Raised when there is no committed run at the given place."""

    condition = "STORE_NOT_FOUND"


class StoreConflictError(StoreError):
    """Raised when another writer committed first, or when an append would change committed epochs."""

    condition = "STORE_CONFLICT"

    @classmethod
    def from_concurrent_build(cls, path: object) -> StoreConflictError:
        """Build the error for a build that another one overtook."""
        return cls(
            f"Another build committed to {path} while this one ran; nothing of this one is visible.",
            "Build again once the other one has ended.",
            {"path": str(path)},
        )


class AnalysisError(PagGraphError):
    """Raised when an analysis cannot give an exact answer."""

    condition = "ANALYSIS"


class InvalidParameterError(AnalysisError, ValueError):
    """Raised when a parameter is out of its range; the message says what the range is."""

    condition = "INVALID_PARAMETER"


class MotifSyntaxError(InvalidParameterError):
    """Raised when a motif or a filter cannot be understood; points at the character."""

    condition = "MOTIF_SYNTAX"

    @classmethod
    def from_position(cls, text: str, at: int, problem: str, hint: str | None = None) -> MotifSyntaxError:
        """Build the error for a character of a text; shows its line with a caret below.

        Parameters
        ----------
        text
            All of the motif or filter; may have several lines.
        at
            Offset of the character, from 0; the text's length stands for its end.
        problem
            What is wrong there. The message begins with it.
        hint
            What to write instead.

        Returns
        -------
        MotifSyntaxError
            To be raised by the caller; its context has ``text`` and ``position``.

        Examples
        --------
        >>> print(MotifSyntaxError.from_position("(a)-[e]->b", 9, "A vertex stands in parentheses.", "Write (b)."))
        A vertex stands in parentheses.
          (a)-[e]->b
                   ^
          hint: Write (b).
        """
        start = text.rfind("\n", 0, at) + 1
        line = text[start:].partition("\n")[0]
        # Tabs stay tabs, so that the caret stands below the character however wide they are shown.
        blank = "".join("\t" if character == "\t" else " " for character in line[: at - start])
        return cls(f"{problem}\n  {line}\n  {blank}^", hint, {"text": text, "position": at})


class UnsupportedPlanError(AnalysisError, NotImplementedError):
    """Raised when an engine or a rule set does not offer what was asked for, with the reason."""

    condition = "UNSUPPORTED_PLAN"


class EngineError(PagGraphError):
    """Raised when Spark cannot be started or a Spark job fails for a reason of its own."""

    condition = "ENGINE"


class SinkError(PagGraphError):
    """Raised when a result cannot be written to where it should go."""

    condition = "SINK"


class Neo4jError(SinkError):
    """Raised when the Neo4j server cannot be installed, started, reached or loaded."""

    condition = "NEO4J"


class MissingExtraError(PagGraphError, ImportError):
    """Raised when an optional part of the installation is absent; names the extra or the artifact."""

    condition = "MISSING_EXTRA"

    @classmethod
    def from_extra(cls, *, what: str, extra: str) -> MissingExtraError:
        """Build the error for a Python package that an extra of this package installs.

        Parameters
        ----------
        what
            What was asked for and needs it; the message begins with it, so it has a capital.
        extra
            Name of the extra, such as ``neo4j``; the hint is the command that installs it.

        Returns
        -------
        MissingExtraError
            To be raised by the caller.
        """
        return cls(
            f"{what} needs the optional part {extra!r} of this package, which is not installed.",
            f"pip install 'pag-graph[{extra}]'",
            {"extra": extra},
        )
