"""Traces of PyTorch's profiler (Kineto)."""
