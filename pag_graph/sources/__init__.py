"""One reader per trace format; each writes the canonical trace."""
