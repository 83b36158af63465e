"""Callboard and other durable runtimes, measured in one session on one machine: ``make bench-peers``."""
