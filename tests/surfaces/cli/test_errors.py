"""Errors at the command line: as text and as JSON, with exit codes and without secrets."""

import json
from pathlib import Path

import pytest

from callboard.bus.errors import CallboardError, ConfigInvalid, ServerUnreachable
from callboard.bus.events import Problem
from callboard.bus.log.port import NoAnswer
from callboard.bus.subjects import RunRef
from callboard.runtime.client.client import NoVerdict, UnknownRun
from callboard.runtime.client.errors import RequestRefused
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.errors import error_text, report
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import where_options
from tests.support.workdir import Workdir, plain


def test_an_error_has_message_place_and_remedy() -> None:
    text = plain(error_text(ServerUnreachable("nats://nowhere", "connection refused")))
    assert text.splitlines() == [
        "error server.unreachable: no NATS server could be reached: connection refused",
        "  where: nats://nowhere",
        "  Check the URL and that the server is running, or leave the URL out to use the embedded server.",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerUnreachable("nats://nowhere", "refused"), exits.UNUSABLE),
        (NoVerdict("start", "r1", 10), exits.UNUSABLE),
        (NoAnswer("no answer"), exits.UNUSABLE),
        (UnknownRun(RunRef("t", "r")), exits.FAILED),
        (RequestRefused("start", [Problem("x", "y")]), exits.FAILED),
        (ConfigInvalid([Problem("x", "y")]), exits.USAGE),
        (KeyboardInterrupt(), exits.INTERRUPTED),
    ],
)
def test_errors_have_their_exit_code_however_they_are_wrapped(error: BaseException, code: int) -> None:
    assert report(error, as_json=True) == code
    wrapped = BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [error])])
    assert report(wrapped, as_json=False) == code


def test_an_error_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem("SCHEMA", "is required", "nodes.a", 3, 4)
    report(RequestRefused("definition", [problem], "x.yaml", "a\nb\nc d e"), as_json=True)
    result = capsys.readouterr()
    output = json.loads(result.out)["error"]
    assert result.err == ""
    assert output["code"] == "definition.refused"
    assert output["problems"][0]["line"] == 3


def test_an_internal_error_is_raised_again() -> None:
    fault = ZeroDivisionError("ours")
    with pytest.raises(ZeroDivisionError):
        report(fault, as_json=False)
    with pytest.raises(ExceptionGroup):
        report(ExceptionGroup("g", [fault]), as_json=False)


def test_hints_repeat_the_address_without_its_password() -> None:
    settings = Settings({"nats_url": "nats://me:hush@host", "tenant": "a b", "log_level": "debug"}, "my.toml")
    assert where_options(settings) == " --nats nats://USER:PASSWORD@host --tenant 'a b' --config my.toml"
    assert where_options(Settings()) == ""


def test_a_remedy_repeats_the_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings({"nats_url": "nats://me:hush@host", "data_dir": "my data"})
    report(UnknownRun(RunRef("t", "r")), as_json=False, settings=settings)
    assert "`callboard runs --nats nats://USER:PASSWORD@host --data-dir 'my data'`;" in capsys.readouterr().err
    report(NoVerdict("start", "r1", 10), as_json=True, settings=Settings({"data_dir": "there"}))
    remedy = json.loads(capsys.readouterr().out)["error"]["remedy"]
    assert "(`callboard up --data-dir there` or `callboard worker --data-dir there`)" in remedy
    report(UnknownRun(RunRef("t", "r")), as_json=False, settings=Settings())
    assert "`callboard runs`;" in capsys.readouterr().err


def test_each_problem_of_the_configuration_is_reported_once() -> None:
    problems = [Problem("config.value", "sync: wrong", "CALLBOARD_SYNC"), Problem("config.unknown", "no", "my.toml")]
    assert plain(error_text(ConfigInvalid(problems))).splitlines() == [
        "error config.invalid: the configuration has 2 problems",
        "error config.value CALLBOARD_SYNC: sync: wrong",
        "error config.unknown my.toml: no",
    ]


def test_every_error_of_callboard_is_reported() -> None:
    assert report(CallboardError("x.y", "something"), as_json=False) == exits.FAILED


def test_wrong_usage_is_an_error_object_with_json(tmp_path: Path) -> None:
    for words in (["validate", "no-such-file.yaml", "--json"], ["trace", "--json"]):
        ended = Workdir(tmp_path).call(*words)
        error = json.loads(ended.stdout)["error"]
        assert (ended.returncode, error["code"], error["where"]) == (2, "usage.invalid", f"callboard {words[0]}")
        assert error["remedy"] == f"See `callboard {words[0]} --help`."


@pytest.mark.parametrize(("word", "meant"), [("trac", " Did you mean trace?"), ("zzz", "")])
def test_an_unknown_command_has_a_suggestion(tmp_path: Path, word: str, meant: str) -> None:
    result = Workdir(tmp_path).run(word)
    assert result.exit_code == exits.USAGE
    assert result.stderr.splitlines()[-1] == f"Error: No such command '{word}'.{meant}"
