"""The contracts of the providers that the specification defines: mock, Retry, Timeout, Loop and Finally.

Source: pages *Call providers* and *Middleware providers*. The contracts have the meaning of the documents there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from callboard.languages.provider_contracts import CALL, MIDDLEWARE, Contract, PhaseContract
from callboard.lib.json_types import JsonSchema

MOCK = f"{CALL}mwl/mock/v1"
RETRY = f"{MIDDLEWARE}mwl/retry/v1"
TIMEOUT = f"{MIDDLEWARE}mwl/timeout/v1"
LOOP = f"{MIDDLEWARE}mwl/loop/v1"
FINALLY = f"{MIDDLEWARE}mwl/finally/v1"

_BOTH_LEVELS = ("step", "flow")


def _object(properties: dict[str, Any], *required: str, **more: Any) -> JsonSchema:
    schema: JsonSchema = {"type": "object", "additionalProperties": False, "properties": properties, **more}
    return {**schema, "required": list(required)} if required else schema


_NO_SUCCESS = {"type": "string", "not": {"const": "success"}}
_DURATION = {"type": "string", "format": "duration"}

_FAILURE = _object(
    {
        "type": {**_NO_SUCCESS, "default": "error"},
        "code": {"type": "string", "description": "Any code, because this provider takes the place of others."},
        "message": {"type": "string"},
        "details": {},
        "retryable": {"type": ["boolean", "null"]},
        "previous": {"type": ["object", "null"], "description": "The envelope is emitted with exactly this one."},
    },
    "code",
    type=["object", "null"],
    description="A failure to end with instead of a success; null is the same as leaving it out.",
)

_MOCK = Contract(
    uri=MOCK,
    code_prefix="Mock",
    description="Takes the place of any call provider: its Result depends only on its arguments.",
    parameters=_object(
        {
            "value": {"description": "The value of the success; by default the call's input."},
            "failure": _FAILURE,
            "delay": {**_DURATION, "description": "How long to wait before the Result."},
            "metadata": {
                "type": "object",
                "additionalProperties": True,
                "description": "What provider.metadata shows.",
            },
        }
    ),
    metadata={"type": "object", "additionalProperties": True},
    open=("*",),
)

_MATCHER = _object(
    {
        "codes": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string"},
            "description": "Patterns of codes, one of which must match: A.B exactly, A.* by leading segments, * any.",
        },
        "types": {"type": "array", "minItems": 1, "items": _NO_SUCCESS, "description": "Types, one of which it is."},
        "retryable": {"type": "boolean", "description": "Matches only a failure that asserts the same."},
    },
    minProperties=1,
    description="Which failures the policy handles: all that is given must match.",
)

_BACKOFF = _object(
    {
        "initial": {**_DURATION, "description": "The wait before the first retry."},
        "rate": {"type": "number", "minimum": 1, "default": 1, "description": "By what each wait grows to the next."},
        "max": {**_DURATION, "description": "The longest wait."},
        "jitter": {"type": "string", "enum": ["none", "full", "equal", "decorrelated"], "default": "none"},
    },
    "initial",
    description="How long to wait before a retry; without it, not at all.",
)

_POLICIES = {
    "type": "array",
    "minItems": 1,
    "items": _object(
        {
            "match": _MATCHER,
            "attempts": {"type": "integer", "minimum": 1, "description": "How many runs, the first one counted."},
            "backoff": _BACKOFF,
        },
        "match",
        "attempts",
    ),
    "description": "The first policy that matches a failure handles it; each counts its own attempts.",
}

_RETRY = Contract(
    uri=RETRY,
    code_prefix="Retry",
    description="Runs what it wraps again when it fails in a way that one of its policies matches.",
    metadata=_object({"attempt": {"type": "number", "description": "Runs so far, the first one counted."}}),
    closed=("Provider.Middleware.Retry.Exhausted",),
    attachment=_BOTH_LEVELS,
    phases={
        "onEntry": PhaseContract("control", _object({"policies": _POLICIES}, "policies"), (), "Arms the policies."),
        "onFailure": PhaseContract(
            "control",
            _object(
                {
                    "delay": {
                        "type": ["string", "null"],
                        "format": "duration",
                        "default": None,
                        "description": "The wait before this retry, in place of the policy's and without jitter.",
                    }
                }
            ),
            (),
            "Runs again while the matching policy has attempts left; otherwise Exhausted, or the failure as it is.",
        ),
    },
)

_TIMEOUT = Contract(
    uri=TIMEOUT,
    code_prefix="Timeout",
    description="Interrupts what it wraps when it takes too long.",
    metadata=_object(
        {"deadline": {"type": "string", "format": "date-time", "description": "When the bound is reached."}}
    ),
    closed=("Provider.Middleware.Timeout.Exceeded",),
    attachment=_BOTH_LEVELS,
    phases={
        "onEntry": PhaseContract(
            "control",
            _object({"duration": {**_DURATION, "description": "The longest time, over all runs of it."}}, "duration"),
            (),
            "Starts the clock. A Result that has reached the entry by then counts.",
        )
    },
)

_LOOP = Contract(
    uri=LOOP,
    code_prefix="Loop",
    description="Runs what it wraps again while onSuccess.when holds; onEntry.when admits the first run.",
    metadata=_object({"iteration": {"type": "number", "description": "The run under way or just done, from 1."}}),
    attachment=_BOTH_LEVELS,
    phases={
        "onEntry": PhaseContract("control", description="Admits the loop; gated off, nothing runs at all."),
        "onSuccess": PhaseContract("control", description="Runs again, with the phase's value as the next input."),
    },
)

_FINALLY = Contract(
    uri=FINALLY,
    code_prefix="Finally",
    description="Makes a call on every way out; only its failure is noticed, and takes the Result's place.",
    attachment=_BOTH_LEVELS,
    phases={
        "onAlways": PhaseContract(
            "side-effect",
            _object(
                {
                    "call": {"type": "object", "description": "The call to make."},
                    "middleware": {
                        "type": "array",
                        "items": {"type": "object"},
                        "description": "What wraps the call.",
                    },
                },
                "call",
            ),
            ("call", "middleware"),
            "Makes the call, wrapped by the stack.",
        )
    },
)

SPECIFIED: Mapping[str, Contract] = MappingProxyType(
    {contract.uri: contract for contract in (_MOCK, _RETRY, _TIMEOUT, _LOOP, _FINALLY)}
)
"""The five contracts by their URIs."""
