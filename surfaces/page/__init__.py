"""The page: the browser interface that shows and controls runs."""
