"""Providers and middlewares of one's own: the kinds of actions at each phase, crashes, and how they are found."""

import importlib.metadata
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.languages.flow.depth import DEPTH_MAX
from callboard.runtime.worker.providers import GROUP, find_custom
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import simulate
from tests.support import own_providers as own
from tests.support.flow_providers import crashing_everywhere, flow_of, played
from tests.support.flows import MOCK, TIMEOUT, FlowTheatre
from tests.support.own_providers import CACHE, CIPHER, NOTIFY, SHOUT

CLASSES = (own.Shout, own.Whisper, own.Cache, own.Notify, own.Cipher)


def harness(log: CrashingLog | None = None, **names: Any) -> FlowTheatre:
    """A harness with everybody's providers."""
    own.Notify.heard.clear()
    made = FlowTheatre(log, **names)
    made.providers = {each.document["uri"]: each for each in CLASSES}
    made.contracts = {each.document["uri"]: each.document for each in CLASSES}
    return made


def wrapped(*entries: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """A flow of one mock call inside a stack."""
    flow = flow_of(MOCK, **arguments)
    flow["steps"]["a"]["middleware"] = list(entries)
    return flow


def told_of(*entries: dict[str, Any], input: Any = "abc", **arguments: Any) -> dict[str, Any]:
    """Play such a flow; return what comes of the step: ``value`` or ``failure``."""
    told: dict[str, Any] = {}

    async def body() -> None:
        found, _ = await played(harness(), wrapped(*entries, **arguments), input)
        told.update(found)

    simulate(body)
    return told


FAILS = {"failure": {"code": "Mine.Broken", "message": "it broke"}}


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_call_provider_of_ones_own() -> None:
    async def body() -> None:
        told, events = await played(harness(), flow_of(SHOUT, times=2), "ab")
        assert told == {"value": "ABAB", "metadata": {"letters": 4}}, "what is not declared is not seen"
        start = next(ev.payload_of(event) for event in events if event.type == ev.RunStart.type)
        assert isinstance(start, ev.RunStart)
        assert start.environment.providers[SHOUT] == own.Shout.document
        told, _ = await played(harness(), flow_of(SHOUT, times=2), 7)
        assert told["failure"]["code"] == "Provider.Call.Shout.Voiceless"
        told, _ = await played(harness(), flow_of(SHOUT), "ab")
        assert told["failure"]["code"] == "System.ParameterValidationFailed"

    simulate(body)


async def test_a_plain_function_may_block_and_return_a_plain_result() -> None:
    told, _ = await played(harness(), flow_of("mwl:provider.call/acme/whisper/v1", times=1), "ABC")
    assert told["value"] == "abc"


@pytest.mark.parametrize("answer", [None, 7, {"value": 1}, {"type": "success", "value": object()}])
def test_an_answer_that_is_none_is_a_failure(answer: Any) -> None:
    class Odd:
        async def execute(self, request: Any) -> Any:
            return answer

    async def body() -> None:
        made = harness()
        made.providers[SHOUT] = Odd
        told, _ = await played(made, flow_of(SHOUT, times=1), "ab")
        assert told["failure"]["code"] == "provider.malformed"

    simulate(body)


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ({"type": "success", "value": float("nan")}, "nan at /result/value"),
        ({"type": "success", "value": {"a/b": [None, 1.5, {"~": float("-inf")}]}}, "-inf at /result/value/a~1b/2/~0"),
        ({"type": "error", "code": "X", "details": (1, float("inf"))}, "inf at /result/details/1"),
    ],
)
def test_a_number_that_json_has_not_is_told_with_its_place(answer: dict[str, Any], place: str) -> None:
    assert failure_of_answer(answer) == f"provider.malformed: the answer of {SHOUT} is not JSON: {place}"


@pytest.mark.parametrize("kind", [list, dict])
def test_an_answer_that_nests_too_deep_is_a_failure(kind: type) -> None:
    deep: Any = kind()
    for _ in range(DEPTH_MAX + 1):
        deep = [deep] if kind is list else {"a": deep}
    told = failure_of_answer({"type": "success", "value": deep})
    assert told == f"provider.malformed: the provider's answer nests deeper than {DEPTH_MAX} levels"


def failure_of_answer(answer: dict[str, Any]) -> str:
    """Return code and message of the failure that comes of a provider's answer."""

    class Odd:
        async def execute(self, request: Any) -> Any:
            return answer

    told: dict[str, Any] = {}

    async def body() -> None:
        stage = harness()
        stage.providers[SHOUT] = Odd
        found, _ = await played(stage, flow_of(SHOUT, times=1), "ab")
        told.update(found["failure"])

    simulate(body)
    return f"{told['code']}: {told['message']}"


def test_a_worker_without_the_provider_fails_the_call() -> None:
    async def body() -> None:
        made = harness()
        del made.providers[SHOUT]
        told, _ = await played(made, flow_of(SHOUT, times=1), "ab")
        assert told["failure"]["code"] == "provider.unknown"

    simulate(body)


# -- side-effects ------------------------------------------------------------------------------------------------------


