"""Pages of the documentation as programs: their blocks, and a shell that performs the blocks.

A ``console`` block holds commands (lines that begin with ``$``) and, below each, lines that its output must have, in
that order; ``…`` matches any text, and other lines may come between. A command may end in ``# exit 1``, the code
that it must end with, or in ``&``: it then runs until the end of the page, or until ``wait`` waits for its end. A
``yaml``, ``python``, ``toml`` or ``markdown`` block begins with ``# file: NAME`` and is written to disk. A ``sh`` block
is not performed; a ``text``, ``mermaid`` or ``diff`` block is only shown.

A page names fixed ports. They may be in use on this machine, so each is replaced by a free one.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from click.testing import CliRunner, Result

from callboard.surfaces.cli.main import cli
from tests.support.forks import programs
from tests.support.lane_server import held
from tests.support.places import ROOT
from tests.support.ports import free_ports

FILES = ("yaml", "python", "toml", "markdown")
PERFORMED_S = 60

_BLOCK = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# file: (\S+)\n")
_EXIT = re.compile(r"# exit (\d+)$")
_WORDS = r"""(?:'[^']*'|"[^"$`]*"|[^'"|><&;$*`])*"""
_HERE = re.compile(
    rf"(?:(?P<before>(?:echo|printf) {_WORDS}) \| )?(?P<env>(?:(?!PYTHONPATH)[A-Z_]+=(?:'[^']*'|[^\s'$]*) )*)"
    rf"callboard (?P<args>{_WORDS})(?:< (?P<stdin>\S+)|> (?P<stdout>\S+)|\| (?P<after>[^$]+))?"
)
"""A command that is performed in this process, with what a shell does before and after it."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that it is, if it is one."""
        found = _FILE.match(self.text)
        return found[1] if found and self.language in FILES else None


@dataclass(frozen=True)
class Step:
    """A command and the lines that its output must have."""

    command: str
    expected: list[str]

    @property
    def exit_code(self) -> int:
        found = _EXIT.search(self.command)
        return int(found[1]) if found else 0

    @property
    def stands(self) -> bool:
        return self.command.endswith(" &")


def blocks(text: str) -> list[Block]:
    return [Block(language, body) for _fence, language, body in _BLOCK.findall(text)]


