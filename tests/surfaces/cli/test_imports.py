"""The imports of each command, which take most of its start; counts are stable, and times are not."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.places import ROOT

HELLO = """\
from callboard import step, workflow

@step
async def greet(who: str) -> str: return f"Hello, {who}!"

@workflow
async def hello(who: str = "world") -> str: return await greet(who)
"""

GREETING = """\
{"id": "greet", "name": "Greet", "entry": "a", "nodes": {"a": {"name": "A", "instruction": "Greet."}}, "edges": []}
"""

SDKS = ("anthropic", "openai", "google.genai", "httpx", "httpx2", "mcp", "opentelemetry.sdk")
RARE = (*SDKS, "cryptography", "jwt", "nacl", "requests", "rich", "starlette", "callboard.languages.cel.program")
"""Modules that only some runs or settings need."""

WORKERS = ("callboard.runtime.admission.admission", "callboard.runtime.interpreter", "callboard.languages.registry")
SERVER = ("asyncio", "nats", "structlog")


@dataclass(frozen=True)
class Budget:
    """The maximum number of modules outside the standard library that a program imports, and the forbidden ones.

    The program is a line of Python; ``args`` are those of the command line instead.
    """

    modules: int
    unwanted: tuple[str, ...]
    program: str = ""
    args: tuple[str, ...] = ()


CONFIGURED = "from callboard.surfaces.cli.settings import Settings, load_config; load_config(Settings())"
PROJECTIONS = [f"callboard.projections.{one.stem}" for one in (ROOT / "projections").glob("[!_]*.py")]

BUDGETS = {
    "the library": Budget(1, (), "import callboard"),
    "the catalog of models": Budget(36, (*RARE, "nats"), "import callboard.actors.models.catalog"),
    "projections": Budget(28, (*RARE, *SERVER), f"import {', '.join(PROJECTIONS)}"),
    "a client": Budget(285, (*RARE, *WORKERS), f"{CONFIGURED}; import callboard.runtime.client.connection"),
    "a worker": Budget(525, RARE, f"{CONFIGURED}; import callboard.surfaces.cli.worker_process"),
    "help": Budget(36, (*RARE, *SERVER, "msgspec", "pydantic", "yaml"), args=("--help",)),
    "validate": Budget(220, (*RARE, *SERVER), args=("validate", "greeting.json")),
    "runs": Budget(345, (*RARE, *WORKERS), args=("runs", "--data-dir", "nothing")),
    "run": Budget(600, RARE, args=("run", "hello.py", "--data-dir", "temp", "--no-ask")),
}

COMMAND = "from callboard.surfaces.cli import main; sys.argv[0] = 'callboard'; main.main()"


@pytest.mark.parametrize("name", BUDGETS)
def test_a_program_imports_at_most_its_budget(name: str, tmp_path: Path) -> None:
    budget = BUDGETS[name]
    (tmp_path / "hello.py").write_text(HELLO)
    (tmp_path / "greeting.json").write_text(GREETING)
    program = (
        "import atexit, sys\n"
        "before = {*sys.modules}\n"
        "atexit.register(lambda: open('imported', 'w').write('\\n'.join({*sys.modules} - before)))\n"
        f"{budget.program or COMMAND}\n"
    )
    # With settings in the environment, every command imports the configuration, to warn of unknown settings.
    env = {variable: value for variable, value in os.environ.items() if not variable.startswith("CALLBOARD_")}
    command = [sys.executable, "-c", program, *budget.args]
    subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    imported = (tmp_path / "imported").read_text().split()
    assert [one for one in budget.unwanted if one in imported] == []
    foreign = [one for one in imported if one.partition(".")[0] not in sys.stdlib_module_names]
    assert len(foreign) <= budget.modules, sorted(foreign)


LAUNCHING = """\
import os, sys
from callboard.surfaces.cli import child_processes, main, worker

def keep(_self, child):
    print(child.name, worker.SERVICE in sys.modules, flush=True)
    os._exit(0)

child_processes.ChildProcesses.keep = keep
sys.argv[1:] = ["up", "--data-dir", "data"]
main.main()
"""

FORKED = """\
import sys
import anyio
from callboard.surfaces.cli.up import _import_worker

_import_worker(hosts=False)
before = {*sys.modules}
anyio.run(anyio.sleep, 0)
print({*sys.modules} - before)
"""


def test_the_first_worker_starts_before_the_command_imports_what_answers_requests(tmp_path: Path) -> None:
    assert _print_of(LAUNCHING, tmp_path) == "worker-1 False"


def test_a_forked_worker_imports_nothing_to_start_its_event_loop(tmp_path: Path) -> None:
    assert _print_of(FORKED, tmp_path) == "set()"


def _print_of(program: str, folder: Path) -> str:
    env = {variable: value for variable, value in os.environ.items() if not variable.startswith("CALLBOARD_")}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout.strip()
