"""The builder: turns the JSON of a valid document into the flow that the interpreter reads."""

from collections.abc import Iterator, Mapping
from typing import Any

from callboard.languages.flow.document import (
    Assign,
    CallObject,
    CallStep,
    CatchClause,
    Clause,
    Flow,
    GatherStep,
    Matcher,
    MatchStep,
    MiddlewareEntry,
    PassStep,
    PhaseBlock,
    RaiseStep,
    ReturnStep,
    SleepStep,
    Step,
)
from callboard.languages.flow.result import ENVELOPE
from callboard.languages.flow.template import Template, compile_template
from callboard.languages.flow.validation import Schema

Json = Mapping[str, Any]

FINALLY = "mwl:provider.middleware/mwl/finally/v1"

_SHAPES = {"onEntry": ("output",), "onSuccess": ("value",), "onFailure": ENVELOPE, "onAlways": ()}


def build(document: Json) -> Flow:
    """Build the root flow of a document in which every name resolves and no flow reaches itself."""
    builder = _Builder()
    builder.build_named_flows(document)
    return builder.build_flow(document, "", None)


class _Flows:
    """The named flows that are visible in a flow object, from the innermost scope outward."""

    def __init__(self, declared: Json, outer: "_Flows | None") -> None:
        self.declared = declared
        self.outer = outer

    def holder(self, name: str) -> "_Flows":
        """Return the scope that declares a name."""
        if name in self.declared or self.outer is None:
            return self
        return self.outer.holder(name)


class _Builder:
    def __init__(self) -> None:
        self._built: dict[tuple[int, str], Flow] = {}

    def build_named_flows(self, document: Json) -> None:
        """Build the named flows that a document reaches, each after the flows that it calls.

        So a long chain of flows that call each other does not need a deep Python stack.
        """
        way: list[tuple[_Flows, str, Iterator[tuple[_Flows, str]]]] = []
        onward = _find_references(document, _Flows(document.get("flows", {}), None))
        while True:
            holder, name = next(onward, (None, ""))
            if holder is not None:
                if (id(holder.declared), name) not in self._built:
                    way.append((holder, name, onward))
                    inner: Json = holder.declared[name]
                    onward = _find_references(inner, _Flows(inner.get("flows", {}), holder))
            elif way:
                holder, name, onward = way.pop()
                self._build_named_flow(name, holder)
            else:
                return

    def build_flow(self, document: Json, name: str, outer: _Flows | None) -> Flow:
        flows = _Flows(document.get("flows", {}), outer)
        steps = {step: self._step(step, fields, flows) for step, fields in document["steps"].items()}
        return Flow(
            name=name,
            entrypoint=document["entrypoint"],
            steps=steps,
            middleware=self._stack(document.get("middleware", []), flows),
            parameters=Schema(document.get("parameters")),
        )

    def _build_named_flow(self, name: str, flows: _Flows) -> Flow:
        """Build a named flow once for all callers: its names are resolved where it is declared."""
        holder = flows.holder(name)
        key = (id(holder.declared), name)
        if key not in self._built:
            self._built[key] = self.build_flow(holder.declared[name], name, holder)
        return self._built[key]

    def _step(self, name: str, fields: Json, flows: _Flows) -> Step:
        match fields["action"]:
            case "Call":
                return CallStep(
                    name,
                    self._call(fields["call"], flows),
                    _optional(fields, "input"),
                    _optional(fields, "output"),
                    _assign(fields),
                    self._stack(fields.get("middleware", []), flows),
                    _catch(fields),
                    fields["next"],
                )
            case "Gather":
                return self._gather(name, fields, flows)
            case "Match":
                cases = tuple(_clause(case) for case in fields["cases"])
                return MatchStep(name, _optional(fields, "input"), cases, _clause(fields["default"]))
            case "Pass":
                return PassStep(name, _optional(fields, "output"), _assign(fields), fields["next"])
            case "Sleep":
                return SleepStep(name, _optional(fields, "for"), _optional(fields, "until"), fields["next"])
            case "Return":
                return ReturnStep(name, _optional(fields, "value"))
            case _:
                result = fields.get("result")
                return RaiseStep(name, None if result is None else _templates(result, ENVELOPE))

    def _gather(self, name: str, fields: Json, flows: _Flows) -> GatherStep:
        calls = fields["calls"] if "calls" in fields else [fields["call"]]
        completion: Json = fields.get("completion", {})
        return GatherStep(
            name,
            _optional(fields, "over"),
            tuple(self._call(call, flows) for call in calls),
            _optional(completion, "successes"),
            completion.get("wait", True),
            None if fields.get("concurrency") is None else int(fields["concurrency"]),
            _optional(fields, "output"),
            _assign(fields),
            _catch(fields),
            fields["next"],
        )

    def _call(self, fields: Json, flows: _Flows) -> CallObject:
        target = fields.get("flow")
        flow = self._build_named_flow(target, flows) if isinstance(target, str) else None
        if isinstance(target, dict):
            flow = self.build_flow(target, "", flows)
        arm: Json = fields.get("onSuccess", {})
        return CallObject(
            fields.get("provider"),
            flow,
            _optional(fields, "input"),
            _optional(fields, "with"),
            _optional(arm, "value"),
            _assign(arm),
            _assign(fields.get("onFailure", {})),
        )

    def _stack(self, entries: list[Json], flows: _Flows) -> tuple[MiddlewareEntry, ...]:
        return tuple(self._entry(entry, flows) for entry in entries)

    def _entry(self, fields: Json, flows: _Flows) -> MiddlewareEntry:
        provider = fields["provider"]
        if provider != FINALLY:
            return MiddlewareEntry(provider, {name: _phase(name, fields[name]) for name in _SHAPES if name in fields})
        always = dict(fields["onAlways"])
        held: Json = always.pop("with")
        blocks = {**fields, "onAlways": always}
        phases = {name: _phase(name, blocks[name]) for name in _SHAPES if name in blocks}
        return MiddlewareEntry(
            provider, phases, self._call(held["call"], flows), self._stack(held.get("middleware", []), flows)
        )


