"""Threads and memory of this process."""
