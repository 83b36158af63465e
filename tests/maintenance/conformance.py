"""The public conformance data: ``make conformance`` fetches it into the folder `.conformance`.

Each repository is read at one commit. What was fetched is compared with a checksum before tests can read it. Data that
is beside the project, and has these checksums, is not fetched again.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.conformance import CONFORMANCE, FETCHED

HOST = "https://github.com"


@dataclass(frozen=True)
class Source:
    """Files of a repository."""

    repository: str
    commit: str
    paths: dict[str, str]
    """Paths in the repository, by the paths that tests read."""
    checksum: str
    """SHA-256 of the names and contents of all files."""

    def checksum_in(self, folder: Path) -> str:
        """Return the checksum of the files that a folder has."""
        found = hashlib.sha256()
        for name, file in sorted(self._files(folder)):
            content = file.read_bytes()
            found.update(f"{name} {len(content)}\n".encode() + content)
        return found.hexdigest()

    def _files(self, folder: Path) -> Iterator[tuple[str, Path]]:
        for path in self.paths:
            place = folder / path
            for file in [place] if place.is_file() else place.rglob("*"):
                if file.is_file() and file.name != "README.md":
                    yield file.relative_to(folder).as_posix(), file

    def fetch(self, folder: Path) -> None:
        """Copy the files of the commit into a folder."""
        with TemporaryDirectory() as checkout:
            address = f"{HOST}/{self.repository}"
            for words in (
                ("init", "--quiet"),
                ("fetch", "--quiet", "--depth", "1", address, self.commit),
                ("checkout", "--quiet", self.commit, "--", *self.paths.values()),
            ):
                subprocess.run(["git", *words], cwd=checkout, check=True)
            for path, there in self.paths.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(Path(checkout, there), folder / path)


SOURCES = [
    Source(
        "Element84/metolia-spec",
        "f13764da37f859a66a54a6a4da5e995fef392f02",
        {
            "mwl": "tests/conformance",
            "mwl-schemas/cases": "tests/schemas",
            "mwl-schemas/flow": "static/v0.1/flow",
            "mwl-schemas/provider": "static/v0.1/provider",
            **{
                f"mwl-schemas/{name}.v1.json": f"content/reference/providers/{name}.v1.json"
                for name in ("finally", "loop", "mock", "retry", "timeout")
            },
        },
        "783d3d25621e6ce7287aa147248daec9b1852465f9aa83e6d901bf7a2dbddfee",
    ),
    Source(
        "PLAYBOOK-md/playbook-spec",
        "85476f50256dccd44d90c22780ac196fc81f2237",
        {"playbook/vectors": "tests/vectors"},
        "a95dec6f9f8d4ad480ca0198cc43cde9735a95924fcf0624af1833846b6f1b8d",
    ),
    Source(
        "swenyai/sweny",
        "d9f39959471f823f6febf1ee31f20d5ccd329081",
        {"sweny-schemas": "spec/public/schemas"},
        "5ca944b2e1949a94351535c1d8583f6f2e76ea5a3676f9ece61758c40bcd994e",
    ),
]


def lay(sources: list[Source], folder: Path) -> list[str]:
    """Fetch sources and replace a folder by them. Return the faults; with any, the folder stays as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as scratch:
        fetched = Path(scratch, "fetched")
        faults: list[str] = []
        for source in sources:
            try:
                source.fetch(fetched)
            except subprocess.CalledProcessError:
                faults.append(f"{source.repository} cannot be fetched at {source.commit}; git says why above")
                continue
            if (found := source.checksum_in(fetched)) != source.checksum:
                faults.append(f"{source.repository} has the checksum {found}, expected {source.checksum}")
        if not faults:
            shutil.rmtree(folder, ignore_errors=True)
            fetched.rename(folder)
    return faults


def main() -> int:
    """Fetch the data, unless the tests have it already."""
    if all(source.checksum_in(CONFORMANCE) == source.checksum for source in SOURCES):
        print(f"the conformance data is in {CONFORMANCE}")
        return 0
    faults = lay(SOURCES, FETCHED)
    print("\n".join([*faults, "nothing was changed; try again"]) if faults else f"the conformance data is in {FETCHED}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
