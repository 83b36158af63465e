"""Loading code: a module or folder is read, imported, and hosted, so that runs of its workflows can be performed here.

The sources of a bundle are what its digest is made of: the ``.py`` files of a package or folder, or of a single file
those modules beside it that it imports. Installed packages do not belong to it. A watch reports that files of hosted
code have changed, so that it can be loaded again.
"""

import ast
import importlib
import importlib.util
import os
import sys
import traceback
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import anyio
from anyio import to_thread
from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.languages.hosting import HostedObject, SourceBundle
from callboard.languages.registry import hosting
from callboard.lib.foreign_errors import is_foreign
from callboard.runtime.hosting.cells import read_cells
from callboard.runtime.hosting.names import SUFFIX

LEFT_OUT = frozenset({"__pycache__", "node_modules", "build", "dist"})
"""Folders whose files do not belong to a bundle; neither do those whose name begins with a dot."""

SOURCES_MAX = 2_000
"""How many files a bundle may have."""

IMPORTED_KEPT = 8
"""How many bundles of imported modules are kept in memory, so that each start of a workflow need not read them."""

Stamp = frozenset[tuple[str, int, int]]
"""Files, each with the time of its last change and its size."""


class ImportFailed(CallboardError):
    """Code cannot be imported. ``file`` and ``line`` are the place of the error, in the code if it appears there."""

    def __init__(self, message: str, file: str, line: int | None) -> None:
        where = f"{file}:{line}" if line else file
        super().__init__("python.import_failed", message, where, "Correct the code, or install what it imports.")
        self.file = file
        self.line = line


class LoadedCode(Struct, frozen=True):
    """Code that was loaded, and by the name of each workflow the text of its definition."""

    code: SourceBundle
    root: Path
    entries: list[HostedObject]
    definitions: Mapping[str, str]

    @property
    def digest(self) -> str:
        return self.code.digest

    @property
    def sources(self) -> Mapping[str, str]:
        return self.code.sources


def load_kept(target: str, folder: Path) -> LoadedCode:
    """Load code that was unpacked into a folder. It finds its own modules there, before all others of their names.

    Raises as `load`.
    """
    sys.path.insert(0, str(folder))
    return load(target)


def load(target: str, folder: Path | None = None) -> LoadedCode:
    """Load a module, a file or a folder, and host what definitions can name in it.

    Prints of the code go to stderr, because stdout belongs to this program.

    :raises CallboardError: ``python.code_missing``, ``python.import_failed``, ``python.no_workflow``
    """
    hosting().prepare()
    here = folder or Path.cwd()
    path = _path_of(target, here)
    with redirect_stdout(sys.stderr):
        if path is None:
            return _of_module(target, here)
        return _of_folder(path) if path.is_dir() else _of_file(path)


def find_sources(target: str, folder: Path | None = None) -> list[Path]:
    """Return the files of the bundle that `load` makes of a module, file or folder, without importing it.

    :raises CallboardError: ``python.code_missing``
    """
    here = folder or Path.cwd()
    path = _path_of(target, here)
    if path is None:
        return _home(_origin_of(target, here)[0], target).paths
    if path.is_dir():
        return _in_folder(path).paths
    return (_in_folder(path.parent) if _is_package(path.parent) else _sources_of_file(path)).paths


def _path_of(target: str, here: Path) -> Path | None:
    """Return the folder or the file that a name of code means; None if it means a module that is found elsewhere."""
    path = here / target
    if path.is_dir() or (path.suffix == SUFFIX and path.is_file()):
        return path.resolve()
    beside = path.with_name(f"{path.name}{SUFFIX}")
    return beside.resolve() if beside.is_file() else None


