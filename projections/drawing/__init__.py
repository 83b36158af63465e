"""Drawing a diagram: text that is measured, a layered layout of our own, and SVG. Pure; nothing here knows a run."""
