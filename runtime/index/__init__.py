"""The index: what can be asked of many runs, folded from the log into SQLite; never a truth, and made anew at will."""
