"""How columns of tables are declared: with what they mean."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["column", "is_optional"]


def column(name: str, kind: pa.DataType, meaning: str, *, null: bool = False, optional: bool = False) -> pa.Field:
    """Declare a column.

    Parameters
    ----------
    name
        Of a quantity, it ends with the unit: ``duration_ns``.
    kind
        Type of its values.
    meaning
        What pages of the documentation say of it; a phrase without a full stop.
    null
        Whether a value may be null.
    optional
        Whether a file may lack the column; all its values are null then. It implies `null`.

    Returns
    -------
    pa.Field
        With `meaning` as ``doc`` of its metadata, where `is_optional` looks as well.
    """
    optional_note = {"optional": "files may lack it"} if optional else {}
    return pa.field(name, kind, nullable=null or optional, metadata={"doc": meaning, **optional_note})


def is_optional(declared: pa.Field) -> bool:
    """Return whether a file may lack a declared column."""
    return b"optional" in (declared.metadata or {})
