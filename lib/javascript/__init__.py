"""JavaScript's regular expressions, which several specifications use for patterns, with a limit on steps."""
