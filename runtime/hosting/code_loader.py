"""Loading code: a module or folder is read, imported, and hosted, so that runs of its workflows can be performed here.

The sources of a bundle are what its digest is made of: the ``.py`` files of a package or folder, or of a single file
those modules beside it that it imports. Installed packages do not belong to it.
"""

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.languages.hosting import Code, Entry
from callboard.languages.registry import hosting
from callboard.runtime.hosting.names import SUFFIX

LEFT_OUT = frozenset({"__pycache__", "node_modules", "build", "dist"})
"""Folders whose files do not belong to a bundle; neither do those whose name begins with a dot."""

SOURCES_MAX = 2_000
"""How many files a bundle may have."""


class Bundle(Struct, frozen=True):
    """Code that was loaded: its digest and sources, and by the name of each workflow the text of its definition."""

    digest: str
    sources: Mapping[str, str]
    root: Path
    entries: list[Entry]
    definitions: Mapping[str, str]


def load(target: str, folder: Path | None = None) -> Bundle:
    """Load a module, a file or a folder, and host what definitions can name in it.

    :raises CallboardError: ``python.code_missing``, ``python.import_failed``, ``python.no_workflow``
    """
    hosting().prepare()
    here = folder or Path.cwd()
    path = here / target
    if path.is_dir():
        return _of_folder(path)
    if path.suffix == SUFFIX and path.is_file():
        return _of_file(path)
    if (beside := path.with_name(f"{path.name}{SUFFIX}")).is_file():
        return _of_file(beside)
    return _of_module(target, here)


def load_object(value: object) -> Bundle:
    """Load the bundle that a module, or a workflow, of this program is of.

    :raises CallboardError: ``python.no_workflow``, if it is neither
    """
    hosting().prepare()
    if isinstance(value, ModuleType):
        return _bundle_of(_home(value.__file__ or "", value.__name__), [value])
    if hosting().is_entry(value):
        entry: Any = value
        bundle = _home(entry.file, entry.module)
        module = sys.modules.get(entry.module)
        # One that a function defines is not found in its module.
        more = [entry] if module is None or entry not in hosting().entries_of(module) else []
        return _bundle_of(bundle, [module] if module is not None else [], more)
    raise CallboardError("python.no_workflow", f"{value!r} is no module and no workflow", remedy="Give one of the two.")


def _of_file(path: Path) -> Bundle:
    found = _sources_of_file(path.resolve())
    return _bundle_of(found, [_import_file(path.stem, path.resolve())])


def _of_folder(folder: Path) -> Bundle:
    folder = folder.resolve()
    if (folder / "__init__.py").is_file():
        found = _package(folder)
        _find_in(folder.parent)
        names = [_module_name(path, folder.parent) for path in found.paths]
    else:
        found = _Found(folder, list(_files(folder)))
        _find_in(folder)
        names = [path.stem for path in found.paths if path.parent == folder]
    return _bundle_of(found, [_import(name) for name in names])


def _of_module(name: str, here: Path) -> Bundle:
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
    module = _import(name)
    found = _home(spec.origin, name)
    if len(spec.submodule_search_locations or []) == 0:
        return _bundle_of(found, [module])
    root = found.root
    return _bundle_of(found, [_import(_module_name(path, root)) for path in found.paths])


# -- sources ----------------------------------------------------------------------------------------------------------


class _Found(Struct, frozen=True):
    """The files of a bundle, and the folder that they are named from."""

    root: Path
    paths: list[Path]

    def sources(self) -> dict[str, str]:
        return {path.relative_to(self.root).as_posix(): path.read_text(encoding="utf-8") for path in self.paths}


def _home(file: str, module: str) -> _Found:
    """Return the bundle that a module's file is of: its package, or, of a module without one, the file with those
    beside it that it imports."""
    path = Path(file).resolve()
    package = module.partition(".")[0]
    depth = len(module.split(".")) - (0 if path.name == "__init__.py" else 1)
    top = path.parents[depth - 1] if depth else None
    if top is not None and top.name == package and (top / "__init__.py").is_file():
        return _package(top)
    return _sources_of_file(path)


def _package(folder: Path) -> _Found:
    return _Found(folder.parent, list(_files(folder)))


def _files(folder: Path) -> Iterator[Path]:
    count = 0
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        inside = path.relative_to(folder).parts
        if not any(part in LEFT_OUT or part.startswith(".") for part in inside):
            count += 1
            if count > SOURCES_MAX:
                remedy = "Name the module or the package that has the workflows."
                raise CallboardError(
                    "python.code_missing", f"{folder} has more than {SOURCES_MAX} files", str(folder), remedy
                )
            yield path


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
            elif (package / "__init__.py").is_file():
                unseen += _files(package)
    return _Found(folder, sorted(found))


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


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _load_error(name, error) from error


def _import_file(name: str, path: Path) -> ModuleType:
    """Import a file under a name. Once more if it was imported before: it may have changed."""
    _find_in(path.parent)
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() != path:
        raise CallboardError(
            "python.import_failed",
            f"another module is called {name} already ({getattr(known, '__file__', None) or 'built in'})",
            str(path),
            "Give the file another name.",
        )
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Compiled here: a cached form is found by the time of the file, which may be the same after a quick edit.
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    except Exception as error:
        if known is None:
            del sys.modules[name]
        else:
            sys.modules[name] = known
        raise _load_error(str(path), error) from error
    return module


def _load_error(what: str, error: Exception) -> CallboardError:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    at = f"{own[-1].filename}:{own[-1].lineno}" if own else what
    if isinstance(error, SyntaxError) and error.filename:
        at = f"{error.filename}:{error.lineno}"
    message = f"{what} cannot be imported: {type(error).__name__}: {error}"
    return CallboardError("python.import_failed", message, at, "Correct the code, or install what it imports.")


# -- hosting ----------------------------------------------------------------------------------------------------------


def _bundle_of(found: _Found, modules: list[ModuleType], more: list[Any] | None = None) -> Bundle:
    spoken = hosting()
    entries = [*(entry for module in modules for entry in spoken.entries_of(module)), *(more or [])]
    if not entries:
        names = ", ".join(module.__name__ for module in modules)
        raise CallboardError(
            "python.no_workflow", f"{names} has no workflow", str(found.root), "Decorate an `async def` with @workflow."
        )
    sources = found.sources()
    root = f"{found.root}/"

    def read(name: str) -> str:
        path = (found.root / name).resolve()
        if not path.is_relative_to(found.root):
            raise ValueError(f"{name} lies outside of {found.root}")
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{name} cannot be read beside the code: {error}") from error

    code = Code(spoken.digest_of(sources), sources, root, read)
    definitions = {entry.name: spoken.host(code, entry) for entry in entries}
    return Bundle(code.digest, sources, found.root, entries, definitions)


def definition_of(file: str, name: str) -> tuple[Bundle, str]:
    """Load a file, and return the text of the definition of one of its workflows.

    :raises CallboardError: as `load`; ``python.no_workflow`` too if it has several, or none of the name
    """
    if not Path(file).is_file():
        raise CallboardError("python.code_missing", "there is no such file", file, "Check the path.")
    bundle = load(file)
    known = ", ".join(bundle.definitions)
    if not name and len(bundle.definitions) == 1:
        name = next(iter(bundle.definitions))
    if name not in bundle.definitions:
        what = f"has no workflow {name!r}" if name else "has several workflows"
        raise CallboardError("python.no_workflow", f"{file} {what}", file, f"Name one of its workflows: {known}.")
    return bundle, bundle.definitions[name]
