"""The versions of libraries with which adapters are tested. They use parts of these that other versions change."""

import re
from importlib.metadata import PackageNotFoundError, version


def require(library: str, extra: str, at_least: str, below: str) -> None:
    """Check that a library is installed in a version from ``at_least`` up to, but without, ``below``.

    ``extra`` is the extra of Callboard that installs it.

    :raises ImportError: if it is not, with what to install
    """
    remedy = f"pip install 'callboard[{extra}]' installs a version that works"
    expected = f"this adapter is tested with {library} from {at_least} up to, but without, {below}"
    try:
        found = version(library)
    except PackageNotFoundError as error:
        raise ImportError(f"{library} is not installed: {expected}; {remedy}") from error
    if not _numbers(at_least) <= _numbers(found) < _numbers(below):
        raise ImportError(f"{library} {found} is installed: {expected}; {remedy}")


def _numbers(text: str) -> list[int]:
    """Return the numbers of a version; `1.2` and `1.2.0` are the same."""
    numbers = [int(one) for one in re.findall(r"\d+", text)[:3]]
    return numbers + [0] * (3 - len(numbers))
