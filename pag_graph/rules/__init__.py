"""Rule sets: how stretches of a worker's time get their types."""
