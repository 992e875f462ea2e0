"""How others read it: types, derived from the Arrow schemas of `pag_graph.model.tables`, and pictures."""
