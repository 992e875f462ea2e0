"""Builds the program activity graph: match, decide, assemble, check."""
