"""Features that run beside runs: schedules, budgets, retention, notices, the index, access and telemetry."""
