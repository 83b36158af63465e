"""The event log: its interface, an implementation in memory, forks, large values and encryption."""
