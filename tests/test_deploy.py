"""What stands in `deploy/` fits together and fits the code: services, variables, files and versions."""

import re
from pathlib import Path
from typing import Any

import yaml

from callboard.bus.connection import SERVER_VERSION_MIN
from callboard.runtime.settings.config import Config, load

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_services_refer_to_what_exists() -> None:
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


def test_worker_settings_are_ours_and_reach_the_other_services() -> None:
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


def test_dockerfile_copies_what_the_repository_has() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert "runtime" in copied
    for name in copied:
        assert (ROOT / name).exists(), name


def test_readme_names_settings_that_exist() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"CALLBOARD_([A-Z_]+)", text))
    assert {"NATS_URL", "NATS_CREDS"} <= named
    assert {name.lower() for name in named} <= set(Config.model_fields)
    assert ".".join(map(str, SERVER_VERSION_MIN)) in text
