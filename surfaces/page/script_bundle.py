"""Joining: serve the modules of the page as one script, which a browser loads faster than three dozen files.

The modules are joined when they are served, without a build step. In the script each module is a function that runs on
its first import and returns its exports. This requires that modules import and export by name, that an import is on one
line, that no exported binding changes, and that there are no import cycles.
"""

import re
from collections.abc import Mapping
from posixpath import dirname, join, normpath

ENTRY = "app.js"

_IMPORT = re.compile(r"^import (?:\{([^}]*)\} from )?'(\.[^']+)'$", re.MULTILINE)
_LATER = re.compile(r"\bimport\('(\.[^']+)'\)")
_EXPORT = re.compile(r"^export ((?:async )?function\*?|const|class) (\w+)", re.MULTILINE)

_HEAD = """const modules = {}
const made = {}
const use = (name) => made[name] ??= modules[name]()
"""


def bundle_modules(modules: Mapping[str, str]) -> str:
    """Return one script of all modules, keyed by name, that starts with the entry."""
    # Browsers parse a function in brackets fully at once, instead of again when it is called.
    parts = [f"modules['{name}'] = (() => {{\n{_as_function(name, text)}}})\n" for name, text in modules.items()]
    return f"{_HEAD}{''.join(parts)}use('{ENTRY}')\n"


def _as_function(name: str, text: str) -> str:
    """Return the body of a module's function."""

    def imports(found: re.Match[str]) -> str:
        used = f"use('{_export_name(name, found[2])}')"
        return used if found[1] is None else f"const {{{found[1].replace(' as ', ': ')}}} = {used}"

    exported = [one for _, one in _EXPORT.findall(text)]
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(imports, text))
    body = _LATER.sub(lambda found: f"Promise.resolve('{_export_name(name, found[1])}').then(use)", body)
    # Resolve a module's address relative to the folder of the script.
    body = body.replace("import.meta.url", f"new URL('{name}', import.meta.url).href")
    return f"{body}\nreturn {{{', '.join(exported)}}}\n"


def _export_name(module: str, written: str) -> str:
    """Return the name of a module from the path in another one's import."""
    return normpath(join(dirname(module), written))
