"""The needs of a run's skills in the worker's environment, and the choice of definitions once that is known."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from callboard.bus.events import Environment
from callboard.bus.outgoing_subjects import Addressed
from callboard.languages.plan import Needs
from callboard.languages.skills.shipped import PREFIX, shipped_ids, shipped_skill
from callboard.languages.skills.skill import (
    Skill,
    merge_skills,
    missing_config,
    optional_env,
    required_env,
    secret_env,
)
from callboard.languages.workflow.document import Workflow

Skills = dict[str, Skill]


def shipped_for(document: Workflow, registered: Sequence[Skill], custom: Sequence[Skill]) -> Skills:
    """Return the shipped skills that nodes list, with the replacements of skill files.

    Skills that the start message defines itself are left out, since their own definitions count.
    """
    listed = {name for node in document.nodes.values() for name in node.skills}
    ids = listed.intersection(shipped_ids()) - {skill.id for skill in registered}
    return merge_skills(
        [shipped_skill(name) for name in sorted(ids)], [skill for skill in custom if skill.id in ids], {}
    )


def needs(document: Workflow, own: Skills, shipped: Skills, config: dict[str, str]) -> Needs:
    """Return ``Plan.needs``: see `callboard.languages.workflow.admit.admit`."""
    asked = {name: env for name, env in _wanted_variables(own.values(), config) if env}
    asked |= {f"{PREFIX}{name}": env for name, env in _wanted_variables(shipped.values(), config)}
    secret = {name for skill in (*own.values(), *shipped.values()) for name in secret_env(skill, config)}
    return Needs(skills=asked, environment=sorted(secret), subjects=list(_subjects(document, [own, shipped])))


def _subjects(document: Workflow, defined: Sequence[Skills]) -> Iterator[Addressed]:
    """Yield the NATS subjects of the tools that nodes list."""
    listed = dict.fromkeys(name for node in document.nodes.values() for name in node.skills)
    for skill in (skills[name] for name in listed for skills in defined if name in skills):
        for tool in skill.tools:
            if tool.nats:
                yield Addressed(tool.nats, f"skills.{skill.id}.tools.{tool.name}.nats")


def _wanted_variables(skills: Iterable[Skill], config: dict[str, str]) -> Iterable[tuple[str, list[str]]]:
    for skill in skills:
        yield skill.id, required_env(skill, config)
        yield from ((name, [variable]) for name, variable in optional_env(skill, config).items())


def resolve_skills(
    own: Skills, shipped: Skills, config: dict[str, str], offered: Mapping[str, bool]
) -> tuple[Skills, frozenset[str]]:
    """Return the skills of a run, and what the worker lacks: ids of skills, and optional values as ``id.KEY``.

    ``offered`` is the worker's answer to ``Plan.needs``. A shipped skill takes precedence over one with the same id in
    a workflow or a file, unless it lacks something.
    """
    skills = dict(own)
    missing = {name for name, skill in own.items() if missing_config(skill, config)}
    missing |= {name for name, there in offered.items() if not there and not name.startswith(PREFIX)}
    for name, skill in shipped.items():
        usable = offered.get(f"{PREFIX}{name}", False) and not missing_config(skill, config)
        if name in own and not usable:
            continue
        skills[name] = skill
        keys = {f"{name}.{key}": offered.get(f"{PREFIX}{name}.{key}", True) for key in skill.config}
        missing -= {name, *keys}
        missing |= {key for key, known in keys.items() if not known} | (set() if usable else {name})
    return skills, frozenset(missing)


Lacks = dict[str, tuple[str, str]]
"""The skills that nodes list and run without: the code and the text of the warning, by id."""


def lacks(document: Workflow, own: Skills, shipped: Skills, config: dict[str, str], there: Environment) -> Lacks:
    """Return the skills that the nodes of a workflow lack in an environment, as recorded."""
    skills, missing = resolve_skills(own, shipped, config, there.skills)
    unset = there.lacking
    found: Lacks = {}
    for name in dict.fromkeys(name for node in document.nodes.values() for name in node.skills):
        skill = skills.get(name)
        if skill is None:
            found[name] = "UNKNOWN_SKILL", _undefined_reason(name)
        elif name in missing:
            need = f"{PREFIX}{name}" if skill is shipped.get(name) else name
            found[name] = "SKILL_UNAVAILABLE", _unavailable(name, skill, config, unset.get(need, []))
    return found


def anywhere(shipped: Skills) -> Environment:
    """Return an environment that has all shipped skills."""
    return Environment(skills={f"{PREFIX}{name}": True for name in shipped})


def _undefined_reason(name: str) -> str:
    return (
        f"the skill {name!r} is not defined, and nodes run without it; define it in the workflow's skills, in a list "
        "beside it (skills.yaml) or in options.skills"
    )


def _unavailable(name: str, skill: Skill, config: dict[str, str], unset: list[str]) -> str:
    """Return the text that names the variables and values that a skill lacks, and where to set them."""
    lacking = (
        [f"{', '.join(unset)} {'is' if len(unset) == 1 else 'are'} not set where the worker runs"] if unset else []
    )
    nowhere = missing_config(skill, config)
    lacking += [f"nothing provides {', '.join(nowhere)}"] if nowhere else []
    values = [f"--set {key}=…" for key, field in skill.config.items() if field.env in unset or key in nowhere]
    remedies = [f"set {'it' if len(unset) == 1 else 'them'} there"] if unset else []
    remedies += [f"give {' '.join(values)} (options.config)"] if values else []
    remedy = ", or ".join(remedies)
    return f"the skill {name!r} is unavailable, and nodes run without it: {', and '.join(lacking)}; {remedy}"
