"""Analyses: each one definition, used by Python, CLI and Spark jobs."""
