"""Prompts: texts that a definition refers to by name; carries out the effect kind ``prompt``.

A request is ``{"scheme": "library" | "mcp" | "", "identifier": …}``; a prompt without a scheme belongs to a library. A
library is a folder that the operator names: the prompt ``review`` is ``review.md``, ``review.txt`` or ``review`` in one
of them. ``mcp`` is ``server/name``; ``source`` then describes how that server is started or reached.
"""

import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from anyio import to_thread
from msgspec import Struct, field

from callboard.actors.carrier import EffectFailed
from callboard.actors.permits import EVERYTHING, Permits
from callboard.actors.tools import lent
from callboard.actors.tools.mcp import read_prompt
from callboard.actors.tools.tool import ToolEnvironment
from callboard.bus.effects import Failure, McpTools
from callboard.lib.json_types import JSON
from callboard.lib.private_files import LeadsOutside, path_below
from callboard.lib.text_bytes import NotText, read_text, without_nul

PROMPT_BYTES_MAX = 1024 * 1024
"""Maximum size of a prompt."""

SUFFIXES = (".md", ".txt", "")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class PromptLibraries(Struct, frozen=True):
    """The prompts of one worker: the folders of its libraries, what it lends to MCP servers, and which it may start."""

    folders: Sequence[Path] = ()
    environment: ToolEnvironment = field(default_factory=lambda: ToolEnvironment(env={}))
    permits: Permits = EVERYTHING

    async def resolve(self, request: JSON) -> str:
        """Return the text of a prompt.

        :raises EffectFailed: ``prompt.unknown``, ``prompt.unreadable``
        :raises ToolFailed: if an MCP server does not answer
        """
        match request:
            case {"scheme": "mcp", "identifier": str(identifier), **rest}:
                return await self._serve_prompt(identifier, rest)
            case {"scheme": "library" | "", "identifier": str(identifier)}:
                return await to_thread.run_sync(self._read, identifier)
            case _:
                raise _failure("prompt.unknown", "a request for a prompt needs a scheme and an identifier")

    async def _serve_prompt(self, identifier: str, rest: Mapping[str, Any]) -> str:
        server, slash, name = identifier.partition("/")
        if not (server and slash and name):
            raise _failure("prompt.unknown", f"{identifier!r} is not of the form server/name")
        if "source" not in rest:
            raise _failure("prompt.unknown", f"the start has no connection to an MCP server {server!r}")
        source = msgspec.convert({"type": "mcp", **rest["source"]}, McpTools)
        self.permits.check([source])
        lent.check(self.environment.lending, [source])
        text = await read_prompt(source, self.environment, name)
        if len(text.encode()) > PROMPT_BYTES_MAX:
            raise _failure("prompt.unreadable", f"the prompt {identifier} has more than {PROMPT_BYTES_MAX} bytes")
        return text

    def _read(self, identifier: str) -> str:
        # A name without slashes and dots leads nowhere but into the folders.
        names = [f"{identifier}{suffix}" for suffix in SUFFIXES] if _NAME.fullmatch(identifier) else []
        for folder, name in ((folder, name) for folder in self.folders for name in names):
            path = folder / name
            try:
                real = path_below(folder, name)
                found = real.stat()
                if not stat.S_ISREG(found.st_mode):
                    continue  # a pipe might never end
                if found.st_size > PROMPT_BYTES_MAX:
                    raise _failure("prompt.unreadable", f"{path.name} has more than {PROMPT_BYTES_MAX} bytes")
                return without_nul(read_text(real))
            except FileNotFoundError:
                continue
            except LeadsOutside as error:
                raise _failure("prompt.unreadable", f"{path.name} leads out of its folder by a link") from error
            except NotText as error:
                raise _failure("prompt.unreadable", f"{path.name} cannot be read: {error}") from error
            except (OSError, ValueError, RuntimeError) as error:
                raise _failure("prompt.unreadable", f"{path.name} cannot be read: {type(error).__name__}") from error
        if gone := [str(folder) for folder in self.folders if not folder.is_dir()]:
            message = f"prompt {identifier!r} not found, and these folders of prompts cannot be read: {', '.join(gone)}"
            raise _failure("prompt.unreadable", message)
        where = f"{len(self.folders)} folders of prompts" if self.folders else "no folder of prompts"
        raise _failure("prompt.unknown", f"prompt {identifier!r} not found; this worker has {where}")


def _failure(code: str, message: str) -> EffectFailed:
    return EffectFailed(Failure(code, message, retryable=False))
