"""Skills, as documents and start messages define them: tools, an MCP server, and expertise as text.

A skill of a start message is the Skill object of the specification. In addition, each tool may have a source,
``python`` (``module:function``) or ``nats`` (a subject), limits of its calls (`Limits`), and ``approve``, which says
which of them need the decision of a person. The run's script answers the calls of a tool without a source.
"""

import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from callboard.bus.effects import TOOL_CONCURRENCY_MAX, TOOL_RETRIES_MAX, ToolLimits
from callboard.languages.approvals.member import ONE_TOOL, SEVERAL_TOOLS, check_member
from callboard.languages.json_schema import schema_fault
from callboard.languages.parts import Maybe, Part, Text, Whole, one_of
from callboard.languages.problems import Complaint
from callboard.lib.durations import DURATION
from callboard.lib.json_types import JsonSchema

CATEGORIES = ("general", "git", "tasks", "notification", "observability", "data")
Category = Literal["general", "git", "tasks", "notification", "observability", "data"]

SKILL_ID_CHARS_MAX = 64
_SKILL_ID = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_PYTHON_TOOL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SUBJECT = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")


def skill_id_fault(skill_id: str) -> str | None:
    """Return what is wrong with a skill's id, or None."""
    if len(skill_id) > SKILL_ID_CHARS_MAX:
        return f"is longer than {SKILL_ID_CHARS_MAX} characters"
    return None if _SKILL_ID.fullmatch(skill_id) else f"{skill_id!r} is not a skill id"


def _checked_id(skill_id: str) -> str:
    if fault := skill_id_fault(skill_id):
        raise Complaint("SCHEMA", fault, "lower-case letters, digits and single hyphens, such as error-tracking")
    return skill_id


def checked_schema(schema: JsonSchema) -> JsonSchema:
    """Validate that an object is a JSON Schema; a pydantic validator."""
    if fault := schema_fault(schema):
        raise Complaint("SCHEMA", f"is not a JSON Schema: {fault}", "a JSON Schema object")
    return schema


def _python_path(path: str) -> str:
    if not _PYTHON_TOOL.fullmatch(path):
        raise Complaint("SCHEMA", f"{path!r} does not name a function", "package.module:function")
    return path


def _subject(subject: str) -> str:
    if not _SUBJECT.fullmatch(subject):
        raise Complaint("SCHEMA", f"{subject!r} is not a NATS subject", "words joined by dots, without wildcards")
    return subject


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise Complaint("SCHEMA", f"{name!r} is not the name of a variable", "letters, digits and underscores")
    return name


def _without(pattern: str, description: str) -> WithJsonSchema:
    """Make the JSON Schema of a text in which a pattern is legal, but probably a mistake."""
    return WithJsonSchema({"type": "string", "not": {"pattern": pattern}, "description": description})


Description = Annotated[
    str,
    _without(r"\$\{|^\$[A-Z_]", "What the variable is for. Its value is that of the worker's variable of this name."),
]
Filled = Annotated[
    str, _without(r"\$\{\{|\$\{\w+[^\w}]", "${NAME} in it is filled in with the worker's variable NAME.")
]
Unfilled = Annotated[str, _without(r"\$\{", "Passed on as it is written: no variable is filled in.")]

Variable = Annotated[str, AfterValidator(_variable)]
"""The name of an environment variable."""

JsonSchemaField = Annotated[dict[str, Any], AfterValidator(checked_schema)]


def _duration(text: str) -> str:
    if not re.match(DURATION, text):
        raise Complaint("SCHEMA", f"{text!r} is not a duration", "a duration such as 90s, 10m or 1h30m")
    return text


Duration = Annotated[str, AfterValidator(_duration)]


ApproveOne = Annotated[Any, AfterValidator(partial(check_member, several=False)), WithJsonSchema(ONE_TOOL)]
ApproveSeveral = Annotated[Any, AfterValidator(partial(check_member, several=True)), WithJsonSchema(SEVERAL_TOOLS)]
"""Which calls of a tool, or of the tools of a server, need the decision of a person."""


class Limits(Part):
    """The limits of a tool's calls: `callboard.bus.effects.ToolLimits`."""

    timeout: Maybe[Duration] = None
    retries: Maybe[Annotated[Whole, Field(ge=0, le=TOOL_RETRIES_MAX)]] = None
    concurrency: Maybe[Annotated[Whole, Field(ge=1, le=TOOL_CONCURRENCY_MAX)]] = None

    def limits(self) -> ToolLimits:
        """Return the limits in the form of a tool source."""
        return ToolLimits(timeout=self.timeout, retries=self.retries or 0, concurrency=self.concurrency)


SERVER_MAPS = ("mcpServers", "servers")
"""The members of files of other programs that hold MCP servers by name."""

