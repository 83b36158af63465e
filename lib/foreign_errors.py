"""Foreign errors: which exceptions of code that Callboard calls are failures of that code.

Such code may raise anything: ``sys.exit`` raises `SystemExit`, and libraries have subclasses of `BaseException`. None
of these may end a process that performs other work. The same exceptions are also how a process, a task or a coroutine
is stopped, and then they have to pass.
"""

import asyncio
from dis import opmap

_RAISE = opmap["RAISE_VARARGS"]


def is_foreign(error: BaseException) -> bool:
    """Return whether an exception that was just caught is a failure of the code that was called.

    It is not one if it stops the caller: the cancellation of the current task, Ctrl-C, or the end of the caller's own
    coroutine.
    """
    match error:
        case Exception():
            return True
        case BaseExceptionGroup():
            return all(isinstance(one, GeneratorExit) or is_foreign(one) for one in error.exceptions)
        case asyncio.CancelledError():
            # On a thread without a loop nobody cancels.
            task = asyncio.current_task() if asyncio._get_running_loop() is not None else None  # pyright: ignore
            return task is None or not task.cancelling()
        case KeyboardInterrupt():
            return not _is_from_signal(error)
        case GeneratorExit():
            # Where a coroutine is closed, Python raises it without a frame below.
            return error.__traceback__ is not None and error.__traceback__.tb_next is not None
        case _:
            return True


def _is_from_signal(error: KeyboardInterrupt) -> bool:
    """Return whether a signal has raised it: the innermost frame has no ``raise`` there, or is of asyncio's runner,
    which raises it for a signal."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return False
    raised = innermost.tb_frame.f_code.co_code[innermost.tb_lasti] == _RAISE
    return not raised or innermost.tb_frame.f_globals.get("__name__") == asyncio.runners.__name__
