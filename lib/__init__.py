"""Library code that is independent of Callboard: JSON Schema, patterns, durations, text, threads."""
