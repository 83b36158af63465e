"""Execution of effects: the actor kernel, the node actors, models, tools, sources."""
