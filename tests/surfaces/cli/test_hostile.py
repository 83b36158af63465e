"""Terminal commands in texts of runs are escaped; full and closed streams, and arguments that are not UTF-8."""

import io
import json
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
import structlog

from callboard.bus.events import Event
from callboard.lib.control_characters import visible, visible_line
from callboard.runtime.settings import logs
from callboard.service.operations.results import compact
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.live_tree import LiveTree
from callboard.surfaces.cli.output import render_text, style
from tests.support.forks import callboard
from tests.support.workdir import Workdir

H = "\x1b]0;title\x07 \x1b[2J \x9b2J \u202eback\u2066 \x7f \x08"
"""Terminal commands: a title, an empty screen, in 7 and in 8 bits; and right-to-left marks."""

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

WORKFLOW = {
    "id": "hostile",
    "name": f"Name {H}",
    "entry": "a",
    "nodes": {
        "a": {"name": f"A {H}", "instruction": f"Say {H}", "skills": ["logs"]},
        "b": {"name": f"B {H}", "instruction": "Fail"},
    },
    "edges": [{"from": "a", "to": "b", "when": f"it {H}"}],
}

SKILLS = json.dumps(
    [
        {
            "id": "logs",
            "name": "Logs",
            "description": H,
            "category": "observability",
            "tools": [{"name": "search", "description": H, "input_schema": {}, "python": "hostile_tools:search"}],
        }
    ]
)

TOOLS = f"def search(**given):\n    print({H!r})\n    raise ValueError({H!r})\n"

SCRIPT = {
    "turns": {
        "a": [
            {"tool_calls": [{"tool": "search", "input": {"q": H}}], "text": H},
            {"data": {f"key {H}": f"value {H}"}, "progress": [H]},
        ],
        "b": [{"error": {"code": "refused", "message": H}}],
    },
    "routes": {"a": ["b"]},
}

ASKS = f'# Ask\n\n## STEP 1: Ask\n\n@elicit(select, "Which {H} way?", "left {H}", "right")\n@output(way)\n'

KEPT = """\
[notify.failed]
on = "failed"
slack = "https://hooks.example.org/x"
"""

COMMANDS = [
    *(("runs",), ("runs", "--where", f"x{H}=1"), ("show", "h-1"), ("show", "h-1", "--full"), ("show", f"x{H}")),
    *(("show", "asks-1"), ("watch", "h-1", "--plain"), ("watch", "h.jsonl"), ("inbox",), ("diff", "h-1", "h-2")),
    *(("replay", "h-1"), ("replay", "--all"), ("rebuild", "h-1"), ("cost",), ("definitions",)),
    *(("definitions", "hostile"), ("definitions", f"name {H}"), ("diagram", "h-1")),
    *(("schedule", "list"), ("validate", "hostile.json"), ("answer", "asks-1", f"answer {H}"), ("resume", f"h-1{H}")),
    *(("pause", "--where", "run=asks-1"), ("signal", "h-1", f"name{H}"), ("fork", "h-1", "--from", H)),
    *(("archive", "h-1", "--output", f"a{H}.callboard"), ("import", f"none{H}.callboard"), ("start", f"none{H}")),
    *(("cel", f"'{H}'"), ("skills", f"x{H}"), ("providers", f"x{H}"), ("schema", f"x{H}"), ("validate", f"none{H}")),
    *(("runs", "--limit", H), (f"comm{H}and",), ("graph", "nodes", H), ("config", "--tenant", f"t{H}")),
    *(("purge", f"h-1{H}"), ("keys", "list"), ("credentials", "list"), ("forget", H)),
    ("notify", "preview", "--config", "kept.toml"),
    *(("trace", "h-1", "--format", form) for form in ("tree", "waterfall", "table", "mermaid", "svg")),
]  # fmt: skip

