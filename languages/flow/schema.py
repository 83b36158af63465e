"""The JSON Schema of a flow, for editors and for programs that write flows, and the descriptions that editors show.

Source: page *Flow object* and the pages that it links to. `callboard.languages.flow.structure` checks everything that a
schema cannot express: names, expressions, and the arguments of providers.
"""

from collections.abc import Mapping
from typing import Any

from callboard.languages.flow.structure import FLOW_SCHEMA
from callboard.lib.json_types import JsonSchema

_EXPRESSION: JsonSchema = {
    "type": "string",
    "pattern": r"^\{\{[\s\S]*\}\}$",
    "description": "An expression: one pair of braces, {{ … }}, spans the whole string.",
}

_ROOTS = "call|frame|middleware|step|vars"

_LITERAL: JsonSchema = {
    "type": "string",
    "not": {
        "anyOf": [
            {"pattern": rf"^(?!\s*\{{\{{)[^\n]*\{{\{{\s*({_ROOTS})\b[^\n]*$"},
            {"pattern": r"^(Bearer |Basic )?\$(\{\{?[^\n{}]*\}?\}|[A-Z_]+)$"},
        ]
    },
    "description": "A text as it is written, or an expression that spans all of it: {{ 'Hello ' + vars.who }}. Nothing "
    "is filled in within a text: neither {{ … }} nor ${VARIABLE}.",
}
"""A string in a value. The refused strings are legal, but surely mistakes; `callboard validate` warns of more."""

_LENT: JsonSchema = {"type": "object", "description": "Texts in which the worker fills in its ${VARIABLE}."}

_VALUE: JsonSchema = {
    "anyOf": [
        _LITERAL,
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "array", "items": {"$ref": "#/$defs/Value"}},
        {
            "type": "object",
            "properties": {"type": {"enum": ["mcp", "python"]}, "headers": _LENT, "config": _LENT},
            "required": ["type"],
            "additionalProperties": {"$ref": "#/$defs/Value"},
        },
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/Value"}},
    ]
}

_TEXT: JsonSchema = {"type": "string"}
_BOOLEAN: JsonSchema = {"type": "boolean"}
_ANY: JsonSchema = {"$ref": "#/$defs/Value", "description": "A value; strings in it may be expressions."}
_VALUES: JsonSchema = {"type": "object", "additionalProperties": {"$ref": "#/$defs/Value"}}


def _ref(name: str) -> JsonSchema:
    return {"$ref": f"#/$defs/{name}"}


def _or_expression(schema: JsonSchema, description: str = "") -> JsonSchema:
    told = {"description": description} if description else {}
    return {"anyOf": [schema, _ref("Expression")], **told}


def _object(properties: dict[str, Any], *required: str, **more: Any) -> JsonSchema:
    properties = {"comment": {**_TEXT, "description": "For people."}, **properties}
    schema: JsonSchema = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    return {**schema, "required": list(required)} if required else schema


def _bare(properties: dict[str, Any], *required: str, **more: Any) -> JsonSchema:
    """Return the schema of an object without a comment."""
    schema = _object(properties, *required, **more)
    return {**schema, "properties": {name: one for name, one in schema["properties"].items() if name != "comment"}}


def _list(items: JsonSchema, **more: Any) -> JsonSchema:
    return {"type": "array", "items": items, **more}


_ASSIGN: JsonSchema = {**_VALUES, "description": "Variables, each with what it is assigned."}
_NEXT: JsonSchema = {"type": "string", "description": "The step that comes next."}

_NO_SUCCESS: JsonSchema = {"type": "string", "not": {"const": "success"}}

_ENVELOPE: dict[str, Any] = {
    "type": _NO_SUCCESS,
    "code": {"type": "string", "description": "The failure's code, such as Orders.OutOfStock."},
    "message": _TEXT,
    "details": _ANY,
    "retryable": _or_expression({"type": ["boolean", "null"]}),
    "previous": _or_expression({"type": ["object", "null"]}, "The failure that led to this one."),
}

_MATCHER = _bare(
    {
        "codes": _list(
            _TEXT, minItems=1, description="Patterns of codes: A.B exactly, A.* by leading segments, * any."
        ),
        "types": _list(_NO_SUCCESS, minItems=1, description="error, cancellation, timeout, skipped, or one's own."),
        "retryable": _BOOLEAN,
    },
    minProperties=1,
    description="Which failures are meant: all that is given must match.",
)

_CALL = _object(
    {
        "provider": {"type": "string", "description": "Who is called: mwl:provider.call/<namespace>/<name>."},
        "flow": {"anyOf": [_TEXT, _ref("Flow")], "description": "The flow that is called: its name, or itself."},
        "input": _ANY,
        "with": _or_expression(_VALUES, "The arguments."),
        "onSuccess": _bare({"value": _ANY, "assign": _ASSIGN}),
        "onFailure": _bare({"assign": _ASSIGN}),
    },
    oneOf=[{"required": ["provider"]}, {"required": ["flow"]}],
)


def _phase(more: dict[str, Any]) -> JsonSchema:
    condition = _or_expression(_BOOLEAN, "Whether the phase happens.")
    return _bare({"when": condition, "with": _or_expression(_VALUES), "assign": _ASSIGN, **more})


_ENTRY = _object(
    {
        "provider": {"type": "string", "description": "Who wraps it: mwl:provider.middleware/<namespace>/<name>."},
        "onEntry": _phase({"output": _ANY}),
        "onSuccess": _phase({"value": _ANY}),
        "onFailure": _phase(_ENVELOPE),
        "onAlways": _phase({}),
    },
    "provider",
)

