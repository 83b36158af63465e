"""JavaScript's regular expressions, matched within a bound: what several specifications mean by a pattern."""