def load_object(value: object) -> LoadedCode:
    """Load the bundle that a module, or a workflow, of this program is of.

    A workflow may also be defined in cells of a notebook, or in a console that keeps its input.

    :raises CallboardError: ``python.no_workflow``, if it is neither; ``python.code_missing``, if it has no source
    """
    hosting().prepare()
    if isinstance(value, ModuleType) and getattr(value, "__file__", None) is None:
        # All workflows of the module belong to the bundle of one.
        value = next(iter(hosting().entries_of(value)), value)
    if isinstance(value, ModuleType):
        return _bundle_of_imported(_home(value.__file__ or "", value.__name__), [value])
    if hosting().is_entry(value):
        entry: Any = value
        module = sys.modules.get(entry.module)
        # One that a function defines is not found in its module.
        more = [entry] if module is None or entry not in hosting().entries_of(module) else []
        if not Path(entry.file).is_file():
            cells = read_cells(entry, module)
            found = _Found(Path.cwd(), [], cells.root)
            digest = hosting().digest_of(cells.sources)
            return _collect_entries(found, cells.sources, digest, [module] if module is not None else [], more)
        bundle = _home(entry.file, entry.module)
        return _bundle_of_imported(bundle, [module] if module is not None else [], more)
    raise CallboardError("python.no_workflow", f"{value!r} is neither a module nor a workflow", remedy="Give either.")


def _of_file(path: Path) -> LoadedCode:
    if not _is_package(path.parent):
        return _bundle_with_imported(_sources_of_file(path), _import_file(path.stem, path))
    found = _in_folder(path.parent)
    _find_in(found.root)
    _find_in(path.parent)
    name = _module_name(path, found.root)
    module = _import(name, found.root)
    _refuse_another(name, module, path)
    return _bundle_with_imported(found, module)


def _of_folder(folder: Path) -> LoadedCode:
    found = _in_folder(folder)
    _find_in(found.root)
    if found.root != folder:
        # Modules of a package may import those beside them as if these had no package.
        _find_in(folder)
        names = [_module_name(path, found.root) for path in found.paths if path.is_relative_to(folder)]
    else:
        names = [path.stem for path in found.paths if path.parent == folder]
    return _bundle_of(found, [_import(name, found.root) for name in names])


def _of_module(name: str, here: Path) -> LoadedCode:
    origin, is_package = _origin_of(name, here)
    found = _home(origin, name)
    module = _import(name, found.root)
    if not is_package:
        return _bundle_with_imported(found, module)
    return _bundle_of(found, [_import(_module_name(path, found.root), found.root) for path in found.paths])


def _origin_of(name: str, here: Path) -> tuple[str, bool]:
    """Return the file of a module, and whether the module is a package.

    :raises CallboardError: ``python.code_missing``
    """
    _find_in(here)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise CallboardError(
            "python.code_missing",
            f"there is no module, file or folder {name!r}",
            str(here),
            "Name a module that can be imported here, a file, or a folder.",
        )
    return spec.origin, bool(spec.submodule_search_locations)


# -- sources ----------------------------------------------------------------------------------------------------------


class _Found(Struct, frozen=True):
    """The files of a bundle, and the folder that they are named from. All names of files in the code have this
    ``beginning``, if they are not in the folder. ``package`` is the folder of the package, if the bundle is one."""

    root: Path
    files: list[str]
    beginning: str = ""
    package: Path | None = None

    @property
    def paths(self) -> list[Path]:
        return [Path(file) for file in self.files]

    def sources(self) -> dict[str, str]:
        return {path.relative_to(self.root).as_posix(): path.read_text(encoding="utf-8") for path in self.paths}

    def stamp(self) -> Stamp:
        # At each start of a workflow of this program: a `Path` for each file would take most of the time.
        return frozenset(_stamp_of(file) for file in self.files)


def _home(file: str, module: str) -> _Found:
    """Return the bundle that a module's file is of: its package, or, of a module without one, the file with those
    beside it that it imports."""
    path = Path(file).resolve()
    package = module.partition(".")[0]
    depth = len(module.split(".")) - (0 if path.name == "__init__.py" else 1)
    top = path.parents[depth - 1] if depth else None
    if top is not None and top.name == package and _is_package(top):
        return _package(top)
    return _sources_of_file(path)


def _in_folder(folder: Path) -> _Found:
    """Return the bundle of a folder: if it is a package, or within one, the outermost package."""
    if not _is_package(folder):
        return _Found(folder, _files(folder))
    while _is_package(folder.parent):
        folder = folder.parent
    return _package(folder)


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _package(folder: Path) -> _Found:
    return _Found(folder.parent, _files(folder), package=folder)


def _files(folder: Path) -> list[str]:
    found = list[str]()
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _belongs(name)]
        found += [f"{place}/{name}" for name in files if name.endswith(SUFFIX) and _belongs(name)]
        if len(found) > SOURCES_MAX:
            remedy = "Name the module or the package that has the workflows."
            raise CallboardError(
                "python.code_missing", f"{folder} has more than {SOURCES_MAX} files", str(folder), remedy
            )
    return sorted(found, key=lambda file: file.split("/"))


