"""Cold storage: runs that have ended are moved out of the stream automatically, by a rule of the configuration."""
