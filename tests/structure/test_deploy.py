"""The files of `deploy/` agree with each other and with the code: services, variables, files and versions."""

import re
from configparser import ConfigParser
from typing import Any

import click
import yaml

from callboard.bus.nats.connection import SERVER_VERSION_MIN
from callboard.runtime.settings.config import Config, load
from callboard.surfaces.cli.main import cli
from tests.support.modules import FOLDERS
from tests.support.places import ROOT

DEPLOY = ROOT / "deploy"


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_services_refer_to_existing_files_and_volumes() -> None:
    document = compose()
    services = document["services"]
    for service in services.values():
        assert set(service.get("depends_on", [])) <= set(services)
        assert {config["source"] for config in service.get("configs", [])} <= set(document["configs"])
        kept = {volume.split(":")[0] for volume in service.get("volumes", [])}
        assert {name for name in kept if not name.startswith("./")} <= set(document["volumes"])
        assert all((DEPLOY / name).is_dir() for name in kept if name.startswith("./"))
        assert "image" in service or "build" in service
    build = services["worker"]["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


def test_images_are_new_enough() -> None:
    services = compose()["services"]
    major, minor = map(int, services["nats"]["image"].removeprefix("nats:").split("."))
    assert (major, minor, 0) >= SERVER_VERSION_MIN
    assert re.fullmatch(r"jaegertracing/jaeger:2\.\d+\.\d+", services["jaeger"]["image"])


def test_the_server_syncs_always() -> None:
    assert "sync_interval: always" in compose()["configs"]["nats"]["content"]


def test_worker_settings_exist_and_reach_the_other_services() -> None:
    services = compose()["services"]
    env = {name: value for name, value in services["worker"]["environment"].items() if "$" not in value}
    config = load(env=env)
    assert not config.warnings
    assert config.otel
    assert config.allow_scripts
    for url, service in ((config.nats_url, "nats"), (env["OTEL_EXPORTER_OTLP_ENDPOINT"], "jaeger")):
        found = re.fullmatch(r"\w+://(\w+):(\d+)", str(url))
        assert found is not None
        assert found[1] == service
        assert any(f":{found[2]}" in port for port in services[service]["ports"])


def test_nothing_listens_outside_of_the_machine() -> None:
    ports = [port for service in compose()["services"].values() for port in service.get("ports", [])]
    assert "127.0.0.1:16686:16686" in ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "callboard.yaml").read_text(encoding="utf-8")))


def options_of(command: str) -> set[str]:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None, command
    return {option for one in found.params for option in one.opts}


def test_manifests_use_existing_settings_and_probes() -> None:
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in manifests()}
    settings = by_name["ConfigMap", "callboard"]["data"] | by_name["Secret", "callboard"]["stringData"]
    assert not load(env=settings).warnings
    worker, http = (
        by_name["Deployment", f"callboard-{role}"]["spec"]["template"]["spec"] for role in ("worker", "http")
    )
    [container] = worker["containers"]
    image = re.search(r"CALLBOARD_METRICS_LISTEN=\S+:(\d+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    assert image is not None
    assert container["ports"] == [{"name": "metrics", "containerPort": int(image[1])}]
    probes = {name: probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")}
    assert probes == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    served = {name: probe["httpGet"]["path"] for name, probe in http["containers"][0].items() if name.endswith("Probe")}
    assert served == {"livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    drains_s = float(container["args"][container["args"].index("--drain-wait") + 1])
    assert drains_s < worker["terminationGracePeriodSeconds"]
    for command in (container["args"], http["containers"][0]["args"]):
        assert {word for word in command if word.startswith("--")} <= options_of(command[0])
    service = by_name["Service", "callboard"]["spec"]
    assert service["selector"] == by_name["Deployment", "callboard-http"]["spec"]["selector"]["matchLabels"]


def test_the_unit_stops_a_worker_after_it_has_drained() -> None:
    unit = ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read_string((DEPLOY / "callboard.service").read_text(encoding="utf-8"))
    service = unit["Service"]
    _program, command, *options = service["ExecStart"].split()
    assert "--drain-wait" in options_of(command)
    assert float(options[options.index("--drain-wait") + 1]) < float(service["TimeoutStopSec"])
    assert not load(env=dict(pair.split("=", 1) for pair in service["Environment"].split())).warnings


def test_dockerfile_copies_existing_files() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert set(FOLDERS) <= set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name
    # Both locks together have all that is needed, and an older pip that resolves extras would look for more.
    assert re.findall(r"--no-deps --require-hashes --requirement \S+ --requirement \S+$", text, re.MULTILINE)


def test_readme_names_settings_that_exist() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"CALLBOARD_([A-Z_]+)", text))
    assert {"NATS_URL", "NATS_CREDS"} <= named
    assert {name.lower() for name in named} <= set(Config.model_fields)
    assert ".".join(map(str, SERVER_VERSION_MIN)) in text
