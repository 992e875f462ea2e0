"""Spark's types for the declared Arrow schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def struct_type(schema: pa.Schema) -> StructType:
    """Return the `StructType` of an Arrow schema, nullability included.

    Parameters
    ----------
    schema
        One of `pag_graph.model.tables`.

    Returns
    -------
    StructType
        Fields in the schema's order.
    """
    from pyspark.sql import types

    known = {
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.float64(): types.DoubleType(),
        pa.string(): types.StringType(),
        pa.bool_(): types.BooleanType(),
    }
    return types.StructType([types.StructField(f.name, known[f.type], f.nullable) for f in schema])
