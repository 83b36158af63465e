"""Views of many runs: the list of runs, its query language, and the open questions."""
