"""Exit codes of all commands."""

OK = 0
FAILED = 1
USAGE = 2
CANCELLED = 3
UNUSABLE = 4
LOST = 5
INTERRUPTED = 130

EXIT_CODES = """\
Exit codes: 0 success; 1 the run failed, there are problems, or two runs differ; 2 wrong usage or configuration; 3
the run was cancelled; 4 server, store or worker cannot be reached or used; 5 stdout cannot be written; 130 interrupted
(Ctrl-C)."""


def of_status(status: str) -> int:
    """Return the exit code for a run's status; a run that has not ended is not a failure."""
    return {
        "failed": FAILED,
        "expired": FAILED,
        "quarantined": FAILED,
        "diverged": FAILED,
        "waiting:code": FAILED,
        "cancelled": CANCELLED,
    }.get(status, OK)
