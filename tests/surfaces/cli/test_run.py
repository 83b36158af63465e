"""`callboard run`: its text and JSON, refusals, failures and interruptions."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import click
import pytest

from callboard.bus.nats.server.data_directory import running_url
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.local_run import Cancellation
from tests.support.flow_providers import ours
from tests.support.flows import call, cleanup, flow, mock, returned
from tests.support.forks import callboard
from tests.support.service_client import WAITS, Caller, standing
from tests.support.workdir import INPUT, SKILLS, Workdir, next_event

LONG_MS = 60_000
"""Longer than any test waits."""


def test_run_prints_text_and_further_commands(workdir: Workdir) -> None:
    done = workdir.call(
        "run", workdir.write_triage(), "--input", INPUT, "--script", "flows/script.json", "--data-dir", "kept"
    )
    assert done.returncode == exits.OK, done.stderr
    assert "▶ gather: Gather" in done.stdout
    assert "\nPath: gather → investigate → note\n" in done.stdout
    further = [line.split() for line in done.stdout.splitlines() if "--data-dir kept" in line]
    assert [words[1] for words in further] == ["show", "trace", "replay"]
    for words in further:
        assert workdir.run(*words[1:]).exit_code == exits.OK


def test_a_scripted_model_without_a_script_is_refused_before_anything_starts(workdir: Workdir) -> None:
    file, *_ = workdir.write_one({"text": "hello"})
    for command in ("run", "start"):
        done = workdir.run(command, file, "--model", "scripted")
        assert done.exit_code == exits.USAGE
        assert "--script FILE" in done.stderr
    assert not (workdir.folder / ".callboard").exists()


def test_a_run_at_a_terminal_is_drawn_as_a_tree(workdir: Workdir) -> None:
    terminal, end = os.openpty()
    args = ["run", *workdir.write_one({"text": "hello"}), "--data-dir", "temp"]
    with subprocess.Popen(
        callboard(*args), cwd=workdir.folder, env={**workdir.env, "TERM": "xterm"}, stdout=end
    ) as process:
        os.close(end)
        drawn = b"".join(iter(lambda: read_terminal(terminal), b"")).decode()
        os.close(terminal)
    assert process.returncode == exits.OK
    assert "└─ ✓ a" in click.unstyle(drawn)
    assert "\x1b[32m" not in drawn, "NO_COLOR is set"
    assert "■ completed" in drawn
    assert "See more" not in drawn


def read_terminal(terminal: int) -> bytes:
    """Read from a terminal; nothing once the program has closed it."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_run_prints_json_and_keeps_nothing_in_temp(workdir: Workdir) -> None:
    done = workdir.run("run", *workdir.write_one({"data": {"said": "hello"}}), "--json", "--data-dir", "temp")
    assert done.exit_code == exits.OK, done.stderr
    output = json.loads(done.stdout)
    assert (output["status"], output["output"], output["path"]) == ("completed", {"said": "hello"}, ["a"])
    assert sorted(path.name for path in workdir.folder.iterdir()) == ["one.json", "one.yaml"]


def test_a_failed_run_has_its_exit_code(workdir: Workdir) -> None:
    done = workdir.run("run", *workdir.write_one({"error": "overloaded"}), "--json", "--data-dir", "temp")
    assert done.exit_code == exits.FAILED
    output = json.loads(done.stdout)
    assert output["status"] == "failed"
    assert output["error"]["code"] == "workflow.node_failed"


def test_a_dry_run_stops_before_a_route(workdir: Workdir) -> None:
    args = ("--input", INPUT, "--script", "flows/script.json", "--data-dir", "temp", "--json", "--dry-run")
    done = workdir.run("run", workdir.write_triage(), *args)
    assert json.loads(done.stdout)["path"] == ["gather"]


BROKEN_TOOL = """
import os

def search(q: str) -> dict:
    print("asking the index as", os.environ["INDEX_TOKEN"])
    return {"hits": {}[q]}
"""