DATA = [
    *(("runs",), ("show", "h-1"), ("watch", "h-1"), ("inbox",), ("diff", "h-1", "h-2"), ("replay", "h-1")),
    *(("definitions",), ("definitions", "hostile"), ("cost",), ("schedule", "list"), ("trace", "h-1")),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workdir]:
    workdir = Workdir(tmp_path_factory.mktemp("hostile"))
    workdir.write("hostile.json", WORKFLOW)
    workdir.write("flows/hostile_tools.py", TOOLS)
    for name, content in (("skills.yaml", SKILLS), ("script.json", SCRIPT), ("asks.md", ASKS), ("kept.toml", KEPT)):
        workdir.write(name, content)
    with workdir.serve_triage():
        for run in ("h-1", "h-2"):
            workdir.start_run("hostile.json", "--script", "script.json", "--run-id", run, "--tag", f"tag={H}")
            assert workdir.run("watch", run, "--plain").exit_code == exits.FAILED
        workdir.start_run("asks.md", "--run-id", "asks-1")
        assert workdir.run("watch", "asks-1", "--until", "human.asked", "--plain").exit_code == exits.OK
        workdir.run_json("push", "hostile.json")
        workdir.run_json("push", "hostile.json", "--name", f"name {H}", "--by", H)
        workdir.run_json("schedule", "add", f"name {H}", "--cron", "0 9 * * *", "--name", f"at nine {H}")
        workdir.write("h.jsonl", workdir.run("trace", "h-1", "--format", "events").stdout)
        yield workdir


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: visible(" ".join(words)))
def test_no_output_contains_terminal_commands(running: Workdir, words: tuple[str, ...]) -> None:
    result = running.run(*words, stdin="n\n")
    assert not OBEYED.search(result.stdout + result.stderr)


@pytest.mark.parametrize("words", DATA, ids=lambda words: visible(" ".join(words)))
def test_json_keeps_the_text_in_escaped_form(running: Workdir, words: tuple[str, ...]) -> None:
    more = ("--format", "json") if words[0] == "trace" else ()
    result = running.run(*words, *more, "--json").stdout
    assert not OBEYED.search(result)
    values = [json.loads(line) for line in result.splitlines()] if words[0] == "watch" else [json.loads(result)]
    if words[0] in ("show", "watch", "replay", "definitions", "trace", "inbox"):
        assert "\x9b2J \u202eback\u2066 \x7f" in "".join(find_texts(values))


def find_texts(value: object) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, dict):
        yield from (text for pair in value.items() for one in pair for text in find_texts(one))
    elif isinstance(value, list):
        yield from (text for one in value for text in find_texts(one))
    else:
        yield str(value)


