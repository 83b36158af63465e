"""Questions at the terminal: with arrow keys, with lines from a pipe, without a person; and the inbox."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard.bus.events import HumanAsked
from callboard.runtime.client.client import Client
from callboard.surfaces.cli.asking import (
    DOWN,
    UP,
    TerminalOption,
    TerminalQuestion,
    match_answer,
    move_choice,
    split_keys,
    to_question,
)
from tests.support.forks import callboard
from tests.support.workdir import Workdir

PATIENCE_S = 60.0

NOTES = """# Notes

Notes about a topic.

## INPUTS

- `topic` (string): What they are about
- `kind` (enum: short, long)
- `words` (number: 100)
- `body` (text)

## STEP 1: Ask

@elicit(select, "Which way?", "left", "right", "back")
@output(way)

## STEP 2: Do

Do {{topic}} {{kind}} {{body}} {{way}}.

## STEP 3: Sure

@elicit(confirm, "Sure?")

## STEP 4: Say

@elicit(input, "Your words?")

## ARTIFACTS

type: markdown
"""
SCRIPT = {"turns": {"2": [{"text": "Done | it.", "usage": {"input_tokens": 5, "output_tokens": 2}}]}}
INPUT = '{"topic": "tides", "kind": "short", "body": "b"}'


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    workdir = Workdir(tmp_path)
    workdir.write("notes.md", NOTES)
    workdir.write("script.json", SCRIPT)
    return workdir


def run_command(*more: str) -> list[str]:
    return ["run", "notes.md", "--script", "script.json", "--data-dir", "temp", *more]


# -- on a terminal -----------------------------------------------------------------------------------------------------


class Typist:
    """A person at a terminal, who reads before typing."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.seen = ""

    def reads(self, text: str) -> None:
        """Read until the screen has shown a text."""
        until = time.monotonic() + PATIENCE_S
        at = len(self.seen)
        while text not in self.seen[at:]:
            assert time.monotonic() < until, f"never showed {text!r}, but:\n{self.seen[at:]}"
            ready, _, _ = select.select([self.fd], [], [], 1.0)
            if ready:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")

    def types(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def reads_to_the_end(self) -> None:
        try:
            while more := os.read(self.fd, 4096):
                self.seen += more.decode(errors="replace")
        except OSError:
            return  # the other side has closed


@contextmanager
def open_terminal(workdir: Workdir, *args: str) -> Generator[tuple[Typist, "subprocess.Popen[bytes]"]]:
    ours, theirs = pty.openpty()
    env = {**workdir.env, "TERM": "xterm", "LINES": "40"}
    command = callboard(*args)
    with (
        workdir.join_store(args),
        subprocess.Popen(
            command, cwd=workdir.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        ) as process,
    ):
        os.close(theirs)
        try:
            yield Typist(ours), process
        finally:
            if process.poll() is None:
                process.kill()
            os.close(ours)


def test_inputs_and_questions_are_answered_with_keys(workdir: Workdir) -> None:
    down = "\x1b[B"
    with open_terminal(workdir, *run_command("--value", "topic=tides", "--artifact", "out/notes.md")) as (
        typist,
        process,
    ):
        typist.reads("  long")
        typist.types(f"\n{down}{down}")
        typist.reads("❯ long")
        typist.types("\n")
        typist.reads("? body")
        typist.types("one\ntwo\n\n")
        typist.reads("  back")
        typist.types("\x1b[A")
        typist.reads("❯ back")
        typist.types("\x1b[A\n")
        typist.reads("  Yes")
        # Enter alone chooses nothing.
        typist.types("\n2")
        typist.reads("❯ No")
        typist.types("\n")
        typist.reads("Your words?")
        typist.types("So be it.\n")
        typist.reads_to_the_end()
        assert process.wait(PATIENCE_S) == 0, typist.seen
    assert "completed" in typist.seen
    assert (workdir.folder / "out" / "notes.md").read_text() == "So be it."


def test_a_question_answered_elsewhere_is_withdrawn(workdir: Workdir) -> None:
    with (
        workdir.up(),
        open_terminal(workdir, "run", "notes.md", "--script", "script.json", "--input", INPUT, "--run-id", "r") as (
            typist,
            process,
        ),
    ):
        typist.reads("Which way?")
        assert workdir.run("answer", "r", "1#1.1!ask", "back").exit_code == 0
        typist.reads("Sure?")
        process.send_signal(signal.SIGINT)
        typist.reads_to_the_end()
        assert process.wait(PATIENCE_S) == 3, typist.seen


# -- from a pipe -------------------------------------------------------------------------------------------------------


def test_lines_from_a_pipe_answer_questions_and_enter_resumes(workdir: Workdir) -> None:
    result = "up\n2\n nonsense\ntopic=over\n\nno\nlast words\n"
    done = workdir.run(
        *run_command("--input", INPUT, "--breakpoint", "1", "--summary", "sum.md", "--artifact", "a.md"), stdin=result
    )
    assert done.exit_code == 0, done.stderr
    assert "'up' is none of the options: left, right, back" in done.stderr
    assert "'nonsense' is not of the form NAME=VALUE" in done.stderr
    assert (workdir.folder / "a.md").read_text() == "last words"
    assert (workdir.folder / "sum.md").read_text() == (
        "## PLAYBOOK.md Execution Summary\n\n**Artifact:** `a.md`\n\n"
        "| # | Title | Status | Input tokens | Output tokens |\n"
        "|---|-------|--------|--------------|---------------|\n"
        "| 1 | Ask | executed | - | - |\n"
        "| 2 | Do | executed | 5 | 2 |\n"
        "| 3 | Sure | executed | - | - |\n"
        "| 4 | Say | executed | - | - |\n\n"
    )
    assert "resumed by terminal" in done.stdout


def test_without_a_person_the_command_to_answer_is_printed(workdir: Workdir) -> None:
    with workdir.process(*run_command("--input", INPUT, "--no-ask")) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "  step: 1; label: 1; title: Ask\n"
        line = process.stderr.readline()
        assert line.startswith("In another terminal: ")
        assert "3#" not in line
        assert "1#1.1!ask" in line


def test_without_a_person_all_missing_inputs_are_refused_at_once(workdir: Workdir) -> None:
    done = workdir.run(*run_command("--value", "kind=tall", "--value", "words=many"), stdin="")
    assert done.exit_code == 1
    for name in ("topic", "kind", "words", "body"):
        assert f"input.{name}: " in done.stderr


def test_an_autonomous_run_asks_no_questions(workdir: Workdir) -> None:
    done = workdir.run(
        *run_command("--input", INPUT, "--option", "autonomous=true", "--option", "elicit.1=back", "--json"), stdin=""
    )
    output = json.loads(done.stdout)
    assert (output["status"], output["results"]["step_outputs"]) == (
        "completed",
        {"1": "back", "2": "Done | it.", "3": "yes", "4": ""},
    )


def test_a_run_continues_from_a_saved_state(workdir: Workdir) -> None:
    with workdir.up():
        started = workdir.run_json(
            "start", "notes.md", "--script", "script.json", "--input", INPUT, "--option", "elicit.1=left"
        )
        workdir.run("watch", started["run_id"], "--until", "human.asked")
        saved = workdir.run_json("show", started["run_id"], "--state")
        assert (saved["status"], saved["paused_at_step"]) == ("awaiting_input", 3)
        workdir.write("state.json", saved)
    options = '{"elicit": {"3": "no", "4": "end"}, "max_tokens": 9}'
    done = workdir.run(*run_command("--state", "state.json", "--options", options, "--json"), stdin="")
    output = json.loads(done.stdout)
    assert output["results"]["step_outputs"] == {"1": "left", "2": "Done | it.", "3": "no", "4": "end"}
    assert output["path"] == ["3", "4"]


def test_files_that_prompts_name_are_sent_with_the_start(workdir: Workdir) -> None:
    workdir.write("p/short.md", "Short about {{topic}}.\n")
    workdir.write("p/other.md", "no")
    inputs = "## INPUTS\n\n- `topic` (string)\n- `kind` (string: short)\n\n"
    workdir.write("file.md", f"# T\n\n{inputs}## STEP 1: A\n\n@prompt(file:p/{{{{kind}}}}.md)\n")
    workdir.write("say.json", {"turns": {"1": [{"text": "ok"}]}})
    command = ["run", "file.md", "--script", "say.json", "--value", "topic=tides", "--data-dir", "temp", "--stream"]
    events = [json.loads(line) for line in workdir.run(*command, stdin="").stdout.splitlines()]
    assert events[0]["payload"]["start"]["files"] == {"p/short.md": "Short about {{topic}}.\n"}
    [call] = [event for event in events if event["type"] == "model.call"]
    assert call["payload"]["messages"][0]["parts"][-1]["text"] == "Short about tides."


# -- the inbox ---------------------------------------------------------------------------------------------------------

FLOW: dict[str, Any] = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "ask",
    "steps": {
        "ask": {
            "action": "Call",
            "call": {
                "provider": "mwl:provider.call/callboard/human/v1",
                "with": {"question": "Really?", "type": "confirm", "channel": "ops", "timeout": "PT1H"},
            },
            "next": "done",
        },
        "done": {"action": "Return"},
    },
}
CALLS = '# Calls\n\n## STEP 1: Look\n\n@tool(desk, look, {"at": 7})\n\n## STEP 2: Go\n\nGo.\n'


