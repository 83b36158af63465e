"""Progress: how many of so many runs are done, as a bar on stderr where that is a terminal."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import click

Progress = Callable[[int], None]
"""Is told how many more are done."""


@contextmanager
def progress(count: int) -> Generator[Progress]:
    """Show how many of ``count`` runs are done."""
    if not sys.stderr.isatty():
        yield _silently
        return
    with click.progressbar(length=count, file=sys.stderr, label="runs") as bar:
        yield bar.update


def _silently(_more: int) -> None:
    pass
