"""Settings: the configuration of a process, from its file, the environment and flags, and what follows from it."""