def test_side_effects_leave_alone_what_is_in_flight() -> None:
    assert told_of({"provider": NOTIFY})["value"] == "abc"
    assert [(phase, input, type) for phase, input, type, _ in own.Notify.heard] == [
        ("onEntry", "abc", None),
        ("onSuccess", "abc", "success"),
        ("onAlways", "abc", "success"),
    ]
    assert len({key for *_, key in own.Notify.heard}) == 3
    assert told_of({"provider": NOTIFY}, **FAILS)["failure"]["code"] == "Mine.Broken"
    assert [(phase, type) for phase, _, type, _ in own.Notify.heard][1:] == [
        ("onFailure", "error"),
        ("onAlways", "error"),
    ]


@pytest.mark.parametrize("phase", ["onEntry", "onSuccess", "onAlways"])
def test_a_side_effect_that_fails_fails_its_phase(phase: str) -> None:
    failure = told_of({"provider": NOTIFY, phase: {"with": {"fail": True}}})["failure"]
    assert (failure["code"], failure["message"]) == ("Provider.Middleware.Notify.Failed", f"nobody heard {phase}")
    heard = [name for name, *_ in own.Notify.heard]
    assert (
        heard
        == {
            "onEntry": ["onEntry"],
            "onSuccess": ["onEntry", "onSuccess", "onAlways"],
            "onAlways": ["onEntry", "onSuccess", "onAlways"],
        }[phase]
    )


def test_a_failing_action_supersedes_the_failure_in_flight() -> None:
    failure = told_of({"provider": NOTIFY, "onFailure": {"with": {"fail": True}}}, **FAILS)["failure"]
    assert failure["code"] == "Provider.Middleware.Notify.Failed"
    assert failure["previous"]["code"] == "Mine.Broken"


def test_an_action_that_is_gated_off_does_not_run() -> None:
    off = {"when": False}
    entry = {"provider": NOTIFY, "onEntry": off, "onSuccess": {**off, "value": "{{ 'shaped' }}"}, "onAlways": off}
    assert told_of(entry)["value"] == "shaped"
    assert own.Notify.heard == []


def test_parameters_of_a_phase_are_checked() -> None:
    failure = told_of({"provider": NOTIFY, "onEntry": {"with": {"fail": "{{ 'yes' }}"}}})["failure"]
    assert failure["code"] == "System.ParameterValidationFailed"
    assert own.Notify.heard == []


# -- transforms --------------------------------------------------------------------------------------------------------


def test_a_transform_changes_the_value_before_the_author_shapes_it() -> None:
    entry = {
        "provider": CIPHER,
        "onEntry": {"output": "{{ middleware.input + '-' }}"},
        "onSuccess": {"value": "{{ middleware.result.value + '!' + middleware.input }}"},
    }
    assert told_of(entry)["value"] == "-abc!abc", "cba- goes down, -abc comes up; the entry received abc"
    assert told_of({"provider": CIPHER}, value="xyz")["value"] == "zyx"


def test_a_transform_of_a_failure_keeps_the_former_one_behind_it() -> None:
    failure = told_of({"provider": CIPHER, "onFailure": {"message": "{{ middleware.result.code }}"}}, **FAILS)[
        "failure"
    ]
    assert (failure["code"], failure["message"]) == ("Acme.Hidden", "Acme.Hidden")
    assert failure["previous"]["code"] == "Acme.Hidden"
    assert failure["previous"]["previous"]["code"] == "Mine.Broken"


def test_a_failure_becomes_nothing_else() -> None:
    failure = told_of({"provider": CIPHER}, failure={"code": "Mine.Nonsense"})["failure"]
    assert (failure["code"], failure["previous"]["code"]) == ("provider.malformed", "Mine.Nonsense")


def test_an_action_that_raises_fails_its_phase() -> None:
    failure = told_of({"provider": CIPHER}, value=7)["failure"]
    assert (failure["code"], "ValueError" in failure["message"]) == ("internal", True)


# -- controls ----------------------------------------------------------------------------------------------------------


def test_a_control_stands_for_what_is_inside() -> None:
    entry = {
        "provider": CACHE,
        "onEntry": {"with": {"key": "k"}},
        "onSuccess": {"value": "{{ {'v': middleware.result.value, 'hit': middleware.metadata.hit} }}"},
    }
    told = told_of(entry, {"provider": NOTIFY}, **FAILS)
    assert told["value"] == {"v": "from the cache", "hit": True}
    assert own.Notify.heard == [], "nothing inside ran"


def test_a_control_lets_pass_and_contributes_what_it_declares() -> None:
    shown = "{{ {'hit': middleware.metadata.hit, 'members': size(middleware.metadata)} }}"
    entry = {"provider": CACHE, "onEntry": {"with": {"key": "other"}}, "onSuccess": {"value": shown}}
    assert told_of(entry)["value"] == {"hit": False, "members": 2}


def test_a_control_that_fails_is_never_established() -> None:
    outer = {"provider": NOTIFY}
    failure = told_of(outer, {"provider": CACHE, "onEntry": {"with": {"broken": True}}})["failure"]
    assert (failure["code"], failure["retryable"]) == ("Provider.Middleware.Cache.Failed", True)
    assert [phase for phase, *_ in own.Notify.heard] == ["onEntry", "onFailure", "onAlways"]


