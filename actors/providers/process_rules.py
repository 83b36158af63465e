"""Which programs a worker runs for flows, by patterns that its operator writes. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

OUTPUT_BYTES_MAX = 4 * 1024 * 1024
TIMEOUT_MAX_S = 3_600.0


@dataclass(frozen=True, slots=True)
class ProcessRules:
    """The limits on the programs of flows.

    ``allow`` are patterns of commands, ``images`` of container images, which ``containers`` (a command such as
    ``docker``) runs; both are empty unless the operator sets them. ``env`` is the part of the worker's environment that
    every program gets, ``settable`` the further variables that calls may set.
    """

    allow: Sequence[str] = ()
    images: Sequence[str] = ()
    containers: str = "docker"
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    settable: Sequence[str] = ()
    output_bytes_max: int = OUTPUT_BYTES_MAX
    timeout_max_s: float = TIMEOUT_MAX_S


def allows(patterns: Sequence[str], argv: Sequence[str]) -> bool:
    """Return whether one of the patterns allows a command.

    Each word of a pattern matches one argument, and may contain ``*``, ``?`` and ``[…]``; a last word that is only
    ``*`` matches any number of further arguments, including zero.
    """
    return any(_matches(shlex.split(pattern), argv) for pattern in patterns)


def _matches(words: Sequence[str], argv: Sequence[str]) -> bool:
    open_ended = len(words) > 1 and words[-1] == "*"
    fixed = words[:-1] if open_ended else words
    if len(argv) < len(fixed) or (len(argv) > len(fixed) and not open_ended):
        return False
    return all(fnmatchcase(argument, word) for word, argument in zip(fixed, argv, strict=False))
