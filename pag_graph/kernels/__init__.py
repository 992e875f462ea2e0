"""Sequential algorithms on columns, compiled with numba; Arrow or NumPy in, NumPy out."""
