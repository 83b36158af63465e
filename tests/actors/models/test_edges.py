"""The edges of the Anthropic adapter that need no server: schemas, names, failures, waits."""

import importlib
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, get_args

import anyio
import httpx2
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from structlog.testing import capture_logs

from callboard.actors.carrier import PROGRESS_LINES_MAX, Carrier, Job, Reporter
from callboard.actors.models import anthropic as anthropic_model
from callboard.actors.models.answer_json import read_json
from callboard.actors.models.anthropic import CODE_OF, CODE_OF_TYPE, StreamFold
from callboard.actors.models.anthropic_messages import build_request
from callboard.actors.models.draft import REPLY_CHARS_MAX
from callboard.actors.models.model import ModelTurn, ModelTurnFailed, OnRetry, OnText, unheard
from callboard.actors.models.request_parts import TOOL_NAME_CHARS_MAX
from callboard.actors.models.request_retries import RetryPolicy, TryFailed, TurnSpending, wait_s, with_retries
from callboard.actors.models.schemas import ANTHROPIC, GEMINI, OPENAI, SchemaSubset, native_schema
from callboard.actors.models.trouble import entry_of, retry_after_s
from callboard.actors.tools.tool import ToolEnvironment
from callboard.bus import events as ev
from callboard.bus.effects import Failure, Message, ModelReply, Recall, ToolSpec, Usage
from callboard.bus.subjects import RunRef

# -- answers that are JSON --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        ' \n{"a": 1}\n',
        '```json\n{"a": 1}\n```',
        'Here it is: ```\n\n {"a": 1}``` Done.',
        'First\n```json\n{"a": 0}\n```\nand then\n```JSON \n{"a": 1}\n```\n2',
        '```python\nprint()\n```\n\n```json\n{"a": 1}\n```',
        '```json\n{"a": 1}\n```\n```python\n2\n```',
        'Between ``` and ```:\n````json\n{"a": 1}\n````',
        '```json\n{"a": 1}\n```' + "\n" * 100_000,
    ],
)
def test_json_is_found_alone_or_in_the_last_fence_that_has_any(text: str) -> None:
    assert read_json(text) == {"a": 1}


@pytest.mark.parametrize(
    "text", ["", "```", "``````", '```json\n{"a": {"b": 1}', "```python\n2\n```", "```2```", "```\n{\n```"]
)
def test_text_without_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        read_json(text)


@pytest.mark.parametrize("text", ["```json" + "\n" * 100_000 + "x", "```" * 100_000, "```\n" * 100_000, "[" * 100_000])
def test_a_hostile_answer_is_read_in_linear_time(text: str) -> None:
    """What grew with the cube of a run of newlines would not come back."""
    with pytest.raises(ValueError, match="no JSON"):
        read_json(text)


# -- failures ---------------------------------------------------------------------------------------------------------


def descendants(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    yield kind
    for child in kind.__subclasses__():
        yield from descendants(child)


def test_every_exception_of_the_sdk_is_classified() -> None:
    import anthropic

    module = vars(importlib.import_module("anthropic._exceptions"))
    own = {kind for kind in module.values() if isinstance(kind, type) and issubclass(kind, Exception)}
    for kind in own - {module["IdentityTokenFileError"]}:
        assert entry_of(kind, CODE_OF) is not None, f"{kind.__name__} has no code"
    for root in (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL):
        for kind in descendants(root):
            assert entry_of(kind, CODE_OF) is not None, f"{kind} has no code"


def test_every_error_type_within_a_stream_is_classified() -> None:
    from anthropic.types.shared.error_type import ErrorType

    assert set(get_args(ErrorType)) == set(CODE_OF_TYPE)


def test_every_entry_names_an_error_and_a_code_of_the_port() -> None:
    import anthropic

    known = {f"anthropic.{kind.__name__}" for kind in descendants(anthropic.AnthropicError)}
    known |= {f"httpx2.{name}" for name in dir(httpx2)}
    assert {name for name in CODE_OF if name.startswith(("anthropic.", "httpx2."))} <= known
    words = f"{ModelTurnFailed.__doc__}"
    for code in {*CODE_OF.values(), *CODE_OF_TYPE.values()}:
        assert f"``{code}``" in words


def test_other_exceptions_are_not_taken_for_errors_of_the_provider() -> None:
    assert anthropic_model.failure_of(KeyError("x")) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after-ms": "0", "retry-after": "7"}, 7.0),
        ({"retry-after": "whenever"}, None),
    ],
)
def test_the_requested_wait_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, now=40.0) == seconds


# -- waits ------------------------------------------------------------------------------------------------------------