def test_the_inbox_lists_open_requests_of_every_language(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    workdir.write("flow.json", FLOW)
    workdir.write("calls.md", CALLS)
    with workdir.up():
        assert workdir.run("inbox").stdout == "Nothing is waiting.\n"
        workdir.run("start", "notes.md", "--script", "script.json", "--input", INPUT, "--run-id", "notes")
        workdir.run("start", "flow.json", "--run-id", "flow")
        options = '{"connections": {"desk": "caller"}}'
        workdir.run("start", "calls.md", "--script", "script.json", "--run-id", "calls", "--options", options)
        workdir.run(
            "start",
            "notes.md",
            "--script",
            "script.json",
            "--input",
            INPUT,
            "--run-id",
            "held",
            "--option",
            "elicit.1=left",
            "--breakpoint",
            "1",
        )
        for name, kind in (
            ("notes", "human.asked"),
            ("flow", "human.asked"),
            ("calls", "tool.call"),
            ("held", "run.paused"),
        ):
            workdir.run("watch", name, "--until", kind)
        items = {item["run"]: item for item in workdir.run_json("inbox")}
        result = workdir.run("inbox").stdout
        only = workdir.run_json("inbox", "--kind", "tool")
        read = list[str]()
        monkeypatch.setattr(Client, "events", lambda _client, run: read.append(run))
        asked = workdir.run_json("inbox", "--kind", "question")
    assert {(name, item["language"], item["kind"]) for name, item in items.items()} == {
        ("notes", "playbook", "question"),
        ("flow", "flow", "question"),
        ("calls", "playbook", "tool"),
        ("held", "playbook", "pause"),
    }
    assert [item["run"] for item in only] == ["calls"]
    # The list of questions is enough; no run is read.
    assert ([item["run"] for item in asked], read) == (["notes", "flow"], [])
    assert (items["flow"]["who"], items["flow"]["question"]) == ("ops", "Really?")
    assert [one["value"] for one in items["notes"]["options"]] == ["left", "right", "back"]
    assert (items["calls"]["name"], items["calls"]["data"]) == ("look", {"at": 7})
    assert all(item["since"] for item in items.values())
    assert all(items[name]["until"] for name in ("notes", "flow", "held"))
    assert "callboard answer notes '1#1.1!ask' RESPONSE" in result
    assert "callboard resume held" in result
    assert "callboard answer calls '1#1.1!tool.0.0' RESULT" in result
    assert "for ops, since " in result
    assert "? Which way?  (left, right, back)" in result


# -- keys and lines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "at", "to"),
    [
        *((UP[0], 0, 2), (DOWN[0], 2, 0), ("j", 0, 1), ("k", 1, 0), ("3", 0, 2), ("4", 0, 0), ("0", 1, 1), ("x", 1, 1)),
        *((UP[0], None, 2), (DOWN[0], None, 0), ("2", None, 1), ("x", None, None), ("\r", None, None)),
    ],
)
def test_a_key_moves_the_choice(key: str, at: int | None, to: int | None) -> None:
    assert move_choice(key, at, 3) == to


def test_keys_that_come_together_are_split() -> None:
    assert split_keys("\x1b[A\x1bOB2\r") == ["\x1b[A", "\x1bOB", "2", "\r"]


def test_a_line_names_a_choice_by_label_value_or_number() -> None:
    asked = HumanAsked("?", "select", [{"value": 7, "label": "Seven"}, "eight"])
    question = to_question(asked)
    assert [match_answer(question, line) for line in ("Seven", "7", "2", "eight", " nine")] == [
        7,
        7,
        "eight",
        "eight",
        " nine",
    ]
    assert to_question(HumanAsked("?", "confirm")) == TerminalQuestion(
        "?", [TerminalOption("Yes", "yes"), TerminalOption("No", "no")]
    )
