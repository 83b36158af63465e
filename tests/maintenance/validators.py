"""Validators, generators and a type checker of others: what `make validators` installs, and how tests run them.

They are in the folder `.validators`. Tests that need them are skipped without them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import NODE, NPM
from tests.support.places import ROOT

FOLDER = ROOT / ".validators"
PYTHON = FOLDER / "python" / "bin"
PACKAGES = {
    "@asyncapi/parser": "3.6.0",
    "@redocly/cli": "2.30.0",
    "ajv": "8.17.1",
    "ajv-formats": "3.0.1",
    "openapi-typescript": "7.10.1",
    "typescript": "5.9.3",
}
OVERRIDES = {"ajv": PACKAGES["ajv"]}
"""The parser of AsyncAPI does not work with newer ones."""

PYTHON_PACKAGES = (
    "mypy==2.4.1",
    "openapi-python-client==0.29.1",
    "openapi-spec-validator==0.9.0",
    "schemathesis==4.32.5",
)
INSTALLED = FOLDER / "installed.json"
WANTED: dict[str, Any] = {"npm": PACKAGES, "python": list(PYTHON_PACKAGES)}
"""The file that marks a complete installation."""

RUN_S = 100.0

ASYNCAPI = """
const {Parser} = require('@asyncapi/parser'), {readFileSync} = require('fs')
new Parser().parse(readFileSync(process.argv[1], 'utf8')).then(({diagnostics}) => {
  for (const {severity, message, path} of diagnostics) if (severity <= 1) console.log(`${path.join('/')}: ${message}`)
})
"""
AJV = """
const {default: Ajv} = require('ajv/dist/2020'), {default: formats} = require('ajv-formats')
const {readFileSync} = require('fs')
for (const file of process.argv.slice(1)) {
  const ajv = new Ajv({strict: true})
  formats(ajv)
  try { ajv.compile(JSON.parse(readFileSync(file, 'utf8'))) } catch (error) { console.log(`${file}: ${error.message}`) }
}
"""


def needed() -> None:
    """Skip the test if the validators are not installed."""
    if not INSTALLED.exists() or json.loads(INSTALLED.read_text(encoding="utf-8")) != WANTED:
        pytest.skip("no validators of these versions: `make validators` installs them")


def run(*command: str) -> tuple[int, str]:
    """Run one of them in their folder; return its exit code, and what it says."""
    path = os.pathsep.join([str(PYTHON), os.environ.get("PATH", os.defpath)])
    env = {**os.environ, "PATH": path, "REDOCLY_TELEMETRY": "off", "NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=FOLDER, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_S
    )
    return done.returncode, done.stdout


def run_script(script: str, *files: Path) -> list[str]:
    """Run a script with node; return the lines that it prints, each a complaint."""
    code, said = run(*NODE, "-e", script, "--", *map(str, files))
    assert code == 0, said
    return said.splitlines()


def run_package(package: str, file: str, *args: str) -> tuple[int, str]:
    """Run a program of a package from npm."""
    return run(*NODE, str(FOLDER / "node_modules" / package / file), *args)


def _install() -> None:
    FOLDER.mkdir(exist_ok=True)
    INSTALLED.unlink(missing_ok=True)
    package = {"private": True, "dependencies": PACKAGES, "overrides": OVERRIDES}
    (FOLDER / "package.json").write_text(json.dumps(package), encoding="utf-8")
    subprocess.run([*NPM, "install", "--silent", "--no-package-lock", "--prefix", str(FOLDER)], cwd=FOLDER, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(PYTHON.parent)], check=True)
    pip = [str(PYTHON / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PYTHON_PACKAGES], check=True)
    INSTALLED.write_text(json.dumps(WANTED), encoding="utf-8")


if __name__ == "__main__":
    _install()