def test_a_control_substitutes_on_the_way_up() -> None:
    entry = {"provider": CACHE, "onSuccess": {"with": {"replace": 7}, "value": "{{ [middleware.result.value] }}"}}
    assert told_of(entry)["value"] == [7]
    entry = {"provider": CACHE, "onSuccess": {"with": {"fail": True}, "value": "unread"}}
    assert told_of(entry)["failure"]["code"] == "Provider.Middleware.Cache.Failed"
    entry = {"provider": CACHE, "onFailure": {"with": {"code": "Other.Code"}}}
    failure = told_of(entry, **FAILS)["failure"]
    assert (failure["code"], failure["previous"]["code"]) == ("Other.Code", "Mine.Broken")


def test_no_action_makes_a_success_of_a_failure() -> None:
    failure = told_of({"provider": CACHE, "onFailure": {"with": {"rescue": True}}}, **FAILS)["failure"]
    assert (failure["code"], failure["previous"]["code"]) == ("provider.malformed", "Mine.Broken")


def test_around_a_whole_flow() -> None:
    async def body() -> None:
        flow = {**wrapped(), "middleware": [{"provider": CACHE, "onEntry": {"with": {"key": "k"}}}]}
        told, events = await played(harness(), flow)
        assert told == "from the cache"
        assert [event.path for event in events if event.type == ev.EffectCall.type] == [
            "main:mw0.onEntry",
            "main:mw0.onSuccess",
        ]

    simulate(body)


# -- in the log --------------------------------------------------------------------------------------------------------


def paths(events: list[Event], type: str) -> list[str]:
    return [event.path for event in events if event.type == type]


def test_each_action_is_one_effect_in_a_node_of_its_own() -> None:
    async def body() -> None:
        _, events = await played(harness(), wrapped({"provider": NOTIFY}))
        acted = [f"main/a:mw0.{phase}" for phase in ("onEntry", "onSuccess", "onAlways")]
        assert [path for path in paths(events, ev.EffectCall.type) if "mw0" in path] == acted
        assert [path for path in paths(events, ev.NodeEnter.type) if "mw0" in path] == acted

    simulate(body)


def test_actions_survive_a_crash_at_every_append() -> None:
    async def body() -> None:
        def check(told: dict[str, Any]) -> None:
            assert told["value"] == "abc"

        flow = wrapped({"provider": NOTIFY}, {"provider": CIPHER})
        assert await crashing_everywhere(lambda log: harness(log), flow, check, input="abc") > 20

    simulate(body)


def test_a_clean_up_runs_when_what_it_wraps_is_interrupted() -> None:
    async def body() -> None:
        bound = {"provider": TIMEOUT, "onEntry": {"with": {"duration": "PT1M"}}}
        told, _ = await played(harness(), wrapped(bound, {"provider": NOTIFY}, delay="PT1H"), "abc")
        assert told["failure"]["code"] == "Provider.Middleware.Timeout.Exceeded"
        assert [(phase, type) for phase, _, type, _ in own.Notify.heard] == [
            ("onEntry", None),
            ("onAlways", "cancellation"),
        ]

    simulate(body)


# -- how they are found ------------------------------------------------------------------------------------------------


def test_classes_are_found_by_their_paths() -> None:
    found, problems = find_custom(
        ["tests.support.own_providers:Shout", "tests.support.own_providers:Cache"], by_entry_point=False
    )
    assert problems == []
    assert {one.uri: one.origin for one in found} == {
        SHOUT: "providers.classes[0] (tests.support.own_providers:Shout)",
        CACHE: "providers.classes[1] (tests.support.own_providers:Cache)",
    }
    assert found[0].opens is own.Shout


def test_everything_that_is_wrong_is_told_with_where_it_was_named() -> None:
    names = ["Shout", "Twin", "Reserved", "Mute", "NO_CLASS", "Structural", "Absent"]
    found, problems = find_custom([f"tests.support.own_providers:{name}" for name in names], by_entry_point=False)
    assert [one.uri for one in found] == [SHOUT]
    told = {problem.where.split(":")[1].partition(")")[0]: problem for problem in problems}
    assert sorted(told) == sorted(set(names) - {"Shout"})
    assert told["Twin"].code == "provider.doubled"
    assert told["Reserved"].code == "RESERVED_NAMESPACE"
    assert "execute" in told["Mute"].message
    assert "document" in told["NO_CLASS"].message
    assert told["Structural"].where.endswith("document.phases.onAlways.structural")
    assert "AttributeError" in told["Absent"].message


def test_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("shout", "tests.support.own_providers:Shout", GROUP)

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        return [point] if group == GROUP else []

    monkeypatch.setattr("callboard.runtime.worker.providers.entry_points", entry_points)
    found, problems = find_custom(["tests.support.own_providers:Shout"])
    assert (problems, [one.uri for one in found]) == ([], [SHOUT]), "named twice, it is one"
    assert find_custom([], by_entry_point=False) == ([], [])
