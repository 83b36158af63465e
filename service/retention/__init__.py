"""Retention: runs that have ended are purged from the log automatically, by rules of the configuration."""
