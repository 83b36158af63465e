"""The index: a search index over many runs, folded from the log into SQLite. It can be rebuilt at any time."""
