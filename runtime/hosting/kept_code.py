"""Kept code: the sources that were registered with a workflow.

A worker can host an earlier version of it from them, and so continue runs that do not follow the code of today.
"""

from pathlib import Path

from callboard.bus.errors import CallboardError
from callboard.languages.registry import hosting
from callboard.runtime.admission.versions import Version, versions
from callboard.runtime.client.connection import Connection
from callboard.runtime.hosting.code_loader import find_sources
from callboard.runtime.hosting.names import SUFFIX
from callboard.runtime.interpreter.code import NamedCode, code_in


async def unpack_code(connection: Connection, name: str, digest: str, folder: Path) -> str:
    """Write the sources of a registered workflow into an empty folder; return what `load` must be called with.

    ``digest`` is that of the code, or its first digits.

    :raises CallboardError: ``python.code_not_kept``
    :raises NoAnswer: if the log does not answer
    """
    known = await versions(connection.log, connection.config.tenant, name)
    for version in reversed(known):
        code = code_in(version.kept.source or "")
        if code is not None and code.digest.startswith(digest) and version.kept.files:
            return _write(version, code, folder)
    kept = sorted({code.digest[:12] for one in known if (code := code_in(one.kept.source or "")) and one.kept.files})
    raise CallboardError(
        "python.code_not_kept",
        f"no sources of {name!r} with the code {digest} are kept; kept are: {', '.join(kept) or 'none'}",
        f"{name}@{digest}",
        "Name one that is kept (`callboard show RUN` has that of a run), or host the code from a folder that has it.",
    )


def _write(version: Version, code: NamedCode, folder: Path) -> str:
    for path, text in version.kept.files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    module = code.entry.partition(":")[0].partition(".")[0]
    # A bundle is a file with the modules beside it, a package, or a folder: the one that has this digest.
    for target in (folder / f"{module}{SUFFIX}", folder / module, folder):
        if target.exists() and _digest_of(target, folder) == code.digest:
            return str(target)
    raise CallboardError(
        "python.code_not_kept",
        f"the kept sources are not those of the code {code.digest}",
        code.entry,
        "Host the code from a folder that has it.",
    )


def _digest_of(target: Path, root: Path) -> str:
    paths = find_sources(str(target))
    return hosting().digest_of({path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths})