ServerType = Literal["stdio", "http", "streamable-http", "streamableHttp"]
SERVER_TYPES: tuple[ServerType, ...] = ("stdio", "http", "streamable-http", "streamableHttp")


def _server_type(value: Any) -> Any:
    if value == "sse":
        remedy = "type: http, with the URL at which the server offers streamable HTTP, in most cases /mcp"
        raise Complaint("SCHEMA", "'sse' is the transport of protocol 2024-11-05, which is not supported", remedy)
    if value not in (*SERVER_TYPES, None):
        raise Complaint("SCHEMA", f"{value!r} is not allowed", f"one of {', '.join(SERVER_TYPES)}")
    return value


class McpServer(Part):
    """An MCP server (McpServerConfig). A map of one server, as other programs have it (``mcpServers``), is one too.

    ``env`` maps names of environment variables to descriptions of them; headers may refer to them as ``${NAME}``. In
    addition to the specification, ``timeout`` bounds each call, ``limits`` has different limits by tool, ``scope`` says
    whether the server runs for a node's execution or for the whole run, and ``approve`` which calls need approval.
    """

    type: Maybe[Annotated[ServerType, BeforeValidator(_server_type)]] = None
    command: Maybe[Unfilled] = None
    args: list[Unfilled] = Field(default_factory=list[str])
    url: Maybe[Unfilled] = None
    headers: dict[str, Filled] = Field(default_factory=dict[str, str])
    env: dict[Variable, Description] = Field(default_factory=dict[str, str])
    timeout: Maybe[Duration] = None
    limits: Maybe[dict[Text, Limits]] = None
    scope: Maybe[Annotated[Literal["node", "run"], one_of("node", "run")]] = None
    approve: Maybe[ApproveSeveral] = None

    @model_validator(mode="before")
    @classmethod
    def _only_server(cls, given: Any) -> Any:
        name = next((name for name in SERVER_MAPS if isinstance(given, dict) and name in given), None)
        if name is None:
            return given
        servers = given[name]
        if len(given) > 1 or not isinstance(servers, dict) or len(servers) != 1:
            many = f"{name} with {', '.join(servers)}" if isinstance(servers, dict) and servers else name
            raise Complaint("SCHEMA", f"has {many}, where one server is expected", "one server for each skill")
        return next(iter(servers.values()))

    @model_validator(mode="after")
    def _somewhere(self) -> "McpServer":
        if not (self.command or self.url):
            raise Complaint("SCHEMA", "does not name a server", "a command (stdio) or a url (http)")
        missing = "command" if self.type == "stdio" else "url"
        if self.type and not getattr(self, missing):
            raise Complaint("SCHEMA", f"has the type {self.type!r} but no {missing}", f"a {missing}")
        return self

    @property
    def is_program(self) -> bool:
        """Whether the server is a program that is started, and not one that is reached over HTTP."""
        return bool(self.command) and self.type in (None, "stdio")


class InlineSkill(Part):
    """A skill in a workflow (SkillDefinition); its name defaults to its key.

    Beyond the specification, ``optional`` says that nodes run without the skill if its file cannot be used.
    """

    name: Maybe[str] = None
    description: Maybe[str] = None
    instruction: Maybe[str] = None
    mcp: Maybe[McpServer] = None
    optional: Maybe[bool] = None

    @property
    def offers_something(self) -> bool:
        return bool(self.instruction) or self.mcp is not None

    @model_validator(mode="after")
    def _offers_something(self) -> "InlineSkill":
        if not self.offers_something and not self.optional:
            raise Complaint("INVALID_INLINE_SKILL", "offers nothing", "an instruction or an mcp server")
        return self


class ConfigField(Part):
    """A value that a skill needs, by default from the environment variable ``env``.

    In addition to the specification, ``secret: false`` marks a value that the log may contain, such as an address.
    """

    description: str
    required: bool = False
    env: Maybe[Variable] = None
    secret: Maybe[bool] = None


class SkillTool(Limits):
    name: Text
    description: str
    input_schema: JsonSchemaField
    python: Maybe[Annotated[str, AfterValidator(_python_path)]] = None
    nats: Maybe[Annotated[str, AfterValidator(_subject)]] = None
    approve: Maybe[ApproveOne] = None

    @model_validator(mode="after")
    def _one_server(self) -> "SkillTool":
        if self.python and self.nats:
            raise Complaint("SCHEMA", "is served twice", "one of python, nats, or neither")
        return self