def failed(*, again: bool = True, after_s: float | None = None) -> TryFailed:
    return TryFailed(Failure("model.overloaded"), again=again, after_s=after_s)


def test_waits_grow_up_to_their_bound() -> None:
    policy = RetryPolicy(tries_max=10, delay_first_s=1.0, delay_max_s=6.0)
    waits = [wait_s(policy, tries, 100.0, failed(), jitter=1.0) for tries in range(1, 6)]
    assert waits == [1.0, 2.0, 4.0, 6.0, 6.0]
    assert wait_s(policy, 3, 100.0, failed(), jitter=0.0) == 2.0


def test_tries_and_time_are_bounded() -> None:
    policy = RetryPolicy(tries_max=3)
    assert wait_s(policy, 3, 100.0, failed(), 0.5) is None
    assert wait_s(policy, 1, 100.0, failed(again=False, after_s=1.0), 0.5) is None
    assert wait_s(policy, 1, 5.0, failed(after_s=5.0), 0.5) is None
    assert wait_s(policy, 1, 5.0, failed(after_s=4.0), 0.0) == 4.0
    assert wait_s(policy, 1, 5.0, failed(after_s=4.0), 0.8) == 4.8


def test_a_requested_wait_near_zero_is_observed_once() -> None:
    policy = RetryPolicy(delay_first_s=1.0)
    assert wait_s(policy, 1, 100.0, failed(after_s=0.001), 1.0) == 0.001
    assert wait_s(policy, 2, 100.0, failed(after_s=0.001), 1.0) == 2.0


def test_refusals_with_a_requested_wait_do_not_count_as_tries() -> None:
    policy = RetryPolicy(tries_max=3)
    limited = TryFailed(Failure("model.rate_limited"), again=True, after_s=1.0)
    assert wait_s(policy, 50, 100.0, limited, 0.0) == 1.0
    limited.after_s = 61.0
    assert wait_s(policy, 1, 100.0, limited, 0.0) is None


async def test_a_bug_within_a_try_is_not_tried_again_and_keeps_what_was_used() -> None:
    overloaded = TryFailed(Failure("model.overloaded"), again=True, after_s=0.0)
    overloaded.usage = Usage(5, 1)
    failures: list[Exception] = [overloaded, KeyError("ours")]
    spent = TurnSpending()

    async def attempt() -> ModelReply:
        failure = failures.pop(0)
        if isinstance(failure, KeyError):
            spent.report(Usage(100, 7))
        raise failure

    with capture_logs() as logs, pytest.raises(ModelTurnFailed) as caught:
        await with_retries(RetryPolicy(), attempt, spent=spent)
    assert (caught.value.failure.code, caught.value.failure.message) == ("internal", "KeyError: 'ours'")
    assert (caught.value.usage, caught.value.requests) == (Usage(105, 8), [Usage(5, 1), Usage(100, 7)])
    assert [log["log_level"] for log in logs] == ["error"]


async def test_a_cancellation_from_outside_passes_through() -> None:
    with anyio.CancelScope() as scope:

        async def attempt() -> ModelReply:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError("the cancellation did not arrive")

        await with_retries(RetryPolicy(), attempt)
    assert scope.cancelled_caught


async def carried(model: Any, asides: list[ev.Payload]) -> ev.ModelResult:
    """The payloads that a run records for a turn of a model."""
    call = ev.ModelCall("turn", "busy:m", "0")
    event = ev.decode_event(
        b'{"type":"model.call","run":"r1","n":7,"epoch":1,"v":1,"time":"2026-11-20T11:00:00Z","path":"a","payload":{}}'
    )
    turn = ModelTurn(model="m", path="a", key="a#1.1!turn.1", ordinal=0, idempotency_key="k")

    async def opened(_spec: str) -> tuple[Any, str]:
        return model, "m"

    carrier = Carrier(
        models=opened,
        tools=ToolEnvironment(env={}),
        kinds={},
        on_delta=lambda _job, _k, _text: None,
        model_timeout_s=60.0,
    )
    job = Job(RunRef("acme", "r1"), event, call, "k", node="a", turn=turn)
    sessions: Any = None
    result = await carrier.carry(job, sessions, Reporter(asides.append))
    assert isinstance(result, ev.ModelResult)
    return result


async def test_the_text_before_a_failure_is_recorded_with_it() -> None:
    tries: list[list[str]] = [["an earlier ", "try"], ["half ", "an answer"], []]

    class Broken:
        provider = "broken"

        async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
            async def attempt() -> ModelReply:
                for piece in tries.pop(0):
                    on_text(piece)
                raise TryFailed(Failure("model.unreachable", "gone"), again=bool(tries), after_s=0.0)

            return await with_retries(RetryPolicy(), attempt, on_retry)

    result = await carried(Broken(), [])
    assert result.error is not None
    assert (result.error.code, result.text) == ("model.unreachable", "half an answer")