def test_the_traceback_and_output_of_a_tool_are_shown_with_its_failure(workdir: Workdir) -> None:
    workdir.write_triage()
    workdir.write("flows/logtools_of_the_test.py", BROKEN_TOOL)
    skills = SKILLS.replace(
        "  tools:", "  config: {TOKEN: {description: t, env: INDEX_TOKEN, required: true}}\n  tools:"
    )
    workdir.write("flows/skills.yaml", skills)
    command = ("run", "flows/triage.yaml", "--input", INPUT, "--script", "flows/script.json", "--run-id", "r1")
    done = workdir.run(*command, env={"INDEX_TOKEN": "t0ken-of-the-index"})
    assert done.exit_code == exits.OK, done.stderr
    for text in (done.stdout, workdir.run("trace", "r1").stdout):
        lines = [line.strip(" │└├─") for line in text.splitlines()]
        at = lines.index("Traceback (most recent call last):")
        assert re.fullmatch(r'File ".*/logtools_of_the_test.py", line 6, in search', lines[at + 1])
        assert "KeyError: 'timeout'" in lines[at:]
        assert "asking the index as [secret:INDEX_TOKEN]" in lines[at:]
        assert "python_host" not in text
        assert "t0ken-of-the-index" not in text
    assert "Traceback" not in done.stderr


def test_a_run_that_a_tool_failed_ends_with_the_traceback(workdir: Workdir) -> None:
    workdir.write("broken.py", "def go() -> None:\n    print('going')\n    raise OSError('gone')\n")
    target = {"provider": ours("tool"), "with": {"python": "broken:go", "arguments": {}}}
    file = workdir.write("f.json", flow({"a": call(target), "done": returned()}))
    failed = workdir.run("run", file, "--run-id", "r1")
    assert failed.exit_code == exits.FAILED
    for text in (failed.stdout.partition("■ failed  in")[2], workdir.run("show", "r1").stdout):
        assert "OSError: gone\n" in text
        assert "in go\n" in text
        assert re.search(r"Printed before:\n +going\n", text)


def test_a_cut_value_comes_with_the_command_that_shows_it(workdir: Workdir) -> None:
    long = " ".join(f"word{number}" for number in range(40))
    args = workdir.write_one({"data": {"found": long, "n": 1}})
    kept = workdir.run("run", *args, "--run-id", "r1")
    [hint] = [line for line in kept.stdout.splitlines() if line.startswith("  (cut at 100 characters; whole: ")]
    assert re.search(r" show r1 --full\)$", hint)
    for shown in (workdir.run("show", "r1").stdout, kept.stdout):
        assert "word39" not in shown
    assert "show r1 --full)" in workdir.run("show", "r1").stdout
    full = workdir.run("show", "r1", "--full").stdout
    assert f'\n        "found": "{long}",\n' in full
    assert "cut at" not in full
    output = workdir.run("run", *args, "--data-dir", "temp").stdout
    assert "  (cut at 100 characters; whole: the same command with --json)\n" in output
    brief = workdir.run("run", *workdir.write_one({"text": "short"}), "--data-dir", "temp").stdout
    assert "cut at" not in brief


def test_a_refused_start_lists_all_problems(workdir: Workdir) -> None:
    args = ("--script", "flows/script.json", "--breakpoint", "nowhere", "--data-dir", "temp")
    done = workdir.run("run", workdir.write_triage(), *args)
    assert done.exit_code == exits.FAILED
    assert "input.service" in done.stderr
    assert "breakpoints[0]" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_wrong_definition_is_refused_before_the_start(workdir: Workdir) -> None:
    assert workdir.refusal("run", workdir.write("x.yaml", "id: x\nnodes: {}\nentry: a\n")) == (
        exits.FAILED,
        "definition.refused",
    )
    assert not (workdir.folder / ".callboard").exists()


def test_an_unusable_data_directory_is_refused(workdir: Workdir) -> None:
    workdir.write("taken", "a file")
    assert workdir.refusal("run", *workdir.write_one({"text": "x"}), "--data-dir", "taken") == (
        exits.UNUSABLE,
        "store.unusable",
    )


