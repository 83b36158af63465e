"""Views of one run: its status, its result, its causes, warnings and waits."""
