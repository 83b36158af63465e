"""Diagram drawing: text measurement, a layered layout and SVG output. All functions are pure and know no runs."""