def _belongs(name: str) -> bool:
    return name not in LEFT_OUT and not name.startswith(".")


def _sources_of_file(path: Path) -> _Found:
    """Return a file with the modules beside it that it imports, directly or by way of each other."""
    folder, found, unseen = path.parent, dict[Path, None](), [path]
    while unseen:
        one = unseen.pop()
        if one in found:
            continue
        found[one] = None
        for name in _imports(one):
            beside = folder / f"{name}{SUFFIX}"
            package = folder / name
            if beside.is_file():
                unseen.append(beside)
            elif _is_package(package):
                unseen += map(Path, _files(package))
    return _Found(folder, [str(path) for path in sorted(found)])


def _imports(path: Path) -> set[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return set()  # importing it says what is wrong
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


# -- importing --------------------------------------------------------------------------------------------------------


def _find_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _module_name(path: Path, root: Path) -> str:
    parts = list(path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _import(name: str, folder: Path) -> ModuleType:
    """Import a module whose bundle is in ``folder``."""
    try:
        return importlib.import_module(name)
    except BaseException as error:
        if not is_foreign(error):
            raise
        raise _load_error(name, error, folder) from error


def _import_file(name: str, path: Path) -> ModuleType:
    """Import a file under a name. Once more if it was imported before: it may have changed."""
    _find_in(path.parent)
    known = sys.modules.get(name)
    _refuse_another(name, known, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    assert spec is not None
    try:
        # Under the lock of the module's name: another thread that imports it waits until it is whole.
        return importlib._bootstrap._load(spec)  # type: ignore[attr-defined]  # pyright: ignore
    except BaseException as error:
        if known is not None:
            sys.modules[name] = known
        if not is_foreign(error):
            raise
        raise _load_error(str(path), error, path.parent) from error


def _refuse_another(name: str, known: ModuleType | None, path: Path) -> None:
    """Refuse a file if the module of its name is another one."""
    file = getattr(known, "__file__", None)
    if known is not None and Path(file or "").resolve() != path:
        message = f"another module is called {name} already ({file or 'built in'})"
        raise CallboardError("python.import_failed", message, str(path), "Give the file another name.")


class _SourceLoader(SourceFileLoader):
    """Compiles a file each time: its cached form is found by its time, which may be the same after a quick edit."""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)


def _load_error(what: str, error: BaseException, folder: Path) -> ImportFailed:
    """Make the error of an import. Its place is the last line in ``folder`` or below that the traceback has: what
    Callboard or an installed package refuses is corrected where the code calls it."""
    message = f"{what} cannot be imported: {type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        return ImportFailed(message.replace(str(error), error.msg, 1), error.filename, error.lineno)
    frames = traceback.extract_tb(error.__traceback__)
    found = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    own = [frame for frame in found if _is_own(Path(frame.filename), folder)] or found
    return ImportFailed(message, own[-1].filename, own[-1].lineno) if own else ImportFailed(message, what, None)


def _is_own(file: Path, folder: Path) -> bool:
    return file.is_relative_to(folder) and "site-packages" not in file.parts


# -- hosting ----------------------------------------------------------------------------------------------------------


def _bundle_of(found: _Found, modules: list[ModuleType]) -> LoadedCode:
    sources = found.sources()
    return _collect_entries(found, sources, hosting().digest_of(sources), modules, [])


def _bundle_with_imported(found: _Found, module: ModuleType) -> LoadedCode:
    """Host the workflows of a module, and those of the bundle's modules that it has imported, which it may call as
    child runs. The bundle has only those of the module."""
    bundle = _bundle_of(found, [module])
    files = {*found.files} - {module.__file__}
    imported = [one for one in list(sys.modules.values()) if getattr(one, "__file__", None) in files]
    if entries := [entry for one in imported for entry in hosting().entries_of(one)]:
        hosting().host(bundle.code, entries)
    return bundle


def _bundle_of_imported(found: _Found, modules: list[ModuleType], more: list[Any] | None = None) -> LoadedCode:
    return _collect_entries(found, *_sources_at(found, found.stamp()), modules, more or [])


_KEPT: OrderedDict[tuple[Path, Stamp], tuple[Mapping[str, str], str]] = OrderedDict()


def _sources_at(found: _Found, stamp: Stamp) -> tuple[Mapping[str, str], str]:
    """Return the sources and their digest, which are read once for each state of the files."""
    kept = _KEPT.get((found.root, stamp))
    if kept is None:
        sources = found.sources()
        kept = _KEPT[found.root, stamp] = (sources, hosting().digest_of(sources))
        if len(_KEPT) > IMPORTED_KEPT:
            _KEPT.popitem(last=False)
    return kept


def _collect_entries(
    found: _Found, sources: Mapping[str, str], digest: str, modules: list[ModuleType], more: list[Any]
) -> LoadedCode:
    spoken = hosting()
    entries = [*(entry for module in modules for entry in spoken.entries_of(module)), *more]
    if not entries:
        names = ", ".join(module.__name__ for module in modules)
        raise CallboardError(
            "python.no_workflow", f"{names} has no workflow", str(found.root), "Decorate an `async def` with @workflow."
        )
    root = found.beginning or f"{found.root}/"

    def read(name: str) -> str:
        path = (found.root / name).resolve()
        if found.package is not None and not path.is_file():
            path = (found.package / name).resolve()
        if not path.is_relative_to(found.root):
            raise ValueError(f"{name} lies outside of {found.root}")
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{name} cannot be read beside the code: {error}") from error

    code = SourceBundle(digest, sources, root, read)
    return LoadedCode(code, found.root, entries, spoken.host(code, entries))


def load_named(file: str, name: str) -> tuple[LoadedCode, list[HostedObject]]:
    """Load a file or a module, and return its workflow of this name, or all its workflows if the name is empty.

    :raises CallboardError: as `load`; ``python.no_workflow`` too if it has none of the name
    """
    if file.endswith(SUFFIX) and not Path(file).is_file():
        raise CallboardError("python.code_missing", "the file does not exist", file, "Check the path.")
    bundle = load(file)
    found = [entry for entry in bundle.entries if name in ("", entry.name)]
    if not found:
        raise _no_such_workflow(bundle, file, f"has no workflow {name!r}")
    return bundle, found


def load_entry(file: str, name: str) -> tuple[LoadedCode, HostedObject]:
    """Load a file or a module, and return its workflow of this name; without a name, its only workflow.

    :raises CallboardError: as `load_named`; ``python.no_workflow`` too if no name is given and it has several
    """
    bundle, found = load_named(file, name)
    if len(found) > 1:
        raise _no_such_workflow(bundle, file, "has several workflows")
    return bundle, found[0]


def definition_of(file: str, name: str) -> tuple[Path, str]:
    """Load a file or a module, and return the file that has one of its workflows, and the text of its definition.

    Raises as `load_entry`.
    """
    bundle, entry = load_entry(file, name)
    return Path(entry.file), bundle.definitions[entry.name]


def _no_such_workflow(bundle: LoadedCode, file: str, what: str) -> CallboardError:
    known = ", ".join(bundle.definitions)
    return CallboardError("python.no_workflow", f"{file} {what}", file, f"Name one of its workflows: {known}.")


POLL_S = 0.4
"""Pause between two looks at the files."""


async def code_changes(targets: Sequence[str]) -> AsyncGenerator[None]:
    """Yield after each change of the files of some modules, files or folders, once the files rest again: an editor
    writes several files, or one in several steps."""
    known = await to_thread.run_sync(_stamp, targets)
    while True:
        await anyio.sleep(POLL_S)
        seen = await to_thread.run_sync(_stamp, targets)
        if seen == known:
            continue
        while seen != known:
            known = seen
            await anyio.sleep(POLL_S)
            seen = await to_thread.run_sync(_stamp, targets)
        yield


def _stamp(targets: Sequence[str]) -> Stamp:
    found: set[tuple[str, int, int]] = set()
    for target in targets:
        # A file that is being replaced is missing for a moment.
        with suppress(CallboardError, OSError):
            found.update(_stamp_of(str(path)) for path in find_sources(target))
    return frozenset(found)


def _stamp_of(file: str) -> tuple[str, int, int]:
    about = os.stat(file)
    return file, about.st_mtime_ns, about.st_size
