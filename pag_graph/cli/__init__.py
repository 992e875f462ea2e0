"""The `pag` command."""
