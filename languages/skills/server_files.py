"""Files in which other programs keep MCP servers: ``.mcp.json`` of Claude Code, and those of Cursor and VS Code. Pure.

Each server is an inline skill of its name, for the workflows whose nodes list it. Other servers in the files do not
count. Values of variables are left out, because they would enter the log: a server gets the worker's variables.
"""

from collections.abc import Collection, Mapping
from posixpath import normpath
from typing import Any

from pydantic import ValidationError

from callboard.bus.events import Problem
from callboard.languages.problems import Tree, from_pydantic
from callboard.languages.skills.near_misses import UNFILLED, server_near_misses
from callboard.languages.skills.skill import SERVER_MAPS, InlineSkill, McpServer
from callboard.languages.variables import find_references
from callboard.languages.yaml12 import read_yaml

SERVER_FILES = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json")
"""The files, the highest rank first."""

MEMBERS = frozenset({"type", "command", "args", "url", "headers", "env"})
"""The members of a server that are used."""

IGNORED = "SERVER_FIELD_IGNORED"
"""The code of the warning that members of a server are not used."""

INVALID = "INVALID_SERVER_FILE"
"""The code of the warning that a file with servers, or a server in it, cannot be used."""


def discover_servers(files: Mapping[str, str], wanted: Collection[str]) -> tuple[dict[str, InlineSkill], list[Problem]]:
    """Find the wanted servers among a run's files; return them as skills, by name, and warnings."""
    found: dict[str, InlineSkill] = {}
    warnings: list[Problem] = []
    by_path = {normpath(path): text for path, text in files.items()}
    for path in SERVER_FILES:
        if path in by_path:
            skills, problems = read_server_file(by_path[path], path, wanted)
            found = {**skills, **found}
            warnings += problems
    return found, warnings


def read_server_file(text: str, path: str, wanted: Collection[str]) -> tuple[dict[str, InlineSkill], list[Problem]]:
    """Return the wanted servers of a file as skills, by name, and warnings whose ``where`` is the path."""
    tree = read_yaml(text)
    if not isinstance(tree, Tree):
        return {}, [_at(problem, path) for problem in tree]
    members: Any = tree.value if isinstance(tree.value, dict) else {}
    name, servers = next(((name, members[name]) for name in SERVER_MAPS if name in members), ("", None))
    if not isinstance(servers, dict):
        return {}, [_warning(INVALID, "has no servers", path, f"an object with {' or '.join(SERVER_MAPS)}")]
    found: dict[str, InlineSkill] = {}
    warnings: list[Problem] = []
    for server, given in servers.items():
        if server not in wanted:
            continue
        if unused := sorted(given.keys() - MEMBERS) if isinstance(given, dict) else []:
            reason = f"{name}.{server}: these members have no effect here: {', '.join(unused)}"
            warnings.append(_warning(IGNORED, reason, path))
        try:
            read = McpServer.model_validate(_without_values(given))
        except ValidationError as error:
            problems = from_pydantic(error, McpServer, tree, (name, server))
            warnings += [_at(problem, path) for problem in problems]
            continue
        found[server] = InlineSkill(mcp=read)
        for location, message, expected in server_near_misses(read):
            where = ".".join(map(str, (name, server, *location)))
            warnings.append(_warning(UNFILLED, f"{where}: {message}", path, expected))
    return found, warnings


def kept_servers(skills: Mapping[str, InlineSkill]) -> dict[str, Any]:
    """Return the content of a file with these servers and no others."""
    servers = {name: one.mcp.model_dump(mode="json", exclude_unset=True) for name, one in skills.items() if one.mcp}
    return {SERVER_MAPS[0]: servers}


def _without_values(given: Any) -> Any:
    """Return a server without the values of its variables, and with references in the form that workers fill in."""
    if not isinstance(given, dict):
        return given
    server: dict[str, Any] = {name: value for name, value in given.items() if name in MEMBERS}
    if isinstance(server.get("env"), dict):
        server["env"] = {name: _describe_variable(name, value) for name, value in server["env"].items()}
    if isinstance(server.get("headers"), dict):
        server["headers"] = {name: _fill_references(value) for name, value in server["headers"].items()}
    return server


def _describe_variable(name: str, value: Any) -> Any:
    """Return the description of a variable: that it is the worker's, or the reference to another one."""
    referred = next(find_references(value), None) if isinstance(value, str) else None
    return value if referred is not None and referred.name != name else f"the worker's variable {name}"


def _fill_references(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    for one in find_references(value):
        if one.text == f"${{env:{one.name}}}":
            value = value.replace(one.text, f"${{{one.name}}}")
    return value


def _at(problem: Problem, path: str) -> Problem:
    line = f"{path}:{problem.line}" if problem.line else path
    return _warning(
        INVALID, f"{problem.where}: {problem.message}" if problem.where else problem.message, line, problem.expected
    )


def _warning(code: str, message: str, path: str, expected: str | None = None) -> Problem:
    return Problem(code, message, path, expected=expected, severity="warning")