async def test_a_further_try_is_progress_that_a_run_records() -> None:
    asides: list[ev.Payload] = []
    overloaded = TryFailed(Failure("model.overloaded", "busy\nfor now"), again=True, after_s=0.0)
    answers: list[ModelReply | TryFailed] = [overloaded, overloaded, ModelReply(text="at last")]

    class Busy:
        provider = "busy"

        async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
            async def attempt() -> ModelReply:
                answer = answers.pop(0)
                if isinstance(answer, TryFailed):
                    raise answer
                return answer

            return await with_retries(RetryPolicy(), attempt, on_retry)

    result = await carried(Busy(), asides)
    assert (result.text, result.tries) == ("at last", 3)
    assert [getattr(aside, "message", "") for aside in asides] == [
        "try 1 of 6 failed, again in 0.0 s: model.overloaded busy for now",
        "try 2 of 6 failed, again in 0.0 s: model.overloaded busy for now",
    ]
    assert getattr(asides[1], "data", None) == {"code": "model.overloaded", "tries": 2, "wait_s": 0.0}


def test_progress_without_end_is_recorded_up_to_its_bound() -> None:
    asides: list[ev.Payload] = []
    reporter = Reporter(asides.append)
    for number in range(1, PROGRESS_LINES_MAX + 5):
        reporter.progress("a", f"{number} done")
    told = [getattr(aside, "message", "") for aside in asides]
    assert (len(told), told[-2]) == (PROGRESS_LINES_MAX, f"{PROGRESS_LINES_MAX - 1} done")
    assert "no more of it is recorded" in told[-1]


# -- schemas ----------------------------------------------------------------------------------------------------------

OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        OBJECT,
        {**OBJECT, "required": ["a"], "additionalProperties": False, "title": "T", "$schema": "s"},
        {"type": "array", "items": {"enum": ["a", 1, None]}, "minItems": 1},
        {"anyOf": [{"type": "null"}, {"const": "x"}]},
        {"type": ["string", "null"], "format": "date-time"},
        {"type": "string", "maxLength": 3, "format": "iban"},
        {"oneOf": [OBJECT, {"type": "null"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": OBJECT}},
        {"allOf": [{"$ref": "#/definitions/a"}], "description": "one", "definitions": {"a": OBJECT}},
    ],
)
def test_an_enforceable_schema_is_closed(schema: dict[str, Any]) -> None:
    native = native_schema(schema, ANTHROPIC)
    assert native is not None
    jsonschema.Draft202012Validator.check_schema(native)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {**OBJECT, "additionalProperties": True},
        {**OBJECT, "required": ["b"]},
        {**OBJECT, "patternProperties": {"x": {}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "array"},
        {"type": "string", "items": {"type": "string"}},
        {"properties": {"a": {"type": "string"}}, "anyOf": [OBJECT]},
        {"$ref": "#/$defs/a", "$defs": {"b": OBJECT}},
        {"$ref": "https://example.com/schema", "$defs": {"a": OBJECT}},
        {"$ref": "#/$defs/a", "required": ["a"], "$defs": {"a": OBJECT}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
        {"type": "whole"},
        {"type": [{}]},
        {"type": []},
        {"enum": [{"a": 1}]},
        {"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(25)}},
        {"type": "array", "items": {"anyOf": [{"type": ["null", "string"]}] * 17}},
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused(schema: dict[str, Any]) -> None:
    assert native_schema(schema, ANTHROPIC) is None


class Color(Enum):
    red = "red"


class Address(BaseModel):
    street: str


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Order(BaseModel):
    ship: Address
    bill: Address = Field(description="who pays")
    color: Color
    pet: Cat | Dog = Field(discriminator="kind")


class Tree(BaseModel):
    value: int
    kids: list["Tree"]


ORDER = {
    "ship": {"street": "a"},
    "bill": {"street": "b"},
    "color": "red",
    "pet": {"kind": "dog"},
}


@pytest.mark.parametrize("dialect", [ANTHROPIC, OPENAI, GEMINI])
def test_references_of_generated_schemas_are_enforced(dialect: SchemaSubset) -> None:
    native = native_schema(Order.model_json_schema(), dialect)
    assert native is not None
    assert "$ref" not in str(native)
    assert native["properties"]["bill"]["description"] == "who pays"
    check = jsonschema.Draft202012Validator(native)
    assert check.is_valid(ORDER)
    assert not check.is_valid({**ORDER, "pet": {"kind": "cow"}})
    assert not check.is_valid({**ORDER, "bill": {}})


def test_a_definition_that_refers_to_itself_is_enforced_where_the_provider_takes_that() -> None:
    schema = Tree.model_json_schema()
    assert native_schema(schema, ANTHROPIC) is None
    assert native_schema(schema, GEMINI) is None
    native = native_schema(schema, OPENAI)
    assert native is not None
    check = jsonschema.Draft202012Validator(native)
    assert check.is_valid({"value": 1, "kids": [{"value": 2, "kids": []}]})
    assert not check.is_valid({"value": 1, "kids": [{"value": "x", "kids": []}]})


def test_a_schema_with_multiplying_references_is_put_into_the_prompt() -> None:
    definitions: dict[str, Any] = {"d30": {"type": "null"}}
    for n in range(30):
        properties = {name: {"$ref": f"#/$defs/d{n + 1}"} for name in "ab"}
        definitions[f"d{n}"] = {"type": "object", "properties": properties, "required": ["a", "b"]}
    assert native_schema({"$ref": "#/$defs/d0", "$defs": definitions}, OPENAI) is None


def test_limits_that_cannot_be_enforced_are_put_into_the_description() -> None:
    schema = {"type": "integer", "description": "A dice", "minimum": 1, "maximum": 6}
    assert native_schema(schema, ANTHROPIC) == {"type": "integer", "description": "A dice (minimum: 1, maximum: 6)"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["a", "type", "object"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)
schemas = st.recursive(
    st.sampled_from(["string", "integer", "null", "boolean"]).map(lambda kind: {"type": kind}),
    lambda inner: (
        st.builds(
            lambda members, required: {
                "type": "object",
                "properties": members,
                "required": sorted({*members} & required),
            },
            st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            st.sets(st.sampled_from(["a", "b"])),
        )
        | inner.map(lambda item: {"type": "array", "items": item})
        | st.lists(inner, min_size=1, max_size=2).map(lambda any_of: {"anyOf": any_of})
    ),
    max_leaves=4,
)


@given(schemas, json_values)
def test_a_value_that_fits_the_enforced_schema_fits_the_requested_one(schema: dict[str, Any], value: Any) -> None:
    native = native_schema(schema, ANTHROPIC)
    if native is not None and jsonschema.Draft202012Validator(native).is_valid(value):
        assert jsonschema.Draft202012Validator(schema).is_valid(value)


@given(json_values)
def test_any_value_in_place_of_a_schema_is_handled(value: Any) -> None:
    native = native_schema({"type": "object", "properties": {"x": value}, "required": value}, ANTHROPIC)
    assert native is None or native["type"] == "object"


# -- requests and streams ---------------------------------------------------------------------------------------------


def a_turn(**fields: Any) -> ModelTurn:
    return ModelTurn(model="m", path="a", key="a#1.1!turn.0", ordinal=0, idempotency_key="i", **fields)


@given(st.lists(st.text(max_size=80), unique=True, max_size=8))
def test_encoded_tool_names_are_distinct_and_can_be_decoded(names: list[str]) -> None:
    request = build_request(a_turn(tools=[ToolSpec(name) for name in names]))
    sent = [tool["name"] for tool in request.params.get("tools", [])]
    assert [request.tools[name] for name in sent] == names
    assert all(0 < len(name) <= TOOL_NAME_CHARS_MAX and name.isascii() for name in sent)


def test_a_tool_name_that_fits_stays_as_it_is() -> None:
    request = build_request(a_turn(tools=[ToolSpec("a.b"), ToolSpec("a_b")]))
    assert [tool["name"] for tool in request.params["tools"]] == ["a_b_2", "a_b"]


def test_a_recall_must_have_been_resolved() -> None:
    with pytest.raises(ValueError, match="not resolved"):
        build_request(a_turn(messages=[Message("user", [Recall("a#1", "/result")])]))


def test_an_endless_reply_is_ended() -> None:
    fold = StreamFold()
    fold.take({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    piece = "x" * (REPLY_CHARS_MAX // 2)
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
    assert fold.take(delta) == fold.take(delta) == piece
    with pytest.raises(TryFailed) as caught:
        fold.take(delta)
    assert caught.value.failure.code == "model.bad_reply"


@given(
    st.lists(
        json_values | st.dictionaries(st.sampled_from(["type", "index", "delta", "message", "usage"]), json_values)
    )
)
def test_any_sequence_of_events_is_folded_without_an_error(events: list[Any]) -> None:
    fold = StreamFold()
    for event in events:
        fold.take(event)
    with pytest.raises(TryFailed) as caught:
        fold.reply(build_request(a_turn()))
    assert caught.value.failure.code == "model.bad_reply"
