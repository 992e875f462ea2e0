"""Contracts 1 and 2 on disk: read, slice, commit, provenance."""
