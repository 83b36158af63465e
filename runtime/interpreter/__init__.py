"""The interpreter: a run's definition carried out against its log, on the stage, by the driver; and replay."""
