"""The types of the page: its modules' JSDoc, checked by TypeScript, which npm lays beside the tests' browser.

``python -m tests.support.page_types``. Where npm reaches nothing it says so, and fails only where ``CI`` is true.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.browser import NODE, NPM
from tests.support.places import ROOT

FOLDER = ROOT / ".browser" / "types"
STATIC = ROOT / "surfaces" / "page" / "static"
TYPESCRIPT = "typescript@5"

OPTIONS = {
    "allowJs": True,
    "checkJs": True,
    "noEmit": True,
    "strict": True,
    # Elements of a view are created when it is shown first.
    "strictNullChecks": False,
    "target": "es2023",
    "lib": ["es2023", "dom", "dom.iterable", "dom.asynciterable"],
    "module": "esnext",
    "moduleResolution": "bundler",
    "types": [],
}


def compiler() -> Path | None:
    """Return the compiler, which is fetched once; None if that cannot be."""
    found = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
    if not found.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run([*NPM, "install", "--silent", "--no-save", "--prefix", str(FOLDER), TYPESCRIPT], check=False)
    return found if found.exists() else None


def main() -> int:
    """Check; return the exit code."""
    tsc = compiler()
    if tsc is None:
        print("no TypeScript: npm cannot fetch it, and the types of the page are not checked")
        return int(os.environ.get("CI") == "true")
    project = FOLDER / "tsconfig.json"
    project.write_text(json.dumps({"compilerOptions": OPTIONS, "include": [f"{STATIC}/**/*.js"]}), encoding="utf-8")
    return subprocess.run([*NODE, str(tsc), "-p", str(project)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
