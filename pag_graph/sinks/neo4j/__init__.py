"""Neo4j: the embedded server, the model and the loader."""
