"""Commands to many runs: each matching run gets the command once, also when the command is repeated."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.bus.commands import Tell
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.client import Client
from callboard.service.operations import bulk
from callboard.surfaces.cli import exits
from tests.support.workdir import Workdir

SLOW = {"turns": {"a": [{"text": "said", "delay_ms": 600_000}]}}


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workdir]:
    workdir = Workdir(tmp_path_factory.mktemp("standing"))
    with workdir.serve_triage():
        workdir.write_one()
        workdir.write("slow.json", SLOW)
        yield workdir


def begun(workdir: Workdir, customer: str, *names: str) -> list[str]:
    """Start runs that take long, of a customer."""
    for name in names:
        workdir.start_run("one.yaml", "--script", "slow.json", "--run-id", name, "--tag", f"customer={customer}")
        assert workdir.run("watch", name, "--until", "model.call", "--plain").exit_code == exits.OK
    return list(names)


def verdicts(workdir: Workdir, *args: str) -> dict[str, str]:
    return {one["run"]: one["verdict"] for one in workdir.run_json(*args, "--yes")["runs"]}


def events(workdir: Workdir, run: str, event_type: str) -> list[str]:
    lines = workdir.run("trace", run, "--format", "events").stdout.splitlines()
    return [line for line in lines if f'"type":"{event_type}"' in line]


def test_only_matching_runs_receive_a_command(standing: Workdir) -> None:
    mine, other = begun(standing, "acme", "c-1", "c-2", "c-3"), begun(standing, "umbrella", "other-1")
    asked = ("cancel", "--where", "tag.customer=acme", "--reason", "enough", "--by", "ada")
    preview = standing.run(*asked, stdin="n\n")
    assert preview.exit_code == exits.OK
    assert "cancel: 3 runs found:" in preview.output
    assert "c-3  running  one" in preview.output
    assert not any(events(standing, run, "cancel.requested") for run in mine)
    agreed = standing.run(*asked, stdin="y\n")
    assert agreed.exit_code == exits.OK, agreed.output
    assert "cancel: 3 sent" in agreed.stdout
    for run in mine:
        assert standing.run("watch", run, "--plain").exit_code == exits.CANCELLED
        [requested] = events(standing, run, "cancel.requested")
        assert '"reason":"enough","by":"ada"' in requested
    assert standing.run_json("show", *other)["status"] == "running"
    assert verdicts(standing, *asked) == {}, "those that are over are not told again"
    assert verdicts(standing, "kill", "--where", "tag.customer=umbrella") == {"other-1": "told"}
    assert standing.run("watch", "other-1", "--plain").exit_code == exits.CANCELLED


def test_an_interrupted_bulk_command_resumes_without_duplicates(
    standing: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = begun(standing, "signals", "s-1", "s-2", "s-3")
    asked = ("signal", "price", '{"eur": 3}', "--where", "tag.customer=signals", "--operation", "op-1")
    told: list[str] = []
    tell = Client.tell

    async def dies(self: Client, run: str, verb: str, said: Tell, **more: float) -> Verdict:
        if len(told) == 2:
            raise KeyboardInterrupt
        told.append(run)
        return await tell(self, run, verb, said, **more)

    with monkeypatch.context() as patched:
        patched.setattr(bulk, "AT_ONCE", 1)
        patched.setattr(Client, "tell", dies)
        assert standing.run(*asked, "--yes").exit_code == exits.INTERRUPTED
    assert len(told) == 2
    again = verdicts(standing, *asked)
    assert again == {run: "told already" if run in told else "told" for run in runs}
    assert set(verdicts(standing, *asked).values()) == {"told already"}
    for run in runs:
        assert standing.run("cancel", run).exit_code == exits.OK
        assert standing.run("watch", run, "--plain").exit_code == exits.CANCELLED
        [received] = events(standing, run, "signal.received")
        assert '"eur":3' in received
    assert standing.run("signal", runs[0], "price").exit_code == exits.FAILED


def test_each_failed_run_is_retried_once(standing: Workdir) -> None:
    standing.write("fails.json", {"turns": {"a": [{"error": {"code": "refused", "message": "no"}}]}})
    standing.write("well.json", {"turns": {"a": [{"text": "said"}]}})
    for name in ("f-1", "f-2"):
        standing.start_run("one.yaml", "--script", "fails.json", "--run-id", name, "--tag", "customer=failing")
        standing.run("watch", name, "--plain")
        assert standing.run_json("show", name)["nodes"]["a"]["outcome"] == "failed"
    asked = ("--where", "tag.customer=failing and run~f-", "--operation", "again-1", "--script", "well.json", "--yes")
    reruns = standing.run_json("rerun", *asked)["runs"]
    assert [(one["run"], one["verdict"]) for one in reruns] == [("f-1", "begun"), ("f-2", "begun")]
    for one in reruns:
        assert standing.run("watch", one["begun"], "--plain").exit_code == exits.OK
        assert standing.run_json("show", one["begun"])["nodes"]["a"]["outcome"] == "ok"
    done_again = standing.run_json("rerun", *asked)["runs"]
    assert [(one["verdict"], one["begun"]) for one in done_again] == [("begun already", one["begun"]) for one in reruns]
    failed = [row["run"] for row in standing.run_json("runs", "--where", "status=failed and tag.customer=failing")]
    retried = standing.run_json("retry", *asked)["runs"]
    assert sorted(one["run"] for one in retried) == sorted(failed)
    for one in retried:
        assert standing.run("watch", one["begun"], "--plain").exit_code == exits.OK
    assert standing.run("retry", "--where", "run=f-1", "--run-id", "x", "--yes").exit_code == exits.USAGE
    assert standing.run("retry").exit_code == exits.USAGE


def test_incomplete_bulk_commands_are_refused(standing: Workdir) -> None:
    for words in (
        ("cancel",),
        ("cancel", "c-1", "--where", "run=c-1"),
        ("cancel", "c-1", "--yes"),
        ("kill", "--where", "run=", "--yes"),
        ("kill", "--where", "run=c-1", "--json"),
        ("signal", "--where", "run=c-1"),
        ("signal", "c-1"),
        ("signal", "a", "b", "c", "--where", "run=c-1"),
        ("cancel", "c-1", "--all"),
        ("cancel", "--all", "--where", "run=c-1"),
        ("purge", "c-1", "--all", "--yes"),
        ("signal", "--all"),
    ):
        assert standing.run(*words).exit_code == exits.USAGE, words
    nothing = standing.run("kill", "--where", "run=nix", "--yes")
    assert (nothing.exit_code, nothing.stdout) == (exits.OK, "kill: no such run\n")


@pytest.mark.parametrize("text", ["", "  "])
@pytest.mark.parametrize(
    "words",
    [
        *(("cancel",), ("kill",), ("pause",), ("resume",), ("signal", "price"), ("retry",), ("rerun",)),
        *(("purge",), ("replay", "--all"), ("archive", "--output", "all.callboard"), ("runs",), ("cost",)),
    ],
    ids=lambda words: words[0],
)
def test_an_empty_query_is_refused(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    yes = ("--yes",) if words[0] not in ("replay", "archive", "runs", "cost") else ()
    said = Workdir(tmp_path).run(*words, "--where", text, *yes)
    assert (said.exit_code, said.stdout) == (exits.USAGE, "")
    assert said.stderr.startswith("error usage.invalid: the question is empty; expected one such as status=failed")
    assert "where: --where" in said.stderr
    assert "pass --all" in said.stderr


def test_a_command_for_all_runs_requires_all(standing: Workdir) -> None:
    begun(standing, "all", "e-1", "e-2")
    assert {"e-1": "told", "e-2": "told"}.items() <= verdicts(standing, "signal", "--all", "price").items()
    preview = standing.run("pause", "--all", stdin="n\n")
    assert "pause: " in preview.stderr
    assert "e-2  running  one" in preview.stderr
    assert {"e-1": "told", "e-2": "told"}.items() <= verdicts(standing, "cancel", "--all").items()
    for run in ("e-1", "e-2"):
        assert standing.run("watch", run, "--plain").exit_code == exits.CANCELLED
    assert {"e-1": "purged", "e-2": "purged"}.items() <= verdicts(standing, "purge", "--all").items()
    left = standing.run("runs").stdout
    assert [run for run in ("e-1", "e-2") if run in left] == []
