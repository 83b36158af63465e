"""What one sees of the log: pure folds of events into views."""
