"""Answers to one question: why was this distributed dataflow slow, and what would make it faster.

Execution traces become a program activity graph; critical paths and k-hops explain it; Neo4j and GraphFrames query it.
"""
