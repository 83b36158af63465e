"""The library: definitions in the configured folders of the server, and no file outside of them.

A model asks for files, and its requests may be influenced by untrusted text: a path is resolved, including links,
before the file is read. The same goes for the paths in a definition.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.languages.registry import about, authoring, detect, detect_nearly, parse_definition
from callboard.service.files.local_files import text_of
from callboard.surfaces.mcp.answers import Workflow

SUFFIXES = (".yaml", ".yml", ".json", ".md")
DEPTH_MAX = 4
"""How many levels below a folder are searched for definitions."""

FILES_MAX = 500
"""Limit of the files that one list reads."""

FILE_BYTES_MAX = 800 * 1024
"""A larger file is not listed: it could not be started."""

_PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv"})


class Library(Struct, frozen=True):
    """The folders, resolved. Relative paths are looked up in each of them, in order.

    Files in the folders ``apart``, such as the store with its token and keys, are excluded.
    """

    folders: tuple[Path, ...]
    apart: tuple[Path, ...] = ()

    def find(self, file: str) -> Path:
        """Return the file of this name.

        :raises CallboardError: ``mcp.file_outside``, ``mcp.file_unknown``
        """
        for folder in self.folders:
            try:
                path = (folder / file).resolve()
                if self._holds(path) and path.is_file():
                    return path
            except (OSError, ValueError, RuntimeError):
                continue  # not a valid name of a file, or a loop of links
        where = ", ".join(map(str, self.folders))
        if any(part == ".." for part in Path(file).parts) or Path(file).is_absolute():
            remedy = f"This server reads only definitions in {where}."
            raise CallboardError("mcp.file_outside", "no definition of this server has that path", file, remedy)
        raise CallboardError("mcp.file_unknown", f"the file does not exist in {where}", file, "See list_workflows.")

    def check_named(self, definition: Path, name: str) -> None:
        """Check that a file that a definition refers to is in the folders, too.

        :raises CallboardError: ``mcp.file_outside``
        """
        try:
            inside = self._holds((definition.parent / name).resolve())
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            remedy = "Put the file below one of the server's folders, or pass source and files."
            raise CallboardError(
                "mcp.file_outside",
                f"the definition refers to a file outside of the server's folders: {name}",
                str(definition),
                remedy,
            )

    def folder(self, name: str) -> Path:
        """Return one of the folders, or a folder below one.

        :raises CallboardError: ``mcp.folder_unknown``
        """
        for folder in self.folders:
            try:
                path = (folder / name).resolve()
                if self._holds(path) and path.is_dir():
                    return path
            except (OSError, ValueError, RuntimeError):
                continue
        where = ", ".join(map(str, self.folders))
        raise CallboardError(
            "mcp.folder_unknown", "the folder does not exist", name, f"The folders of this server are {where}."
        )

    def workflows(self, wanted: str | None) -> tuple[list[Workflow], bool]:
        """Return the definitions in all folders or one, and whether there may be more."""
        roots = self.folders if wanted is None else (self.folder(wanted),)
        found: dict[Path, Workflow] = {}
        looked_at = 0
        for root in roots:
            for path in _files(root):
                looked_at += 1
                if looked_at > FILES_MAX:
                    return list(found.values()), True
                real = path.resolve()
                if real not in found and self._holds(real) and (workflow := self._workflow(real)):
                    found[real] = workflow
        return list(found.values()), False

    def _workflow(self, path: Path) -> Workflow | None:
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES_MAX:
                return None  # a pipe might never end
            source = text_of(path)
        except (OSError, CallboardError):
            return None  # not readable; a start of this file reports the reason
        if isinstance(detect(source), list):
            return None
        return describe_definition(source, file=self._show_path(path), fallback=path.stem)

    def _show_path(self, path: Path) -> str:
        first = self.folders[0]
        return str(path.relative_to(first)) if path.is_relative_to(first) else str(path)

    def definition(self, file: str) -> str:
        """Return the text of a definition's file; other files are refused.

        :raises CallboardError: ``mcp.file_outside``, ``mcp.file_unknown``, or as `text_of`
        """
        source = text_of(self.find(file))
        if isinstance(detect(source), list):
            raise CallboardError("mcp.file_unknown", "the file is not a definition", file, "See list_workflows.")
        return source

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) and not self._is_apart(path, folder) for folder in self.folders)

    def _is_apart(self, path: Path, folder: Path) -> bool:
        return any(path.is_relative_to(apart) and not folder.is_relative_to(apart) for apart in self.apart)


def library(folders: Sequence[str | Path], apart: Sequence[Path] = ()) -> Library:
    return Library(tuple(Path(folder).resolve() for folder in folders), tuple(path.resolve() for path in apart))


def describe_definition(
    source: str, *, name: str | None = None, file: str | None = None, fallback: str = ""
) -> Workflow:
    """Return the description of a definition, as far as it can be read."""
    definition = parse_definition(source)
    if isinstance(definition, list):
        language = detect_nearly(source)
        spoken = language if isinstance(language, str) else ""
        return Workflow(name or fallback, spoken, name=name, file=file, problems=len(definition))
    known = authoring(definition.language)
    said = about(definition)
    return Workflow(
        id=definition.name or name or fallback,
        language=definition.language,
        title=said.title,
        description=said.description,
        name=name,
        file=file,
        nodes=[node.id for node in known.outline(definition.document).nodes],
        inputs=said.inputs,
        arguments=said.parameters,
        options=list(known.options.model_fields) if known.options else [],
    )


def _files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder that may be definitions, in order; hidden folders are skipped."""
    for place, folders, files in os.walk(root):
        depth = len(Path(place).relative_to(root).parts)
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _PASSED_OVER and depth < DEPTH_MAX
        )
        yield from (Path(place) / name for name in sorted(files) if name.endswith(SUFFIXES))
