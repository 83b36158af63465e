"""Joining: the modules of the page as one script, which a browser has sooner than three dozen files.

In the repository each is a module of its own, and nothing is built: they are joined as they are served. In the script
each is a function that runs when it is first imported and returns what it exports. That takes what our modules keep to:
they import and export by name, an import stands on one line, no binding changes once it is exported, and none imports
itself by way of others.
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
    """Return one script of all modules, by their names, which begins with the entry."""
    # A browser reads a function in brackets whole at once, instead of a second time when it is called.
    parts = [f"modules['{name}'] = (() => {{\n{_as_function(name, text)}}})\n" for name, text in modules.items()]
    return f"{_HEAD}{''.join(parts)}use('{ENTRY}')\n"


def _as_function(name: str, text: str) -> str:
    """The body of the function that a module is."""

    def imports(found: re.Match[str]) -> str:
        used = f"use('{_export_name(name, found[2])}')"
        return used if found[1] is None else f"const {{{found[1].replace(' as ', ': ')}}} = {used}"

    exported = [one for _, one in _EXPORT.findall(text)]
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(imports, text))
    body = _LATER.sub(lambda found: f"Promise.resolve('{_export_name(name, found[1])}').then(use)", body)
    # Where a module lies, it lies in the folder of the script.
    body = body.replace("import.meta.url", f"new URL('{name}', import.meta.url).href")
    return f"{body}\nreturn {{{', '.join(exported)}}}\n"


def _export_name(module: str, written: str) -> str:
    """The name of a module as another one writes it."""
    return normpath(join(dirname(module), written))
