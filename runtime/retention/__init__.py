"""Retention: runs that are over go out of the log by themselves, by rules of the configuration."""
