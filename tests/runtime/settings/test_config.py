"""The configuration: precedence of sources, the source of each value, and all problems in one error."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from callboard.bus.errors import ConfigInvalid
from callboard.runtime.settings.config import Config, load
from tests.support.workdir import ONE_NODE, Workdir


def sources(config: Config) -> dict[str, str]:
    return {name: source for name, _, source in config.explain()}


def test_defaults_are_reported_with_their_sources(tmp_path: Path) -> None:
    config = load(env={}, cwd=tmp_path)
    assert config.embedded
    assert (config.sync, config.prefix, config.partitions) == ("always", "cb", 16)
    assert config.model is None
    assert not config.otel
    assert [name for name, _, _ in config.explain()] == list(Config.model_fields)
    assert set(sources(config).values()) == {"default", "embedded server"}


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text('partitions = 2\ntenant = "file"\nprefix = "file"\nsync = "1s"\n')
    env = {"CALLBOARD_TENANT": "env", "CALLBOARD_PREFIX": "env"}
    config = load({"prefix": "flag", "model": None}, env=env, cwd=tmp_path)
    assert (config.prefix, config.tenant, config.partitions, config.sync) == ("flag", "env", 2, "1s")
    found = sources(config)
    assert (found["prefix"], found["tenant"]) == ("--prefix", "CALLBOARD_TENANT")
    assert found["partitions"] == str(tmp_path / "callboard.toml")
    assert found["model"] == "default"


def test_all_problems_are_reported_with_place_and_nearest_name(tmp_path: Path) -> None:
    file = tmp_path / "callboard.toml"
    file.write_text('natsurl = "x"\npartitions = 0\nsync = "sometimes"\n')
    with pytest.raises(ConfigInvalid) as caught:
        load({"log_level": "loud", "tenent": "x"}, env={"CALLBOARD_RUNS_ACTIVE_MAX": "many"}, cwd=tmp_path)
    found = {(problem.where, problem.message.split(":")[0]): problem for problem in caught.value.problems}
    assert found[(str(file), "unknown setting 'natsurl'")].expected == "'nats_url'"
    assert found[("--tenent", "unknown setting 'tenent'")].expected == "'tenant'"
    assert set(found) == {
        (str(file), "unknown setting 'natsurl'"),
        ("--tenent", "unknown setting 'tenent'"),
        (str(file), "partitions"),
        (str(file), "sync"),
        ("--log-level", "log_level"),
        ("CALLBOARD_RUNS_ACTIVE_MAX", "runs_active_max"),
    }
    assert "6 problem" in str(caught.value)


def test_a_given_file_must_exist_and_be_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="the file does not exist"):
        load(env={}, cwd=tmp_path, file="other.toml")
    (tmp_path / "other.toml").write_text("a = = 1\n")
    with pytest.raises(ConfigInvalid, match="line 1"):
        load(env={}, cwd=tmp_path, file="other.toml")
    (tmp_path / "other.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigInvalid, match="not UTF-8"):
        load(env={}, cwd=tmp_path, file="other.toml")


def test_paths_in_the_file_are_relative_to_it(tmp_path: Path) -> None:
    home = tmp_path / "etc"
    home.mkdir()
    (home / "c.toml").write_text('data_dir = "store"\nnats_creds = "/abs/creds"\n')
    config = load(env={}, cwd=tmp_path, file="etc/c.toml")
    assert config.data_dir == home / "store"
    assert config.credentials().creds_file == "/abs/creds"


def test_defaults_from_the_environment_name_their_variable(tmp_path: Path) -> None:
    env = {"ANTHROPIC_API_KEY": "sk-1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
    config = load(env=env, cwd=tmp_path)
    assert config.model is not None
    assert config.model.startswith("anthropic")
    assert config.otel
    assert sources(config)["model"] == "ANTHROPIC_API_KEY is set"
    assert load(env={**env, "CALLBOARD_OTEL": "off"}, cwd=tmp_path).otel is False


def test_scripts_are_allowed_by_default_only_with_the_embedded_server(tmp_path: Path) -> None:
    assert load(env={}, cwd=tmp_path).allow_scripts
    assert not load({"nats_url": "nats://h:1"}, env={}, cwd=tmp_path).allow_scripts
    assert load({"nats_url": "nats://h:1", "allow_scripts": True}, env={}, cwd=tmp_path).allow_scripts
    assert not load({"allow_scripts": False}, env={}, cwd=tmp_path).allow_scripts


def test_secrets_are_masked_and_listed(tmp_path: Path) -> None:
    env = {
        "CALLBOARD_NATS_URL": "nats://u:in-url@h:1,nats://token-in-url@h:2",
        "CALLBOARD_NATS_PASSWORD": "pa55phrase",
        "CALLBOARD_NATS_TOKEN": "t0ken",
    }
    config = load(env=env, cwd=tmp_path)
    shown = str(config.explain()) + str(config.credentials())
    assert not any(secret in shown for secret in ("in-url", "pa55phrase", "t0ken"))
    assert sorted(config.secrets()) == ["in-url", "pa55phrase", "t0ken", "token-in-url"]
    assert config.credentials().password == "pa55phrase"
    with pytest.raises(ConfigInvalid) as caught:
        load({"nats_password": ["s3cret"]}, env={}, cwd=tmp_path)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("words", [["validate", "one.yaml"], ["runs"], ["cel", "1"], ["config"], ["nothing"]])
def test_every_command_warns_once_of_an_unknown_variable(tmp_path: Path, words: list[str]) -> None:
    workdir = Workdir(tmp_path)
    workdir.write("one.yaml", ONE_NODE)
    result = workdir.run(*words, env={"CALLBOARD_DATADIR": "elsewhere"})
    warning = "warning config.unknown CALLBOARD_DATADIR: unknown setting 'datadir'; expected 'data_dir'"
    assert result.stderr.splitlines()[0] == warning
    assert result.stderr.count("CALLBOARD_DATADIR") == 1


def test_an_unknown_variable_is_a_warning(tmp_path: Path) -> None:
    config = load(env={"CALLBOARD_PARTITION": "3"}, cwd=tmp_path)
    assert [(problem.where, problem.severity, problem.expected) for problem in config.warnings] == [
        ("CALLBOARD_PARTITION", "warning", "'partitions'")
    ]
    assert config.partitions == 16


TABLES = ("fetch_auth", "providers", "endpoints", "vectors", "oidc", "oauth", "webhooks")


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("given", ['"s3cret"', "[1]", "{"])
def test_another_type_than_a_table_is_refused_with_the_expected_type(name: str, given: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(env={f"CALLBOARD_{name.upper()}": given}, cwd=tmp_path)
    [problem] = caught.value.problems
    assert (problem.code, problem.where) == ("config.value", f"CALLBOARD_{name.upper()}")
    assert problem.message.startswith(f"{name}: ")
    assert problem.expected is not None
    assert "table" in problem.expected
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "extra", "table", "given"),
    [
        ("jwt", "oidc", "oidc", {"issuer": "https://a.example", "audience": "callboard"}),
        ("obstore", "s3", "cold", {"after": "1h", "to": "s3://segments"}),
    ],
)
def test_a_table_whose_extra_is_missing_is_refused_with_the_extra(
    module: str, extra: str, table: str, given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {f"CALLBOARD_{table.upper()}": json.dumps(given)}
    load(env=env, cwd=tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigInvalid, match=re.escape(f"pip install 'callboard[{extra}]'")):
        load(env=env, cwd=tmp_path)


def test_nested_secrets_are_listed(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text("""
http_token = "s1"
credentials_key = "s2"
vectors = {store = "qdrant", url = "http://texts.example", key = "s3"}
[fetch.auth]
"a.example" = "s4"
[providers.http.tokens]
"a.example" = "s5"
[endpoints.near]
api = "openai"
base_url = "http://localhost:1"
key = "s6"
[oauth.github]
client_id = "me"
client_secret = "s7"
[webhooks]
"a/b" = ["s8-which-is-long", "s9-which-is-long"]
""")
    found = {secret[:2] for secret in load(env={}, cwd=tmp_path).secrets()}
    assert found == {f"s{n}" for n in range(1, 10)}


def test_invalid_durations_and_rule_names_are_refused_with_the_expected_form(tmp_path: Path) -> None:
    rules = (
        '[retention.Old]\nage = "1 parsec"\n[notify.y]\non = "waiting"\nlonger_than = "soon"\nwebhook = "http://x"\n'
    )
    (tmp_path / "callboard.toml").write_text(f'{rules}[cold]\nafter = "x"\n')
    with pytest.raises(ConfigInvalid) as caught:
        load(env={}, cwd=tmp_path)
    assert {problem.message for problem in caught.value.problems} == {
        "retention.Old: 'Old' is not the name of a rule, which has lower-case letters, digits, _ and -, "
        "and at most 40 of them",
        "retention.Old.age: '1 parsec' is not a duration, such as 90s, 12h or 30d",
        "notify.y.longer_than: 'soon' is not a duration, such as 90s, 12h or 30d",
        "cold.after: 'x' is not a duration, such as 90s, 12h or 30d",
    }


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[budgets.a]\nusd = inf", "budgets.a"),
        ('[budgets."acme/*"]\nusd = 1', "budgets.acme/*"),
        ('[model_turns_max]\n"anthropic:claude-x" = 1', "model_turns_max.anthropic:claude-x"),
        ("[model_turns_max]\nanthropic = true", "model_turns_max.anthropic"),
        ('[endpoints.e]\napi = "openai"\nbase_url = "http://:1/v1"', "endpoints.e.base_url"),
        ('[endpoints.e]\napi = "openai"\nbase_url = "http://x:99999"', "endpoints.e.base_url"),
        ('[endpoints.e]\napi = "openai"\nbase_url = "http://x"\nmodel = "e:m"', "endpoints.e.model"),
        ('[endpoints.e]\napi = "openai"\nbase_url = "http://x"\nmodel = "a b"', "endpoints.e.model"),
        ('[retention.r]\nage = "999999d"', "retention.r.age"),
        ('[retention.r]\nage = "1d"\ntenant = " "', "retention.r.tenant"),
        ('[notify.n]\non = "failed"\nwebhook = "https://"', "notify.n"),
        ('[notify.n]\non = "failed"\nslack_channel = " "', "notify.n.slack_channel"),
        ('[prices]\n"openai:x" = {input = 1, output = 1, over = 12345}', "prices.openai:x"),
        ('[prices]\n"anthropic/claude-x" = 1', "prices.anthropic/claude-x"),
    ],
)
def test_a_setting_without_effect_is_refused_with_its_place(text: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text(text)
    with pytest.raises(ConfigInvalid) as caught:
        load(env={}, cwd=tmp_path)
    assert [problem.message.partition(": ")[0].startswith(place) for problem in caught.value.problems] == [True]


def test_a_number_of_tokens_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text("[budgets.acme]\ntokens = 1e6\n")
    assert load(env={}, cwd=tmp_path).budgets == {"acme": {"tokens": 1e6}}
