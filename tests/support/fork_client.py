"""Start a Python program as a fork: ``python -I -S fork_client.py SOCKET PROGRAM…`` acts as ``python PROGRAM…``.

The process that listens at the socket (`tests.support.forks`) forks, and the fork takes over the standard streams,
folder and environment of this one. Signals are passed on to it; this process ends as the fork does, and the fork ends
with it.

Nothing is imported that takes long: of `socket` and `signal` only the half that is not written in Python.
"""

import _signal as signal  # pyright: ignore[reportMissingImports]
import _socket as socket
import marshal
import os
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    """Hand everything over, and wait for the end."""
    pid = 0
    early = []

    def pass_on(number: int, _frame: object) -> None:
        if pid:
            os.kill(pid, number)
        else:
            early.append(number)

    closed = []
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            # The next file that is opened gets this number, the lowest that is free.
            os.open(os.devnull, os.O_RDWR)
            closed.append(stream)
    for number in PASSED_ON:
        signal.signal(number, pass_on)
    line = socket.socket(socket.AF_UNIX)
    line.connect(sys.argv[1])
    wanted = {"program": sys.argv[2:], "folder": os.getcwd(), "environ": dict(os.environ), "closed": closed}
    body = marshal.dumps(wanted)
    streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in range(3))
    line.sendmsg([len(body).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    line.sendall(body)
    # The streams are now the fork's alone: their readers notice its end.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    answers = os.fdopen(line.detach(), "rb")
    pid = int(answers.readline())
    for number in early:
        os.kill(pid, number)
    code = int(answers.readline())
    pid = 0
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
