"""Writing: from a trace, by rules and kernels, to a committed store."""
