"""A Neo4j server of one's own: its jars, its settings, its pages of Browser."""
