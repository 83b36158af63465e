"""The versions of libraries with which adapters are tested, and the parts of libraries that no documentation promises.

A version below the oldest one is refused, because it lacks what an adapter uses. One above the newest is used with a
warning: a part that it has no longer is found when the adapter is imported, and not in the middle of a run.
"""

import re
import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType
from typing import Any


class UntestedVersion(RuntimeWarning):
    """A library is installed in a version that its adapter is not tested with."""


def require(library: str, extra: str, oldest: str, newest: str) -> None:
    """Check that a library is installed in a version from ``oldest`` on. Warn if it is above ``newest``.

    ``extra`` is the extra of Callboard that installs it.

    :raises ImportError: if it is not, with what to install
    """
    expected = f"this adapter is tested with {library} from {oldest} up to {newest}"
    try:
        found = version(library)
    except PackageNotFoundError as error:
        raise ImportError(f"{library} is not installed: {expected}; {_remedy(extra)}") from error
    if _numbers(found) < _numbers(oldest):
        raise ImportError(f"{library} {found} is installed: {expected}; {_remedy(extra)}")
    if _numbers(found) > _numbers(newest):
        message = f"{library} {found} is installed: {expected}; what it does otherwise since then is not known"
        warnings.warn(message, UntestedVersion, stacklevel=3)


def probe(library: str, extra: str, *parts: str) -> None:
    """Check that a library has the parts that its adapter uses, each ``module:name`` or ``module:Class.member``.

    :raises ImportError: if one is missing, with what to install
    """
    missing = [part for part in parts if not _has(*part.split(":"))]
    if missing:
        raise ImportError(
            f"{library} {version(library)} is installed, and lacks {', '.join(missing)}, which this adapter uses; "
            f"{_remedy(extra)}"
        )


def _remedy(extra: str) -> str:
    return f"pip install 'callboard[{extra}]' installs a version that works"


def _has(module: str, path: str) -> bool:
    try:
        found: Any = import_module(module)
    except ImportError:
        return False
    name, _, member = path.partition(".")
    found = getattr(found, name, None)
    return found is not None and (not member or hasattr(found, member) or _uses(found, member))


def _uses(kind: Any, member: str) -> bool:
    """Return whether a method of a class names a member, which the class itself does not have if instances do."""
    methods = [one for one in vars(kind).values() if isinstance(one, FunctionType)]
    return any(member in one.__code__.co_names for one in methods)


def _numbers(text: str) -> list[int]:
    """Return the numbers of a version; `1.2` and `1.2.0` are the same."""
    numbers = [int(one) for one in re.findall(r"\d+", text)[:3]]
    return numbers + [0] * (3 - len(numbers))
