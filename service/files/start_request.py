"""The request to start a run, as the command line and the MCP server receive it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A request to start a run: the definition's file, and the values for the start message."""

    file: str
    input_text: str | None = None
    script: str | None = None
    skills: str | None = None
    model: str | None = None
    config: dict[str, str] = field(default_factory=dict[str, str])
    dry_run: bool = False
    offline: bool = False
    strict: bool = False
    run_id: str | None = None
    breakpoints: tuple[str, ...] = ()
    project_skills: bool = True
    skill_commands: bool = False
    arguments_text: str | None = None
    values: dict[str, str] = field(default_factory=dict[str, str])
    options_text: str | None = None
    options: dict[str, str] = field(default_factory=dict[str, str])
    state: str | None = None
    language: str | None = None
    received: str | None = None
    trigger: str | None = None
    tags: dict[str, str] = field(default_factory=dict[str, str])
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    limits: dict[str, str] = field(default_factory=dict[str, str])
    encryption_key: str | None = None
