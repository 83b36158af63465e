"""Settings: the configuration of a process, from a file, the environment and flags."""
