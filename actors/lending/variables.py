"""Lending: which variables of a worker's environment a run's definition may use, and where their values may go.

A definition names variables in MCP servers (``env`` and ``headers``) and in Python tools (``config``). Values that the
start has brought are its own and go anywhere. A reserved variable of the worker is never lent. The secret of a
connector goes in headers to the connector's own servers only. On a shared server, only variables are lent that the
operator names for the tenant.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from callboard.actors.lending.addresses import Reach
from callboard.actors.lending.connectors import ADDRESSES, CONNECTORS, PLACES, PORTS, Origin, homes, origin_of
from callboard.bus.effects import McpTools, PythonTools, ToolSource

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def references(texts: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that values refer to, each once, in order."""
    return sorted({name for text in texts.values() for name in _REFERENCE.findall(text)})


def fill_references(text: str, value_of: Callable[[str], str]) -> str:
    """Return a text with each reference replaced by the variable's value."""
    return _REFERENCE.sub(lambda match: value_of(match.group(1)), text)


RESERVED = (
    *("CALLBOARD_*", "NATS_*", "OTEL_*", "SWENY_FETCH_TOKEN"),
    *("PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE"),
)
"""Patterns of the runtime's own variables; those of model providers are in their catalog."""

COMMON = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TEMP", "TMP"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "PYTHONIOENCODING", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SYSTEMROOT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy"),
)
"""Patterns of the variables that a process of Python tools gets on a shared server in addition to those lent to it."""

SHIPPED = "callboard."
"""The prefix of the path of a function that ships with Callboard."""

SECRET_CHARS_MIN = 6
"""A shorter secret is not looked for in the values of other variables."""

INSIDE_CHARS_MIN = 16
"""A shorter secret is looked for as the whole value of a variable, and not as a part of it."""


class Lent(Struct, frozen=True):
    """A variable that a source uses, and where its value goes: a host, or a program."""

    variable: str
    to: str


class Lending(Struct, frozen=True):
    """The variables of a worker's environment that one run may use; without members, all of them.

    ``brought`` names the values that the start has brought. ``reserved`` are patterns of names. ``tenant`` is that of
    the run. ``named`` are the variables that the operator names for the tenant, each with the hosts that its value may
    go to; None if the server is not shared. ``reach`` are the addresses at which MCP servers may be. ``env`` is the
    worker's own environment, which sets the connectors' addresses.
    """

    brought: frozenset[str] = frozenset()
    reserved: Sequence[str] = ()
    tenant: str = ""
    named: Mapping[str, Sequence[str]] | None = None
    reach: Reach = Reach(private=True)
    env: Mapping[str, str] = {}

    def refusals(self, sources: Sequence[ToolSource]) -> list[str]:
        """Return why sources may not use the variables that they name; empty if they may."""
        uses = [use for source in sources for use in _uses(source)]
        refused = [why for use in uses if (why := self._refusal(use))]
        refused += [
            why for source in sources if isinstance(source, PythonTools) for why in self._find_redirections(source)
        ]
        return list(dict.fromkeys(refused))

    def lent(self, sources: Sequence[ToolSource]) -> list[Lent]:
        """Return the worker's variables that sources use, and where their values go."""
        uses = [use for source in sources for use in _uses(source)]
        lent = [Lent(use.variable, self._receiver(use)) for use in uses if use.variable not in self.brought]
        return list(dict.fromkeys(lent))

    def addresses(self) -> dict[str, str]:
        """Return the addresses of this worker's connectors that are not secret."""
        return {name: self.env[name] for name in sorted(PLACES) if name in self.env}

    def _refusal(self, use: "_Use") -> str:
        """Return why a source may not use a variable; empty if it may."""
        variable, who = use.variable, use.who
        if variable in self.brought:
            return ""
        if is_reserved(variable, self.reserved):
            return f"{who} asks for {variable}, which is reserved for the runtime: no definition gets it"
        if self.named is not None and variable not in self.named and not (use.host is None and variable in PLACES):
            why = f"which tenant {self.tenant} may not use; the operator names it in [tenants.{self.tenant}.env]"
            return f"{who} asks for {variable}, {why}"
        if use.host is None:
            return ""
        if self.named is not None:
            return "" if self._is_named(use) else f"{who}: {variable} may not go to {use.host}; {_OPERATOR}"
        if variable in CONNECTORS and (use.origin is None or use.origin not in homes(variable, self.env)):
            return f"{who}: {variable} is the secret of a connector and goes to its own servers only, not to {use.host}"
        return ""

    def _is_named(self, use: "_Use") -> bool:
        """Return whether the operator lets a variable go to a host: encrypted, or to one of ``allow_hosts``."""
        if use.origin is None:
            return False
        scheme, host, port = use.origin
        hosts = (self.named or {}).get(use.variable, ())
        names = {f"{host}:{port}", *([host] if port == PORTS[scheme] else [])}
        return bool(names.intersection(hosts)) and (scheme == "https" or self.reach.allows(host, port))

    def _find_redirections(self, source: PythonTools) -> Iterator[str]:
        """Yield how a source would have a connector's secret sent elsewhere: to an address that is not the worker's, or
        to another service."""
        for key, text in source.config.items():
            if key in ADDRESSES and text != self.env.get(key, "") and text != f"${{{key}}}":
                yield f"the Python tools set {key}; only the worker's environment may set a connector's address"
            for variable in references({key: text}) if _ships(source) else ():
                if variable in CONNECTORS and variable != key and variable not in self.brought:
                    yield f"the Python tools use {variable} as {key}, which is sent to another service"

    def _receiver(self, use: "_Use") -> str:
        """Return where a value goes: to a host, to the address of a shipped connector, or to a program."""
        if use.host is not None:
            return use.host
        if use.connector and use.variable in CONNECTORS:
            return ", ".join(sorted({host for _, host, _ in homes(use.variable, self.env)})) or use.who
        return use.who


