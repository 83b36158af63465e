"""Who carries effects out: the actor kernel, the node actors, models, tools, sources."""
