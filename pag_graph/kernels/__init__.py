"""Sequential algorithms on columns, compiled with numba; NumPy in, NumPy out.

A kernel sees one worker's rows in the order of its log, or one snapshot's edges. Absent integers are `ABSENT`.
"""

ABSENT = -1
"""Stands for null in the integer columns that kernels read; all real values are non-negative."""
