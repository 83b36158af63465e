"""The interpreter: executes a run's definition against its log, with the stage and the driver; and replay."""
