"""Neo4j: the model of a run, loading it, asking about it."""
