"""Evaluation by replay: datasets of recorded runs, and experiments that perform them again with one change."""