@pytest.mark.parametrize("form", [[], ["--stream"]])
def test_a_run_continues_when_its_output_is_closed(workdir: Workdir, form: list[str]) -> None:
    """As in `callboard run … | head -1`."""
    order = workdir.write_one({"text": "hello", "delay_ms": 1_000})
    with workdir.process("run", *order, "--run-id", "r1", *form) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "r1" in process.stdout.readline()
        process.stdout.close()
        process.stderr.close()
        assert process.wait(60) == exits.OK
    assert workdir.run_json("show", "r1")["status"] == "completed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_cancels_the_run(workdir: Workdir, number: signal.Signals) -> None:
    with workdir.process("run", *workdir.write_one({"text": "late", "delay_ms": LONG_MS}), "--stream") as process:
        next_event(process, "model.call")
        process.send_signal(number)
        cancelled = next_event(process, "cancel.requested")
        end = next_event(process, "run.end")
        _, stderr = process.communicate()
    assert cancelled["payload"]["reason"] == "callboard run was interrupted"
    assert end["payload"]["status"] == "cancelled"
    assert process.returncode == exits.CANCELLED
    assert "again" in stderr


def test_an_unfinished_run_is_named_when_it_continues(workdir: Workdir) -> None:
    with workdir.process(
        "run", *workdir.write_one({"text": "late", "delay_ms": 2_000}), "--run-id", "r1", "--stream"
    ) as process:
        next_event(process, "model.call")
        process.kill()
    with workdir.process(
        "run", *workdir.write_one({"text": "soon", "delay_ms": 500}), "--run-id", "r2", "--stream"
    ) as process:
        _, stderr = process.communicate()
    assert "Run r1, which was unfinished, continues here." in stderr
    assert "r2" not in stderr
    # The command waits for r1 too, so that its turn is not lost again.
    assert workdir.run_json("show", "r1")["status"] == "completed"


def interrupt_twice(workdir: Workdir, *args: str) -> str:
    """Run a flow whose clean-up waits for a signal, and interrupt it twice; return what stderr says."""
    tidy = {"provider": ours("signal"), "with": {"name": "tidied"}}
    file = workdir.write(
        "tidy.json", flow({"a": call(mock(delay="PT1H"), middleware=[cleanup(tidy)]), "done": returned()})
    )
    with workdir.process("run", file, "--stream", "--run-id", "left", *args) as process:
        next_event(process, "timer.set")
        # The process is stopped, so it receives both signals before it can act on the first.
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        _, stderr = process.communicate()
    assert process.returncode == exits.INTERRUPTED
    return stderr


def test_the_next_worker_cancels_a_run_interrupted_twice(workdir: Workdir) -> None:
    assert re.search(
        r"Left run left\. Its cancellation (is recorded|was sent); the next worker", interrupt_twice(workdir)
    )
    assert running_url(workdir.folder / ".callboard") is None
    with workdir.up():
        assert workdir.run("watch", "left", "--until", "signal.awaited").exit_code == exits.OK
        assert workdir.run_json("show", "left")["status"] == "cancelling"
        workdir.run_json("signal", "left", "tidied")
        assert workdir.run("watch", "left").exit_code == exits.CANCELLED


def test_leaving_a_temporary_run_is_reported(workdir: Workdir) -> None:
    assert "Left run left; it was not kept." in interrupt_twice(workdir, "--data-dir", "temp")


async def test_the_state_of_a_left_run_is_that_of_the_log(tmp_path: Path) -> None:
    async with standing(tmp_path) as connection:
        run = await Caller(connection.nc, connection.config.tenant).start(script=WAITS)
        cancellation = Cancellation(connection.client, run)
        assert "is not cancelled (it was not sent in time)" in str(await cancellation.left_behind())
        async with connection.client.follow(run, event_type="cancel.requested", after=None) as feed:
            assert await cancellation.ask() is None
            await anext(feed)
        while output := await cancellation.left_behind():
            assert "Its cancellation is recorded" in output
        assert "run.finished" in str(await Cancellation(connection.client, run).ask())
