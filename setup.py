"""What `pyproject.toml` cannot say of the build: the folders at the top are the packages of `callboard`.

The build does not follow the links in `callboard/`, which a checkout or an unpacked archive may lack, and takes nothing
from an earlier build: files that have been removed since would stay in the wheel.
"""

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = (
    "lib", "bus", "actors", "languages", "adapters", "projections", "runtime", "features", "service", "surfaces",
)  # fmt: skip


class BuildAnew(build_py):
    """Builds the packages without the files of an earlier build."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, "callboard"), ignore_errors=True)
        super().run()


found = find_packages(include=[pattern for name in FOLDERS for pattern in (name, f"{name}.*")])
if missing := sorted(set(FOLDERS) - set(found)):
    raise SystemExit(f"cannot build Callboard: the folders {', '.join(missing)} are missing beside setup.py")

setup(
    packages=["callboard", "callboard.testing", *(f"callboard.{name}" for name in found)],
    package_dir={f"callboard.{name}": name for name in FOLDERS},
    cmdclass={"build_py": BuildAnew},
)
