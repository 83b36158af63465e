"""Help, completion, exit codes and configuration at the command line."""

from typing import get_args

import click
import pytest
from click.testing import CliRunner

from callboard.projections.lists.runs import RowStatus
from callboard.runtime.settings.config import Config
from callboard.runtime.settings.logs import Level
from callboard.surfaces.cli import exits, runs, show
from callboard.surfaces.cli.main import COMMANDS, SECTIONS, cli
from tests.support.places import ROOT
from tests.support.workdir import Workdir

SENTENCES = {name: sentence for section in SECTIONS.values() for name, (_workdir, sentence) in section.items()}


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def test_help_lists_every_command_and_the_exit_codes() -> None:
    result = CliRunner().invoke(cli, ["--help"]).stdout
    assert all(f"\n  {name} " in result for name in COMMANDS)
    assert "130 interrupted" in " ".join(result.split())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself_and_its_exit_codes(name: str) -> None:
    found = command(name)
    assert found.name == name
    assert found.get_short_help_str(len(SENTENCES[name])) == SENTENCES[name]
    assert found.epilog == exits.EXIT_CODES
    assert all(option.help for option in found.params if isinstance(option, click.Option))


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"completion"}))
def test_every_command_has_json_output(name: str) -> None:
    found = command(name)
    for one in found.commands.values() if isinstance(found, click.Group) else [found]:
        assert any("--json" in option.opts for option in one.params), one.name


def test_choices_of_options_match_their_types() -> None:
    assert set(runs.STATUSES) == set(get_args(RowStatus))
    assert set(show.FORMATS) > show.TEXT_FORMATS
    levels = next(option for option in command("runs").params if option.name == "log_level")
    assert isinstance(levels.type, click.Choice)
    assert tuple(levels.type.choices) == get_args(Level)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"_CALLBOARD_COMPLETE={shell}_complete" in result.stdout


def test_the_shell_completes_commands_and_options() -> None:
    env = {"_CALLBOARD_COMPLETE": "bash_complete", "COMP_WORDS": "callboard re", "COMP_CWORD": "1"}
    result = CliRunner().invoke(cli, [], prog_name="callboard", env=env)
    found = {"resume", "replay", "rebuild", "retry", "rerun", "retention"}
    assert set(result.stdout.split()) == {f"plain,{name}" for name in found}


def test_the_exit_codes_are_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert all(f"`callboard {name}" in page for name in COMMANDS)
    for code in (exits.OK, exits.FAILED, exits.USAGE, exits.CANCELLED, exits.UNUSABLE, exits.LOST, exits.INTERRUPTED):
        assert f"| {code} |" in page


def test_config_shows_every_setting_with_its_source(tmp_path_factory: pytest.TempPathFactory) -> None:
    workdir = Workdir(tmp_path_factory.mktemp("config"))
    workdir.write("callboard.toml", 'tenant = "acme"\nnats_password = "hush-hush"\n')
    output = workdir.run_json("config", "--nats", "nats://user:secret-word@example.org")
    assert output["settings"]["tenant"] == {"value": "acme", "source": "callboard.toml"}
    assert output["settings"]["sync"] == {"value": "1s", "source": "CALLBOARD_SYNC"}
    assert output["settings"]["nats_url"] == {"value": "nats://example.org", "source": "--nats-url"}
    assert output["settings"]["partitions"] == {"value": 16, "source": "default"}
    assert [output["settings"][name]["value"] for name in ("otel", "ack_wait_s", "model")] == [False, 30.0, None]
    assert set(output["settings"]) == set(Config.model_fields)
    assert "hush" not in str(output)
    text = workdir.run("config").stdout
    assert [line.split()[0] for line in text.splitlines()] == list(Config.model_fields)


def test_a_wrong_configuration_lists_all_problems(tmp_path_factory: pytest.TempPathFactory) -> None:
    workdir = Workdir(tmp_path_factory.mktemp("config"))
    workdir.write("callboard.toml", 'partitoins = 3\ntenant = ""\n')
    result = workdir.run("runs")
    assert result.exit_code == exits.USAGE
    assert "partitoins" in result.stderr
    assert "tenant" in result.stderr
    assert result.stdout == ""