_OPERATOR = "the operator names its hosts, which are reached by https or are among allow_hosts"


class _Use(Struct, frozen=True):
    """A variable that a source uses. ``host`` is where its value is sent; None if a program gets it."""

    variable: str
    who: str
    host: str | None = None
    origin: Origin | None = None
    connector: bool = False


def _uses(source: ToolSource) -> Iterator[_Use]:
    match source:
        case PythonTools():
            for variable in references(source.config):
                yield _Use(variable, "the Python tools", connector=_ships(source))
        case McpTools(name=name, command=[program, *_]):
            for variable in sorted(set(source.env.values())):
                yield _Use(variable, f"MCP server {name} ({program})")
        case McpTools(name=name):
            # A header may refer to a variable by the name that the server's `env` gives it.
            given = {source.env.get(variable, variable) for variable in references(source.headers)}
            origin = origin_of(source.url)
            host = _show_origin(origin) if origin else source.url
            for variable in sorted({*source.env.values(), *given}):
                yield _Use(variable, f"MCP server {name}", host, origin)
        case _:
            return


def _ships(source: PythonTools) -> bool:
    """Return whether one of the functions is Callboard's own."""
    return any(path.startswith(SHIPPED) for path in source.functions.values())


def _show_origin(origin: Origin) -> str:
    scheme, host, port = origin
    return host if port == PORTS[scheme] else f"{host}:{port}"


def is_reserved(variable: str, patterns: Iterable[str]) -> bool:
    """Return whether the name of a variable matches a pattern, ignoring case, as some systems do."""
    return any(fnmatchcase(variable.upper(), pattern.upper()) for pattern in patterns)


def repeating(env: Mapping[str, str], secrets: Iterable[str]) -> list[str]:
    """Return the variables whose values are or contain one of the secrets."""
    sought = {secret for secret in secrets if len(secret) >= SECRET_CHARS_MIN}
    long = [secret for secret in sought if len(secret) >= INSIDE_CHARS_MIN]
    return [name for name, value in env.items() if value in sought or any(secret in value for secret in long)]


def common(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every program needs."""
    return {name: value for name, value in env.items() if any(fnmatchcase(name, pattern) for pattern in COMMON)}