class Skill(Part):
    """A skill in a start message; the run uses one in which all definitions of the skill are merged."""

    id: Annotated[str, AfterValidator(_checked_id)]
    name: Text
    description: str
    category: Category
    config: dict[str, ConfigField] = Field(default_factory=dict[str, ConfigField])
    tools: list[SkillTool] = Field(default_factory=list[SkillTool])
    instruction: Maybe[str] = None
    mcp: Maybe[McpServer] = None
    mcp_aliases: dict[str, Annotated[list[Text], Field(min_length=1)]] = Field(
        default_factory=dict[str, list[str]], alias="mcpAliases"
    )

    @model_validator(mode="after")
    def _offers_something(self) -> "Skill":
        if not (self.tools or self.instruction or self.mcp):
            raise Complaint("SCHEMA", "offers nothing", "tools, an instruction or an mcp server")
        names = [tool.name for tool in self.tools]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise Complaint("SCHEMA", f"defines {', '.join(doubled)} twice", "tools with different names")
        return self


def from_inline(skill_id: str, inline: InlineSkill) -> Skill:
    """Make a complete skill of one that a workflow defines inline. Its id may be any key."""
    return Skill.model_construct(
        id=skill_id,
        name=inline.name or skill_id,
        description=inline.description or f"Inline skill: {skill_id}",
        category="general",
        instruction=inline.instruction,
        mcp=inline.mcp,
    )


def merge_skills(
    registered: Sequence[Skill], custom: Sequence[Skill], inline: dict[str, InlineSkill]
) -> dict[str, Skill]:
    """Merge all definitions of skills into one for each id.

    A custom skill replaces the instruction and the MCP server of a registered one, but keeps its tools. An inline skill
    counts only if no other has its id. Of several custom skills with the same id the first counts.
    """
    skills = {skill.id: skill for skill in registered}
    seen: set[str] = set()
    for skill in custom:
        if skill.id not in seen:
            seen.add(skill.id)
            skills[skill.id] = _override(skills.get(skill.id), skill)
    for skill_id, definition in inline.items():
        if definition.offers_something:
            skills.setdefault(skill_id, from_inline(skill_id, definition))
    return skills


def _override(registered: Skill | None, custom: Skill) -> Skill:
    if registered is None:
        return custom
    return registered.model_copy(
        update={
            "instruction": custom.instruction or registered.instruction,
            "mcp": custom.mcp or registered.mcp,
            "config": {**registered.config, **custom.config},
        }
    )


def missing_config(skill: Skill, config: dict[str, str]) -> list[str]:
    """Return the keys of required values that are given as empty, or neither given nor read from a variable."""
    return [
        key
        for key, field in skill.config.items()
        if field.required and (not config[key] if key in config else field.env is None)
    ]


def required_env(skill: Skill, config: dict[str, str]) -> list[str]:
    """Return the environment variables without which a skill is unavailable, those of its MCP server included."""
    own = [field.env for key, field in skill.config.items() if field.required and field.env and key not in config]
    return [*own, *_server_env(skill)]


def optional_env(skill: Skill, config: dict[str, str]) -> dict[str, str]:
    """Return the variables that a skill can do without, by ``skill.KEY``."""
    return {
        f"{skill.id}.{key}": field.env
        for key, field in skill.config.items()
        if field.env and not field.required and key not in config
    }


def secret_env(skill: Skill, config: dict[str, str]) -> list[str]:
    """Return the environment variables whose values must not be recorded: all except those marked ``secret: false``."""
    own = [
        field.env
        for key, field in skill.config.items()
        if field.env and field.secret is not False and key not in config
    ]
    return [*own, *_server_env(skill)]


def _server_env(skill: Skill) -> list[str]:
    if skill.mcp is None:
        return []
    in_headers = [name for text in skill.mcp.headers.values() for name in _REFERENCE.findall(text)]
    return [*skill.mcp.env, *in_headers]


def config_variables(skill: Skill, config: dict[str, str], missing: Collection[str]) -> dict[str, str]:
    """Map a skill's config keys to the variables that hold their values; optional ones without a value are left out."""
    named = {key: config.get(key, field.env) for key, field in skill.config.items()}
    return {key: name for key, name in named.items() if name and f"{skill.id}.{key}" not in missing}


def aliases(skills: Sequence[Skill]) -> tuple[dict[str, frozenset[str]], list[str]]:
    """Merge groups of aliases. Return all synonyms of each name, and the ignored aliases that several skills claim."""
    claims: dict[str, set[str]] = {}
    for skill in skills:
        for names in skill.mcp_aliases.values():
            for name in names:
                claims.setdefault(name, set()).add(skill.id)
    contested = {name for name, claimants in claims.items() if len(claimants) > 1}
    groups: dict[str, frozenset[str]] = {}
    for skill in skills:
        for canonical, names in skill.mcp_aliases.items():
            members = {canonical, *(name for name in names if name not in contested)}
            whole = frozenset(members.union(*(groups.get(name, frozenset({name})) for name in members)))
            groups |= dict.fromkeys(whole, whole)
    return groups, sorted(contested)
