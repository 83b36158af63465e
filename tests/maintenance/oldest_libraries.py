"""The adapters' tests with the oldest versions of the libraries that they accept: ``make oldest``.

`make test` performs them with the newest ones, those of ``requirements.lock``. An old version is installed in a folder
that comes before the others in ``PYTHONPATH``, without its dependencies.
"""

import os
import re
import subprocess
import sys
from tempfile import TemporaryDirectory

from tests.support.places import ROOT


def oldest() -> dict[str, str]:
    """Return what `pip` installs for each adapter. Where the oldest version is the newest, `make test` has it."""
    found: dict[str, str] = {}
    for source in sorted((ROOT / "adapters").glob("*/__init__.py")):
        text = source.read_text()
        [(library, least, newest)] = re.findall(r'require\("(.+?)", .*oldest="(.+?)", newest="(.+?)"', text)
        if least != newest:
            found[source.parent.name] = f"{library}=={least}"
    return found


def main() -> int:
    """Install each library and perform the tests of its adapter. Return 1 if one fails."""
    failed: list[str] = []
    for adapter, wanted in oldest().items():
        tests = [str(one) for one in sorted((ROOT / "tests" / "adapters").glob(f"*{adapter}*"))]
        with TemporaryDirectory() as folder:
            install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, wanted]
            subprocess.run(install, check=True)
            env = {**os.environ, "PYTHONPATH": os.pathsep.join((folder, str(ROOT)))}
            print(f"== {wanted}", flush=True)
            perform = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
            if subprocess.run(perform, cwd=ROOT, env=env, check=False).returncode:
                failed.append(wanted)
    print(f"failed with {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