# -- named flows that a flow calls ------------------------------------------------------------------------------------


def _find_references(document: Json, flows: _Flows) -> Iterator[tuple[_Flows, str]]:
    """Yield the named flows that a flow and its inline flows call, each with the scope that declares it."""
    for call in _find_calls(document):
        target: Any = call.get("flow")
        if isinstance(target, str):
            yield flows.holder(target), target
        elif target is not None:
            yield from _find_references(target, _Flows(target.get("flows", {}), flows))


def _find_calls(document: Json) -> Iterator[Json]:
    """Yield the call objects of a flow's steps and stacks."""
    yield from _find_cleanups(document.get("middleware", []))
    for step in document["steps"].values():
        yield from _find_cleanups(step.get("middleware", []))
        if "call" in step:
            yield step["call"]
        yield from step.get("calls", [])


def _find_cleanups(entries: list[Json]) -> Iterator[Json]:
    for entry in entries:
        if entry["provider"] == FINALLY:
            held: Json = entry["onAlways"]["with"]
            yield held["call"]
            yield from _find_cleanups(held.get("middleware", []))


# -- parts of constructs ----------------------------------------------------------------------------------------------


def _phase(name: str, fields: Json) -> PhaseBlock:
    shape = _templates(fields, _SHAPES[name])
    return PhaseBlock(_optional(fields, "when"), _optional(fields, "with"), shape, _assign(fields))


def _clause(fields: Json) -> Clause:
    return Clause(_optional(fields, "when"), _optional(fields, "output"), _assign(fields), fields["next"])


def _catch(fields: Json) -> tuple[CatchClause, ...]:
    return tuple(
        CatchClause(build_matcher(clause["match"]), _optional(clause, "output"), _assign(clause), clause["next"])
        for clause in fields.get("catch", [])
    )


def build_matcher(fields: Json) -> Matcher:
    """Build the failure matcher of a catch clause or a policy."""
    codes, types = fields.get("codes"), fields.get("types")
    return Matcher(
        None if codes is None else tuple(codes),
        None if types is None else frozenset(types),
        fields.get("retryable"),
    )


def _assign(fields: Json) -> Assign:
    return tuple((name, compile_template(value)) for name, value in fields.get("assign", {}).items())


def _optional(fields: Json, name: str) -> Template | None:
    return compile_template(fields[name]) if name in fields else None


def _templates(fields: Json, names: tuple[str, ...]) -> dict[str, Template]:
    return {name: compile_template(fields[name]) for name in names if name in fields}
