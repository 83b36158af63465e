"""The adapters' tests with the oldest and the newest tested version of each library: ``make matrix``.

The newest versions are those of the locks, which `make test` has as well: ``make matrix VERSIONS=oldest`` leaves them
out. An old version is installed in a folder that comes before the others in ``PYTHONPATH``, without its dependencies.
"""

import os
import re
import subprocess
import sys
from tempfile import TemporaryDirectory

from tests.support.places import ROOT


def tested() -> dict[str, tuple[str, str, str]]:
    """Return the library of each adapter, with its oldest and its newest tested version."""
    found: dict[str, tuple[str, str, str]] = {}
    for source in sorted((ROOT / "adapters").glob("*/__init__.py")):
        [found[source.parent.name]] = re.findall(
            r'require\("(.+?)", .*oldest="(.+?)", newest="(.+?)"', source.read_text()
        )
    return found


def passes(adapter: str, library: str, version: str, *, installed: bool) -> bool:
    """Perform the tests of an adapter with a version of its library, which is installed for them if it is not there."""
    print(f"== {library} {version}", flush=True)
    tests = [str(one) for one in sorted((ROOT / "tests" / "adapters").glob(f"*{adapter}*"))]
    with TemporaryDirectory() as folder:
        if not installed:
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
            subprocess.run([*pip, f"{library}=={version}"], check=True)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((folder, str(ROOT)))}
        perform = [sys.executable, "-m", "pytest", "-q", "--lanes", "2", "-p", "no:cacheprovider", *tests]
        return not subprocess.run(perform, cwd=ROOT, env=env, check=False).returncode


def main(*versions: str) -> int:
    """Perform the tests with the ``oldest`` versions, the ``newest`` ones, or both. Return 1 if one fails."""
    failed: list[str] = []
    for adapter, (library, oldest, newest) in tested().items():
        # Where the oldest version is the newest, the newest one counts.
        chosen = {"oldest": {oldest} - {newest}, "newest": {newest}}
        for version in sorted(set[str]().union(*(chosen[name] for name in versions))):
            if not passes(adapter, library, version, installed=version == newest):
                failed.append(f"{library} {version}")
    print(f"failed with {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ("oldest", "newest"))))