def steps(block: Block) -> Iterator[Step]:
    """Yield the commands of a console block; a command continues on the next line after a backslash."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *rest = part.replace("\\\n", "").splitlines()
        yield Step(command, [line for line in rest if line.strip() not in ("", "…")])


def missing(expected: list[str], output: str) -> str | None:
    """Return the first expected line that the output does not have after the one before it."""
    lines = iter([" ".join(line.split()) for line in output.splitlines()])
    for line in expected:
        parts = [re.escape(part.strip()) for part in " ".join(line.split()).split("…")]
        if not any(re.fullmatch(".*".join(parts), found) for found in lines):
            return line
    return None


_PORT = re.compile(r"""((?:127\.0\.0\.1|0\.0\.0\.0|localhost)(?::|['"], ))([1-9][0-9]*)""")
"""The port of an address of this machine, also as Python writes both."""


@dataclass
class Ports:
    """The fixed ports that a page names, each with the free one that replaces it."""

    _here: dict[str, str] = field(default_factory=dict[str, str])

    def done(self, text: str) -> str:
        """Return a command or a file with the free ports."""
        for _host, port in _PORT.findall(text):
            if port not in self._here:
                self._here[port] = str(*free_ports(1))
        return self.said(text)

    def said(self, text: str) -> str:
        """Return the expected output with the free ports. A port that no command has named stays."""
        return _PORT.sub(lambda found: found[1] + self._here.get(found[2], found[2]), text)


@dataclass
class Shell:
    """Performs steps in a folder; programs that still run are stopped at the end of the block, the last one first."""

    folder: Path
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    """The commands that are performed instead of others; an empty one performs nothing."""

    def __post_init__(self) -> None:
        self._standing: list[tuple[Step, subprocess.Popen[str]]] = []
        self._ports = Ports()
        self._server = held(self.folder / ".callboard")

    def __enter__(self) -> "Shell":
        self._server.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for step, process in reversed(self._standing):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PERFORMED_S)
            if error is None and step.command.startswith("callboard "):
                assert process.returncode == 0, step.command
        self._server.__exit__(kind, error, tb)

    @property
    def env(self) -> dict[str, str]:
        """The environment of a shell in which the virtual environment is active and nothing else is configured."""
        ours = ("CALLBOARD_", "ANTHROPIC_", "OTEL_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        path = os.pathsep.join([programs(), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        small = {"CALLBOARD_WORKERS": "1", "CALLBOARD_HTTP_LISTEN": "off", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        ours = {"PATH": path, "PYTHONPATH": str(ROOT), "VIRTUAL_ENV": sys.prefix}
        return {**kept, **small, **ours, "NO_COLOR": "1", "COLUMNS": "100"}

    def write(self, block: Block) -> None:
        """Write a block to the file that it names."""
        assert block.file is not None, f"this block names no file:\n{block.text}"
        path = self.folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._ports.done(block.text.partition("\n")[2]), encoding="utf-8")

    def perform(self, step: Step) -> None:
        """Perform a command; check its exit code and its output."""
        command = self._ports.done(self.instead.get(step.command, step.command))
        if not command:
            return
        step = Step(step.command, [self._ports.said(line) for line in step.expected])
        if step.stands:
            self._stand(step, command.removesuffix(" &"))
            return
        if command == "wait":
            self._wait(step)
            return
        code, output = self._performed(_EXIT.sub("", command).strip())
        assert code == step.exit_code, f"$ {command}\nended with {code}:\n{output}"
        line = missing(step.expected, output)
        assert line is None, f"$ {command}\ndoes not say {line!r}, but:\n{output}"

    def _wait(self, step: Step) -> None:
        """Wait for the end of the program that was started last, and check the rest of its output."""
        started, process = self._standing.pop()
        output, _ = process.communicate(timeout=PERFORMED_S)
        assert process.returncode == 0, started.command
        assert missing(step.expected, output) is None, f"$ {started.command}\nsays in the end:\n{output}"

    def _performed(self, command: str) -> tuple[int, str]:
        if not (here := _HERE.fullmatch(command)):
            return self._bash(command)
        given = self._bash(here["before"])[1] if here["before"] else ""
        if here["stdin"]:
            given = (self.folder / here["stdin"]).read_text(encoding="utf-8")
        env = dict(word.split("=", 1) for word in shlex.split(here["env"]))
        result = self._here(shlex.split(here["args"]), env, given)
        if here["after"]:
            code, output = self._bash(here["after"], result.stdout)
            return code, result.stderr + output
        if here["stdout"]:
            (self.folder / here["stdout"]).write_text(result.stdout, encoding="utf-8")
            return result.exit_code, result.stderr
        return result.exit_code, result.output

    def _bash(self, command: str, given: str = "") -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.env,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PERFORMED_S,
            check=False,
        )
        return done.returncode, done.stdout

    def _here(self, args: list[str], more: dict[str, str], given: str) -> Result:
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            env = {**dict.fromkeys(os.environ), **self.env, **more}
            return CliRunner().invoke(cli, args, input=given, env=env, prog_name="callboard", catch_exceptions=False)
        finally:
            os.chdir(before)

    def _stand(self, step: Step, command: str) -> None:
        """Start a program and read its output until it has the expected lines."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec env {command}"],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._standing.append((step, process))
        assert process.stdout is not None
        said = ""
        while missing(step.expected, said) is not None:
            line = process.stdout.readline()
            assert line, f"$ {command}\nended after saying:\n{said}"
            said += line
