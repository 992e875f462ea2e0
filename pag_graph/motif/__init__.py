"""Motifs: small patterns of vertices and edges, found by joins.

A motif says which edges hang together (`pag_graph.motif.syntax`), a filter what must hold of them
(`pag_graph.motif.filters`). Both are one question (`pag_graph.motif.query`), which is planned once
(`pag_graph.motif.planner`) and run by Polars (`pag_graph.motif.polars_query`) or by Spark
(`pag_graph.engines.motif`), with the same rows.
"""
