"""Features that run beside runs: schedules, notices, cold storage, the index, access and telemetry."""
