"""Where graphs and results go: GraphFrames, Neo4j."""
