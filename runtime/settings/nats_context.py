"""NATS contexts: the named server connections of the tool `nats`, as settings of Callboard."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callboard.bus.events import Problem
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.text_bytes import NotText, read_text

URL = "nats://127.0.0.1:4222"
"""Default address of the tool for a context without one."""

SETTINGS: Mapping[str, str] = {
    "url": "nats_url",
    "user": "nats_user",
    "password": "nats_password",
    "token": "nats_token",
    "creds": "nats_creds",
    "ca": "nats_ca",
    "cert": "nats_cert",
    "key": "nats_key",
    "jetstream_domain": "nats_domain",
    "inbox_prefix": "nats_inbox_prefix",
}
"""Settings by the names of a context's members; its ``nkey``, a file with the seed, is handled separately."""

NEEDED = ("nsc", "user_jwt", "user_seed", "socks_proxy", "jetstream_api_prefix", "tls_first")
"""Members that are needed to reach the server, but have no setting."""

_FILES = ("creds", "ca", "cert", "key", "nkey")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def read_context(given: str, env: Mapping[str, str], source: str) -> tuple[dict[str, Any], list[Problem]]:
    """Return the settings of a context, given by its name or file, and the problems."""
    path = _path(given, env)
    if path is None:
        return {}, [_problem(f"invalid name of a context: {given!r}", source)]
    try:
        found = decode_json(read_text(path), type=dict[str, Any])
    except FileNotFoundError:
        return {}, [_problem(f"{path} does not exist", source)]
    except (OSError, NotText, *JSON_ERRORS) as error:
        return {}, [_problem(f"{path} cannot be read: {error}", source)]
    if wanting := [name for name in NEEDED if found.get(name)]:
        return {}, [_problem(f"{path} has {', '.join(wanting)}, which Callboard does not support", source)]
    members = {name: str(value) for name, value in found.items() if value}
    members |= {name: str(_home(members[name], env)) for name in _FILES if name in members}
    settings: dict[str, Any] = {SETTINGS[name]: value for name, value in members.items() if name in SETTINGS}
    if "nkey" in members:
        try:
            settings["nats_nkey_seed"] = read_text(Path(members["nkey"])).strip()
        except (OSError, NotText) as error:
            return {}, [_problem(f"the nkey of {path} cannot be read: {error}", source)]
    return {"nats_url": URL, **settings}, []


def _path(given: str, env: Mapping[str, str]) -> Path | None:
    if "/" in given or given.endswith(".json"):
        return _home(given, env)
    if not _NAME.fullmatch(given):
        return None
    folder = Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else _home("~/.config", env)
    return folder / "nats" / "context" / f"{given}.json"


def _home(path: str, env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME", "~")).expanduser() / path[2:] if path.startswith("~/") else Path(path)


def _problem(message: str, source: str) -> Problem:
    return Problem("config.context", message, source, expected="a context that `nats context ls` lists, or its file")