_CATCH = _object({"match": _ref("Matcher"), "output": _ANY, "assign": _ASSIGN, "next": _NEXT}, "match", "next")
_WAY: dict[str, Any] = {"output": _ANY, "assign": _ASSIGN, "next": _NEXT}
_TAIL: dict[str, Any] = {**_WAY, "catch": _list(_CATCH, description="The first clause that matches a failure.")}

_COMPLETION = _bare({"successes": _or_expression({"type": "integer"}), "wait": _BOOLEAN}, "successes")

_GATHER: dict[str, Any] = {
    "over": _or_expression({"type": "array"}, "The items, each of which is the input of one call."),
    "call": _ref("Call"),
    "calls": _list(_ref("Call"), minItems=1),
    "completion": _COMPLETION,
    "concurrency": {"type": ["integer", "null"], "minimum": 1},
    **_TAIL,
}
_FORMS: list[JsonSchema] = [
    {"required": ["over", "call"], "not": {"required": ["calls"]}},
    {"required": ["calls"], "not": {"anyOf": [{"required": ["over"]}, {"required": ["call"]}]}},
]

_CASE = _object({"when": _ref("Expression"), **_WAY}, "when", "next")


def _step(action: str, properties: dict[str, Any], *required: str, **more: Any) -> JsonSchema:
    return _object({"action": {"const": action}, **properties}, "action", *required, **more)


_STEPS: dict[str, JsonSchema] = {
    "CallStep": _step(
        "Call",
        {"call": _ref("Call"), "input": _ANY, "middleware": _list(_ref("Entry")), **_TAIL},
        "call",
        "next",
        description="Calls a provider or a flow.",
    ),
    "GatherStep": _step("Gather", _GATHER, "next", oneOf=_FORMS, description="Makes several calls at once."),
    "MatchStep": _step(
        "Match",
        {"input": _ANY, "cases": _list(_CASE), "default": _object(_WAY, "next")},
        "cases",
        "default",
        description="Goes the way of the first case that holds.",
    ),
    "PassStep": _step("Pass", _WAY, "next", description="Hands its input on, made into its output."),
    "SleepStep": _step(
        "Sleep",
        {
            "for": {**_TEXT, "description": "A duration as ISO 8601 has it, such as PT30S, or an expression."},
            "until": {**_TEXT, "description": "An instant as RFC 3339 has it, or an expression."},
            "next": _NEXT,
        },
        "next",
        oneOf=[{"required": ["for"]}, {"required": ["until"]}],
        description="Waits.",
    ),
    "ReturnStep": _step("Return", {"value": _ANY}, description="Ends the flow with a value."),
    "RaiseStep": _step("Raise", {"result": _bare(_ENVELOPE, "code")}, description="Ends the flow with a failure."),
}

_FLOW: dict[str, Any] = {
    "entrypoint": {"type": "string", "description": "The step that comes first."},
    "steps": {"type": "object", "minProperties": 1, "additionalProperties": _ref("Step")},
    "flows": {"type": "object", "additionalProperties": _ref("Flow"), "description": "Flows that can be called here."},
    "middleware": _list(_ref("Entry"), description="What wraps the whole flow, the outermost first."),
    "parameters": {
        "type": "object",
        "properties": {"type": {"const": "object"}},
        "required": ["type"],
        "description": "The JSON Schema of its arguments.",
    },
}


def flow_schema() -> JsonSchema:
    """Return the JSON Schema of a flow document."""
    names = list(_STEPS)
    return {
        **_object({"$schema": {"const": FLOW_SCHEMA}, **_FLOW}, "$schema", "entrypoint", "steps"),
        "$defs": {
            "Expression": _EXPRESSION,
            "Value": _VALUE,
            "Flow": _object(_FLOW, "entrypoint", "steps"),
            "Call": _CALL,
            "Entry": _ENTRY,
            "Matcher": _MATCHER,
            "Step": {"oneOf": [_ref(name) for name in names]},
            **_STEPS,
        },
    }


DESCRIPTIONS: Mapping[str, str] = {
    "$schema": "The version of the language: https://mwl.dev/v0.1/flow/schema.json.",
    "steps": "The steps, by id.",
    "parameters.type": "Parameters are an object.",
    "onEntry": "What happens before it begins.",
    "onSuccess": "What happens when it succeeds.",
    "onFailure": "What happens when it fails.",
    "onAlways": "What happens when it ends, in any case.",
    "with": "The arguments of the provider.",
    "type": "The type of the result.",
    "message": "What went wrong, in words.",
    "retryable": "Whether another try may succeed.",
    "action": "What the step does: Call, Gather, Match, Pass, Sleep, Return or Raise.",
    "call": "The flow or provider that is called.",
    "calls": "Several calls, made at the same time.",
    "middleware": "Providers that wrap the step, such as retry and timeout.",
    "completion": "When the Gather is complete.",
    "concurrency": "How many calls may be under way at once.",
    "successes": "How many calls have to succeed.",
    "wait": "Whether the other calls are waited for.",
    "cases": "The conditions, in their order, each with the next step.",
    "MatchStep.default": "What is next if no case holds.",
    "result": "The failure that is raised.",
}
"""The texts that editors show for members: by ``Owner.member``, or by ``member`` for all owners."""
