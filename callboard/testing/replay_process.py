"""Replays of a scenario's runs in other processes, whose strings have other hashes, to find code that depends on its
process.

Started as ``python -m callboard.testing.replay_process``, it reads a `_ReplayRequest` from stdin and writes a
`_ReplayReply` to stdout.
"""

import importlib
import importlib.util
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from itertools import count, islice

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, decode_event, encode_event
from callboard.bus.subjects import RunRef
from callboard.languages.registry import code_language, hosting, language
from callboard.runtime.client.errors import UsageInvalid
from callboard.runtime.hosting.code_loader import load_object
from callboard.testing.checks import check_replay, replay_events
from callboard.testing.door import TENANT

HERE = "CALLBOARD_REPLAY_PROCESS"
"""The variable that is set in such a process: code that it imports may call `replay_elsewhere` itself."""


class _ReplayRequest(Struct):
    """The logs of runs, the modules of their code with their files, and the folders in which modules are found."""

    runs: list[list[bytes]]
    modules: dict[str, str]
    path: list[str]


class _ReplayReply(Struct):
    """Why a replay has failed; empty if all went well."""

    problem: str = ""


def replay_elsewhere(runs: Sequence[Sequence[Event]], processes: int) -> None:
    """Replay runs in other processes.

    :raises AssertionError: if a replay asks for something else than the log holds, or ends differently
    :raises UsageInvalid: if another process cannot import the code
    """
    if HERE in os.environ:
        return
    request = _ReplayRequest(
        [[encode_event(event) for event in events] for events in runs], _modules_of(runs), sys.path
    )
    message = msgspec.json.encode(request)
    own = os.environ.get("PYTHONHASHSEED")
    seeds = list(islice((seed for seed in count(1) if str(seed) != own), processes))
    started = [
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": str(seed), HERE: "1"},
        )
        for seed in seeds
    ]
    answered = [process.communicate(message) for process in started]
    for seed, (stdout, stderr) in zip(seeds, answered, strict=True):
        try:
            problem = msgspec.json.decode(stdout, type=_ReplayReply).problem
        except msgspec.DecodeError:
            problem = f"the process has ended without an answer: {stderr.decode(errors='replace')}"
        assert not problem, f"in another process (PYTHONHASHSEED={seed}) the replay has failed: {problem}"


def _modules_of(runs: Sequence[Sequence[Event]]) -> dict[str, str]:
    """Return the modules of the runs' code, with their files."""
    modules: dict[str, str] = {}
    for events in runs:
        accepted = ev.payload_of(events[0])
        if not isinstance(accepted, ev.RunAccepted) or accepted.definition.language != code_language():
            continue
        parsed = language(accepted.definition.language).parse(accepted.definition.source)
        assert not isinstance(parsed, list), "it was admitted"
        entry, _digest = hosting().code_named(parsed.document)
        module, _, name = entry.partition(":")
        file = getattr(sys.modules.get(module), "__file__", None)
        if module == "__main__" or "." in name or not file:
            remedy = "Define the workflow at the top of a module that the test imports, or start it as FILE.py:NAME."
            raise UsageInvalid(f"another process cannot import {entry}", "start", remedy)
        modules[module] = file
    return modules


def main() -> None:
    """Answer one request."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_ReplayRequest)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of the code do not belong to the reply
    sys.path[:] = request.path
    try:
        _host(request.modules)
        for events in request.runs:
            _replay([decode_event(event) for event in events])
        reply = _ReplayReply()
    except AssertionError as error:
        reply = _ReplayReply(str(error) or traceback.format_exc())
    except CallboardError as error:
        reply = _ReplayReply(str(error))
    except Exception:
        reply = _ReplayReply(traceback.format_exc())
    out.write(msgspec.json.encode(reply))
    out.flush()


def _host(modules: dict[str, str]) -> None:
    if modules:
        hosting().prepare()
    for name, file in modules.items():
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            spec = importlib.util.spec_from_file_location(name, file)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        load_object(module)


def _replay(events: list[Event]) -> None:
    ref = RunRef(TENANT, events[0].run)
    if events[-1].type == ev.RunEnd.type:
        check_replay(language, ref, events)
    else:
        replay_events(language, ref, events)


if __name__ == "__main__":
    main()
