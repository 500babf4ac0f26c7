"""The explorer: a page on which sliders move exact error curves and the agents that drift."""
