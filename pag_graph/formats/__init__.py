"""How what others read is written: their types, derived from the Arrow schemas of `pag_graph.model.tables`, and pictures."""
