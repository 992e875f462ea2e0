"""How columns of tables are declared: with what they mean."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["column", "is_optional"]


def column(name: str, kind: pa.DataType, meaning: str, *, null: bool = False, optional: bool = False) -> pa.Field:
    """Declare a column; a file may lack one that is optional, and all its values are null then."""
    optional_note = {"optional": "files may lack it"} if optional else {}
    return pa.field(name, kind, nullable=null or optional, metadata={"doc": meaning, **optional_note})


def is_optional(declared: pa.Field) -> bool:
    """Return whether a file may lack a declared column."""
    return b"optional" in (declared.metadata or {})
