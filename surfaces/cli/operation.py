"""Commands that carry out one operation and print its answer: one function describes the arguments, the help and all
that the command does."""

import functools
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli.output import print_answer
from callboard.surfaces.cli.settings import Command, Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.runtime.client.connection import Connection
    from callboard.runtime.settings.config import Config


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A call of a command: the configuration in force, the options, and the name with which it connects."""

    config: "Config"
    settings: Settings
    name: str

    def connect(self, *, reads: bool = True, founds: bool = False) -> "AbstractAsyncContextManager[Connection]":
        """Connect to the server; see `callboard.service.operations.reach.reach`."""
        from callboard.service.operations.reach import reach

        return reach(self.config, reads=reads, founds=founds, name=self.name)

    def run(self, perform: Callable[..., Awaitable[int | None]], **arguments: Any) -> None:
        """Perform a command with this call and the arguments; end with the exit code that it returns, if any.

        ``perform`` is a coroutine function, or a function that returns an awaitable after work without an event loop.
        """
        import anyio

        async def wait(performed: Awaitable[int | None]) -> int | None:
            return await performed

        if code := anyio.run(wait, perform(self, **arguments)):
            click.get_current_context().exit(code)

    def answer(self, value: Any, lines: str | Iterable[str]) -> None:
        """Print the answer: the value as JSON with --json, else the lines for people."""
        print_answer(value, lines, as_json=self.settings.as_json)


def operation(perform: Callable[..., Awaitable[int | None]]) -> Command:
    """Make a command of a function: add the options for configuration and server, and run it.

    Its first argument is the `OperationCall`. It may return an exit code. A command that imports a user's code is a
    function that does so before it returns its coroutine: a module may call `asyncio.run` when it is imported.
    """

    @functools.wraps(perform)
    def command(*, settings: Settings, **arguments: Any) -> None:
        begin_call(settings).run(perform, **arguments)

    return settings_options(command)


def begin_call(settings: Settings) -> OperationCall:
    """Load the configuration for the current command. It connects by its name, and a subcommand by that of its group.

    :raises ConfigInvalid: with every problem of the configuration
    """
    context = click.get_current_context()
    while context.parent is not None and context.parent.parent is not None:
        context = context.parent
    return OperationCall(load_config(settings), settings, f"callboard {context.info_name}")