def test_the_live_view_contains_no_foreign_terminal_commands(running: Workdir) -> None:
    events = [
        msgspec.json.decode(line, type=Event)
        for line in (running.folder / "h.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    drawn = io.StringIO()
    tree = LiveTree(drawn, os.terminal_size((200, 50)))
    for event in events:
        tree.event(event.n, event)
        tree.delta(event.n, 0, H)
        tree.refresh()
    tree.close()
    # Remove the tree's own terminal commands: colours, lines and the cursor.
    rest = re.sub(r"\x1b\[[\d;?]*[mKAhl]|\r", "", drawn.getvalue())
    assert "\\x1b]0;title" in rest
    assert not OBEYED.search(rest)


def test_logs_contain_no_terminal_commands() -> None:
    stream = io.StringIO()
    logs.configure("info", "console", stream)
    try:
        structlog.get_logger("ours").warning(f"said {H}", tool=H)
        logging.getLogger("theirs").warning("said %s", H)
        try:
            raise ValueError(H)
        except ValueError:
            structlog.get_logger("ours").exception("failed")
    finally:
        logs.unconfigure()
    assert stream.getvalue().count("x1b]0;title") >= 4
    assert not OBEYED.search(stream.getvalue())


def test_control_characters_are_escaped_and_own_colours_kept() -> None:
    assert visible("a\tb\r\nc\rd\n") == "a\tb\r\nc\\x0dd\n"
    assert visible_line("a\tb\n") == "a\\x09b\\x0a"
    assert visible("é 日本 🙂 \u200f") == "é 日本 🙂 \u200f"
    assert json.loads(visible(compact({H: H}))) == {H: H}
    coloured = render_text(style(f"a {H}", fg="red"))
    assert coloured.startswith("\x1b[31ma \\x1b]0;")
    assert coloured.endswith("\x1b[0m")
    assert coloured.count("\x1b") == 2


def test_the_source_of_a_definition_is_printed_unchanged(running: Workdir) -> None:
    source = running.run("definitions", "hostile", "--source").stdout
    assert json.loads(source) == WORKFLOW
    running.write("plain.md", f"# Hi\n\n## STEP 1: Say\n\nSay {H}.\n")
    created = running.run("convert", "plain.md")
    assert H in "".join(find_texts(json.loads(created.stdout)))


# -- streams -----------------------------------------------------------------------------------------------------------


def run_in_shell(workdir: Workdir, *args: str, shell: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the redirections of a shell."""
    words = ["bash", "-c", f'set -o pipefail; "$@" {shell}', "bash", *callboard(*args)]
    with workdir.join_store(args) if args[0] == "run" else nullcontext():
        return subprocess.run(
            words,
            cwd=workdir.folder,
            env={**workdir.env, **env},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
@pytest.mark.parametrize("words", [("config",), ("config", "--json"), ("--help",), ("show", "nix", "--json")])
def test_a_full_stdout_is_an_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = run_in_shell(Workdir(tmp_path), *words, shell=">/dev/full")
    assert result.returncode == exits.LOST
    assert result.stderr.startswith("error stdout.lost: stdout cannot be written: No space left on device\n")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("words", [("config",), ("config", "--json"), ("--help",), ("completion", "bash")])
def test_a_closed_stdout_is_an_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = run_in_shell(Workdir(tmp_path), *words, shell=">&-")
    assert result.returncode == exits.LOST
    assert result.stderr.startswith("error stdout.lost: stdout cannot be written: Bad file descriptor\n")


@pytest.mark.parametrize("shell", [">/dev/full", ">&-"])
def test_a_run_continues_without_its_stdout_and_reports_the_loss(tmp_path: Path, shell: str) -> None:
    workdir = Workdir(tmp_path)
    result = run_in_shell(workdir, "run", *workdir.write_one({"text": "done"}), "--run-id", "r-1", shell=shell)
    assert result.returncode == exits.LOST
    assert result.stderr.count("error stdout.lost") == 1
    assert workdir.run_json("show", "r-1")["status"] == "completed"


@pytest.mark.parametrize("words", [("config",), ("config", "--json"), ("--help",), ("schema", "events")])
def test_a_closed_pipe_ends_a_command_without_an_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = run_in_shell(Workdir(tmp_path), *words, shell="| :")
    assert result.returncode in (exits.OK, exits.FAILED), "the command may end before the pipe is closed"
    assert result.stderr == ""


@pytest.mark.parametrize("shell", ["2>/dev/full", "2>&-"])
def test_a_lost_stderr_changes_no_exit_code(tmp_path: Path, shell: str) -> None:
    workdir = Workdir(tmp_path)
    assert run_in_shell(workdir, "config", shell=shell, CALLBOARD_ODD="1").returncode == exits.OK
    assert run_in_shell(workdir, "nix", shell=shell).returncode == exits.USAGE
    assert run_in_shell(workdir, "show", "nix", shell=shell).returncode == exits.UNUSABLE


def test_characters_outside_the_encoding_of_stdout_are_escaped(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    file = workdir.write("one.json", {**WORKFLOW, "nodes": {"a": {"name": "A", "instruction": "Say"}}, "edges": []})
    result = run_in_shell(workdir, "validate", file, shell="", PYTHONIOENCODING="iso-8859-1")
    assert (result.returncode, result.stdout) == (exits.OK, "\\u2713 one.json (workflow): valid\n")


@pytest.mark.parametrize("words", [("show", "caf\udce9"), ("runs", "--where", "run=\udcff"), ("caf\udce9",)])
def test_arguments_that_are_not_utf_8_are_wrong_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = Workdir(tmp_path).call(*words)
    assert (result.returncode, result.stdout) == (exits.USAGE, "")
    assert re.search(r"Error: argument \d is not UTF-8: '.*\\x..'", result.stderr)
    output = Workdir(tmp_path).call(*words, "--json")
    assert output.returncode == exits.USAGE
    assert json.loads(output.stdout)["error"]["code"] == "usage.invalid"
