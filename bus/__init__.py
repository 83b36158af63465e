"""The ground floor: what is said (events, effects, commands), where (subjects) and how it is kept (the log)."""
