"""The signals that stop a command in good order."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a command: Ctrl-C, SIGTERM, and SIGHUP of a terminal that is closed.

    A process that was started to survive its terminal, as by ``nohup``, ignores SIGHUP, and continues doing so.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
