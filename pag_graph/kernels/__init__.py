"""Sequential algorithms on columns, compiled with numba; NumPy in, NumPy out.

A kernel sees one worker's rows in the order of its log, or one snapshot's edges. Absent integers are `ABSENT`. It has
five arguments at most: columns that belong together are a `NamedTuple`, defined once beside the kernels that read it.
One costs less than a microsecond per call from Python, and nothing in loops if a kernel unpacks it before them; to hand
it to a helper costs some nanoseconds per column, so that what loops call takes numbers and few columns. Where a kernel
has many results, NumPy makes room for them before it is called: that need not be compiled.
"""

ABSENT = -1
"""Stands for null in the integer columns that kernels read; all real values are non-negative."""

NEVER = -(1 << 63)
"""Stands for a time that is not known."""
