"""Spark's event logs: read, mapped to the canonical trace, and asked why the application was slow."""
