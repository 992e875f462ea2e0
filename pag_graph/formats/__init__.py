"""One file per foreign type system, derived from the Arrow schemas of `pag_graph.model.tables`."""
