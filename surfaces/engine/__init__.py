"""Workflow Engine V2's own HTTP interface, by its design document: the same runs and definitions, in its words."""
