"""Build the reference of the public Python API from its docstrings: `python -m tests.maintenance.api_reference FOLDER`.

It has the names that programs may import: those of `callboard`, of `callboard.testing`, and of the adapters of agents.
A warning of the generator, such as an annotation that cannot be resolved, fails the build.
"""

import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pdoc
import pdoc.render

MODULES = (
    "callboard",
    "callboard.testing",
    "callboard.adapters.claude_agent",
    "callboard.adapters.langgraph",
    "callboard.adapters.openai_agents",
    "callboard.adapters.pydantic_ai",
)


def _import_public(name: str) -> None:
    """Import the public names of a module, which it would import when they are first used."""
    module = import_module(name)
    for public in module.__all__:
        found = getattr(module, public)
        setattr(module, public, found)
        if isinstance(found, FunctionType):
            # Its annotations are resolved where it is defined, and not where it is imported from.
            found.__module__ = found.__globals__["__name__"]


def build_reference(folder: Path) -> None:
    """Write the reference as HTML; its first page is ``index.html``.

    :raises Warning: if a docstring or an annotation cannot be rendered
    """
    pdoc.render.configure(docformat="restructuredtext", show_source=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The members of a struct have no module.
        warnings.filterwarnings("ignore", "Cannot determine where")
        # Pydantic AI's annotations are resolvable in its own modules only.
        warnings.filterwarnings("ignore", r"Error parsing type annotation .*\bpydantic_ai\.")
        for name in MODULES:
            _import_public(name)
        pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    build_reference(target)
    print(f"the reference of the Python API is in {target / 'index.html'}")
