"""Projections: pure folds of a run's events into views."""
