"""The command line in tests: definitions on disk, commands in this process and as separate processes."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from callboard.bus.nats.credentials import without_secrets
from callboard.bus.nats.server.data_directory import running_url
from callboard.surfaces.cli.main import cli
from callboard.surfaces.cli.output import render_text
from tests.support.forks import callboard, programs
from tests.support.lane_server import held

INPUT = '{"service": "checkout"}'

TRIAGE = """\
id: triage
name: Triage
entry: gather
rules:
  - ./rules.md
inputs:
  service: {type: string, required: true}
nodes:
  gather:
    name: Gather
    instruction: Look at the service.
    skills: [logs]
    output: {type: object, properties: {found: {type: number}}}
  investigate: {name: Investigate, instruction: Find out why.}
  note: {name: Note, instruction: Write it down.}
edges:
  - {from: gather, to: investigate, when: something was found}
  - {from: gather, to: note}
  - {from: investigate, to: note}
"""

SKILLS = """\
- id: logs
  name: Logs
  description: reads logs
  category: observability
  tools:
    - name: search
      description: search logs
      input_schema: {type: object, properties: {q: {type: string}}}
      python: logtools_of_the_test:search
"""

TOOLS = '''\
from pathlib import Path

def search(q: str) -> dict:
    """Search."""
    return {"hits": len(q), "worked_in": Path.cwd().name}
'''

SCRIPT: dict[str, Any] = {
    "turns": {
        "gather": [{"tool_calls": [{"tool": "search", "input": {"q": "timeout"}}]}, {"data": {"found": 3}}],
        "investigate": [{"text": "the pool"}],
        "note": [{"text": "done"}],
    },
    "routes": {"gather": ["investigate"]},
}

ONE_NODE = "id: one\nname: One\nentry: a\nnodes:\n  a: {name: A, instruction: Say something.}\nedges: []\n"


def plain(text: str) -> str:
    """Return a text as it is printed, without its colours."""
    return click.unstyle(render_text(text))


def shown_url(data_dir: Path) -> str | None:
    """Return the URL of the server of a data directory, as commands print it: without its secrets."""
    url = running_url(data_dir)
    return without_secrets(url) if url is not None else None


@contextmanager
def forgotten_modules(folder: Path) -> Generator[None]:
    """Remove the modules of a folder, and where they were found, from this process after the block."""
    path = [*sys.path]
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


@dataclass(frozen=True)
class Workdir:
    """A directory with definitions, from which commands are called."""

    folder: Path

    def write(self, name: str, content: Any) -> str:
        """Write a file, as text or as JSON; return its name."""
        text = content if isinstance(content, str) else json.dumps(content)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    def write_triage(self, folder: str = "flows") -> str:
        """Write the triage with all that belongs to it, one folder down; return its file."""
        for name, content in (("rules.md", "Be brief.\n"), ("skills.yaml", SKILLS), ("script.json", SCRIPT)):
            self.write(f"{folder}/{name}", content)
        self.write(f"{folder}/logtools_of_the_test.py", TOOLS)
        return self.write(f"{folder}/triage.yaml", TRIAGE)

    def write_one(self, *turns: dict[str, Any]) -> list[str]:
        """Write a definition of one node and a script of its turns; return the arguments that name both."""
        script = self.write("one.json", {"turns": {"a": list(turns)}})
        return [self.write("one.yaml", ONE_NODE), "--script", script]

    @property
    def env(self) -> dict[str, str]:
        """An environment without the configuration of this process."""
        ours = ("CALLBOARD_", "ANTHROPIC_", "OTEL_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        small = {"CALLBOARD_SYNC": "1s", "CALLBOARD_WORKERS": "1", "CALLBOARD_HTTP_LISTEN": "off"}
        return {**kept, **small, "NO_COLOR": "1", "COLUMNS": "100"}

    def call(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a separate process, to its end."""
        with self.join_store(args):
            return self._perform(callboard(*args), self.env)

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a printed command in a shell that has `callboard` in its PATH."""
        path = os.pathsep.join([programs(), str(Path(sys.executable).parent), self.env.get("PATH", os.defpath)])
        with self.join_store(()):
            return self._perform(["bash", "-c", command], {**self.env, "PATH": path})

    def _perform(self, command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=110, check=False
        )

    def join_store(self, args: Sequence[str]) -> AbstractContextManager[None]:
        """Keep the account of a command's store open, so that its process joins it instead of starting a server."""
        name = args[args.index("--data-dir") + 1] if "--data-dir" in args else ".callboard"
        store = self.folder / name
        return nullcontext() if name == "temp" or "--nats" in args or store.is_file() else held(store)

    def run_line(self, command: str) -> Result:
        """Run a printed command in this process; with ``< FILE`` at its end, that is its standard input."""
        program, *words = shlex.split(command)
        assert Path(program).name == "callboard", command
        stdin = (self.folder / words[-1]).read_text(encoding="utf-8") if "<" in words else None
        path = os.pathsep.join([programs(), self.env.get("PATH", os.defpath)])
        with forgotten_modules(self.folder):
            return self.run(*words[: words.index("<") if "<" in words else None], env={"PATH": path}, stdin=stdin)

    @contextmanager
    def process(
        self, *args: str, env: dict[str, str] | None = None, **inherited: Any
    ) -> Generator[subprocess.Popen[str]]:
        """Run a command as a separate process, with the variables ``env`` too; kill it at the end if it still runs."""
        command = callboard(*args)
        surroundings = {"PYTHONFAULTHANDLER": "1", **self.env, **(env or {})}
        pipe = subprocess.PIPE
        with (
            self.join_store(args),
            subprocess.Popen(
                command, cwd=self.folder, env=surroundings, stdout=pipe, stderr=pipe, text=True, **inherited
            ) as process,
        ):
            try:
                yield process
            except BaseException:
                print(_last_words(process))
                raise
            finally:
                if process.poll() is None:
                    process.kill()

    @contextmanager
    def up(self, *args: str) -> Generator[tuple[subprocess.Popen[str], dict[str, Any]]]:
        """Run `callboard up`; yield the process and its announcement."""
        with self.process("up", "--json", *args) as process:
            yield process, read_json(process)
            if process.poll() is None:
                # In order, so that no later command finds a server that is about to end with its parent.
                process.terminate()
                process.communicate()

    @contextmanager
    def serve_triage(self) -> Generator[None]:
        """Run `callboard up` with the tools of the triage; end it by Ctrl-C."""
        self.write_triage()
        with self.up("--import-from", "flows") as (process, said):
            assert said["url"] == shown_url(self.folder / ".callboard")
            yield
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate()
            assert json.loads(out) == {"stopped": True, "drained": True}
            assert process.returncode == 0

    def start_run(self, *args: str) -> str:
        """Start the triage, or a run with these arguments; return the run's id."""
        wanted = args or ("flows/triage.yaml", "--input", INPUT, "--script", "flows/script.json")
        return str(self.run_json("start", *wanted)["run_id"])

    def run(self, *args: str, env: dict[str, str] | None = None, stdin: str | None = None) -> Result:
        """Run a command in this process, with the variables ``env`` too, and ``stdin`` as its standard input."""
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            ours = self.env
            surroundings = {**dict.fromkeys(os.environ), **ours, **(env or {})}
            return CliRunner().invoke(cli, list(args), input=stdin, env=surroundings, catch_exceptions=False)
        finally:
            os.chdir(before)

    def refusal(self, *args: str) -> tuple[int, str]:
        """Run a command in this process with ``--json``; return its exit code and the code of its error."""
        result = self.run(*args, "--json")
        return result.exit_code, json.loads(result.stdout)["error"]["code"]

    def events(self, run: str) -> list[dict[str, Any]]:
        """The events of a run."""
        return [json.loads(line) for line in self.run("trace", run, "--format", "events").stdout.splitlines()]

    def run_json(self, *args: str, env: dict[str, str] | None = None) -> Any:
        """Run a command in this process with ``--json``; return its answer."""
        result = self.run(*args, "--json", env=env)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


def read_json(process: subprocess.Popen[str]) -> Any:
    """Read a line of JSON from the output of a process."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def next_event(process: subprocess.Popen[str], event_type: str) -> dict[str, Any]:
    """Read a stream of events up to the next one of a type."""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        assert "type" in event, line
        if event["type"] == event_type:
            return event
    raise AssertionError(f"the stream ended without {event_type}: {process.stderr.read() if process.stderr else ''}")


def _last_words(process: subprocess.Popen[str]) -> str:
    """Return the output of a process that did not end in time, and the stacks of its threads."""
    process.send_signal(signal.SIGABRT)  # faulthandler prints the stack of each thread
    try:
        out, err = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        return "it has ended, and whatever it started has not" if process.poll() is not None else "it does not end"
    return f"{out}\n{err}"
