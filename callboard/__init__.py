"""The front door: what a program needs that embeds Callboard, or talks to it.

`run` performs one definition and returns its result; `Runtime` performs many, with server and worker in this program;
`Client` talks to a running server. `workflow`, `step` and what goes with them are for workflows that are written in
Python. Everything is imported when it is first used, so that the import is cheap. What
is not named here may change from version to version.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.bus.effects import Failure, McpTools, Usage
    from callboard.bus.errors import (
        CallboardError,
        ConfigInvalid,
        CredentialsRefused,
        OperatorError,
        PermissionDenied,
        ServerFailed,
        ServerUnreachable,
        StoreFull,
        StoreLocked,
        StoreUnusable,
    )
    from callboard.bus.events import Event, Problem
    from callboard.bus.log.port import NoAnswer
    from callboard.client import Client, Run
    from callboard.embedded import Runtime, run
    from callboard.features.evaluation.scorers import scorer
    from callboard.languages.python.agents import Agent
    from callboard.languages.python.approvals import Approve
    from callboard.languages.python.errors import ChildFailed, ModelFailed, NotInWorkflow, StepFailed
    from callboard.languages.python.guard import unsafe
    from callboard.languages.python.models import generate
    from callboard.languages.python.runs import (
        ask,
        changed,
        child,
        continue_as_new,
        log,
        now,
        progress,
        random,
        run_info,
        set_state,
        signal,
        uuid4,
    )
    from callboard.languages.python.sessions import Session, session
    from callboard.languages.python.steps import step, step_context
    from callboard.languages.python.workflows import workflow
    from callboard.projections.run.run_result import RunNotCompleted, RunResult
    from callboard.runtime.client.client import NoVerdict, UnknownRun
    from callboard.runtime.client.errors import NoServer, RequestRefused, UsageInvalid
    from callboard.service.operations.settlement import NotTaken
    from callboard.start_options import Start

    __version__: str

__all__ = [
    "Agent",
    "Approve",
    "CallboardError",
    "ChildFailed",
    "Client",
    "ConfigInvalid",
    "CredentialsRefused",
    "Event",
    "Failure",
    "McpTools",
    "ModelFailed",
    "NoAnswer",
    "NoServer",
    "NoVerdict",
    "NotInWorkflow",
    "NotTaken",
    "OperatorError",
    "PermissionDenied",
    "Problem",
    "RequestRefused",
    "Run",
    "RunNotCompleted",
    "RunResult",
    "Runtime",
    "ServerFailed",
    "ServerUnreachable",
    "Session",
    "Start",
    "StepFailed",
    "StoreFull",
    "StoreLocked",
    "StoreUnusable",
    "UnknownRun",
    "Usage",
    "UsageInvalid",
    "__version__",
    "ask",
    "changed",
    "child",
    "continue_as_new",
    "generate",
    "log",
    "now",
    "progress",
    "random",
    "run",
    "run_info",
    "scorer",
    "session",
    "set_state",
    "signal",
    "step",
    "step_context",
    "unsafe",
    "uuid4",
    "workflow",
]

_HOMES = {
    "bus.effects": ("Failure", "McpTools", "Usage"),
    "bus.errors": (
        "CallboardError",
        "ConfigInvalid",
        "CredentialsRefused",
        "OperatorError",
        "PermissionDenied",
        "ServerFailed",
        "ServerUnreachable",
        "StoreFull",
        "StoreLocked",
        "StoreUnusable",
    ),
    "bus.events": ("Event", "Problem"),
    "bus.log.port": ("NoAnswer",),
    "client": ("Client", "Run"),
    "embedded": ("Runtime", "run"),
    "features.evaluation.scorers": ("scorer",),
    "projections.run.run_result": ("RunNotCompleted", "RunResult"),
    "runtime.client.client": ("NoVerdict", "UnknownRun"),
    "service.operations.settlement": ("NotTaken",),
    "runtime.client.errors": ("NoServer", "RequestRefused", "UsageInvalid"),
    "languages.python.agents": ("Agent",),
    "languages.python.approvals": ("Approve",),
    "languages.python.errors": ("ChildFailed", "ModelFailed", "NotInWorkflow", "StepFailed"),
    "languages.python.guard": ("unsafe",),
    "languages.python.models": ("generate",),
    "languages.python.runs": (
        "ask",
        "changed",
        "child",
        "continue_as_new",
        "log",
        "now",
        "progress",
        "random",
        "run_info",
        "set_state",
        "signal",
        "uuid4",
    ),
    "languages.python.sessions": ("Session", "session"),
    "languages.python.steps": ("step", "step_context"),
    "languages.python.workflows": ("workflow",),
    "start_options": ("Start",),
}
"""Where the names come from, by the module."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{home}"), name)
    # What people read in a traceback, or in `help`, is the name that they may import.
    found.__module__ = __name__
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
