"""Traces of runs, their timelines and their texts."""
