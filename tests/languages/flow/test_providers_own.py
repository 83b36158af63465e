"""Custom providers and middlewares: the kinds of actions at each phase, crashes, and how they are found."""

import importlib.metadata
from typing import Any

import pytest

from callboard.actors.providers.catalog import Providers
from callboard.bus import events as ev
from callboard.languages.flow.depth import DEPTH_MAX
from callboard.runtime.worker.providers import GROUP, find_custom
from callboard.testing.crashes import CrashingLog
from tests.support import own_providers as own
from tests.support.flow_providers import flow_of, played, simulate_crashes, simulate_flow
from tests.support.flows import MOCK, TIMEOUT, FlowTheatre
from tests.support.own_providers import CACHE, CIPHER, NOTIFY, SHOUT

CLASSES = (own.Shout, own.Whisper, own.Cache, own.Notify, own.Cipher)


def harness(log: CrashingLog | None = None, **names: Any) -> FlowTheatre:
    """A harness with the providers and middlewares of `CLASSES`."""
    own.Notify.heard.clear()
    runs = FlowTheatre(log, **names)
    runs.providers = {each.document["uri"]: each for each in CLASSES}
    runs.contracts = {each.document["uri"]: each.document for each in CLASSES}
    return runs


def wrap_call(*entries: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """A flow of one mock call inside a stack."""
    flow = flow_of(MOCK, **arguments)
    flow["steps"]["a"]["middleware"] = list(entries)
    return flow


def run_call(*entries: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """Run such a flow; return the ``value`` or ``failure`` of its step."""
    return simulate_flow(harness(), wrap_call(*entries, **arguments), "abc")[0]


FAILS = {"failure": {"code": "Mine.Broken", "message": "it broke"}}


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_custom_call_provider() -> None:
    output, events = simulate_flow(harness(), flow_of(SHOUT, times=2), "ab")
    assert output == {"value": "ABAB", "metadata": {"letters": 4}}, "undeclared metadata is left out"
    start = next(ev.payload_of(event) for event in events if event.type == ev.RunStart.type)
    assert isinstance(start, ev.RunStart)
    assert start.environment.providers[SHOUT] == own.Shout.document
    output, _ = simulate_flow(harness(), flow_of(SHOUT, times=2), 7)
    assert output["failure"]["code"] == "Provider.Call.Shout.Voiceless"
    output, _ = simulate_flow(harness(), flow_of(SHOUT), "ab")
    assert output["failure"]["code"] == "System.ParameterValidationFailed"


async def test_a_plain_function_may_block_and_return_a_plain_result() -> None:
    output, _ = await played(harness(), flow_of("mwl:provider.call/acme/whisper/v1", times=1), "ABC")
    assert output["value"] == "abc"


@pytest.mark.parametrize("answer", [None, 7, {"value": 1}, {"type": "success", "value": object()}])
def test_an_invalid_answer_is_a_failure(answer: Any) -> None:
    assert failure_of_answer(answer).startswith("provider.malformed: ")


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ({"type": "success", "value": float("nan")}, "nan at /result/value"),
        ({"type": "success", "value": {"a/b": [None, 1.5, {"~": float("-inf")}]}}, "-inf at /result/value/a~1b/2/~0"),
        ({"type": "error", "code": "X", "details": (1, float("inf"))}, "inf at /result/details/1"),
    ],
)
def test_a_number_that_json_cannot_hold_is_refused_with_its_place(answer: dict[str, Any], place: str) -> None:
    assert failure_of_answer(answer) == f"provider.malformed: the answer of {SHOUT} is not JSON: {place}"


@pytest.mark.parametrize("kind", [list, dict])
def test_an_answer_that_nests_too_deep_is_a_failure(kind: type) -> None:
    deep: Any = kind()
    for _ in range(DEPTH_MAX + 1):
        deep = [deep] if kind is list else {"a": deep}
    failure = failure_of_answer({"type": "success", "value": deep})
    assert failure == f"provider.malformed: the provider's answer nests deeper than {DEPTH_MAX} levels"


def failure_of_answer(answer: Any) -> str:
    """Return code and message of the failure that a provider's answer causes."""

    class Answering:
        async def execute(self, request: Any) -> Any:
            return answer

    runs = harness()
    runs.providers[SHOUT] = Answering
    failure = simulate_flow(runs, flow_of(SHOUT, times=1), "ab")[0]["failure"]
    return f"{failure['code']}: {failure['message']}"


def test_a_worker_without_the_provider_fails_the_call() -> None:
    runs = harness()
    del runs.providers[SHOUT]
    output, _ = simulate_flow(runs, flow_of(SHOUT, times=1), "ab")
    assert output["failure"]["code"] == "provider.unknown"


def test_a_provider_that_takes_the_uri_of_the_mock_is_not_the_mock() -> None:
    """What the mock answers is carried out at once. Any other provider may wait, and must not be called twice."""
    dispatch = {"provider": MOCK, "with": {}, "input": None}
    assert Providers({}).is_for_mock(dispatch)
    assert not Providers({}).is_for_mock({**dispatch, "phase": "onEntry"})
    assert not Providers({SHOUT: own.Shout}).is_for_mock({**dispatch, "provider": SHOUT})
    assert not Providers({MOCK: own.Shout}).is_for_mock(dispatch)


# -- side-effects ------------------------------------------------------------------------------------------------------


def test_side_effects_do_not_change_values_or_failures() -> None:
    assert run_call({"provider": NOTIFY})["value"] == "abc"
    assert [(phase, input, type) for phase, input, type, _ in own.Notify.heard] == [
        ("onEntry", "abc", None),
        ("onSuccess", "abc", "success"),
        ("onAlways", "abc", "success"),
    ]
    assert len({key for *_, key in own.Notify.heard}) == 3
    assert run_call({"provider": NOTIFY}, **FAILS)["failure"]["code"] == "Mine.Broken"
    assert [(phase, type) for phase, _, type, _ in own.Notify.heard][1:] == [
        ("onFailure", "error"),
        ("onAlways", "error"),
    ]


@pytest.mark.parametrize("phase", ["onEntry", "onSuccess", "onAlways"])
def test_a_side_effect_that_fails_fails_its_phase(phase: str) -> None:
    failure = run_call({"provider": NOTIFY, phase: {"with": {"fail": True}}})["failure"]
    assert (failure["code"], failure["message"]) == ("Provider.Middleware.Notify.Failed", f"nobody heard {phase}")
    phases = ["onEntry"] if phase == "onEntry" else ["onEntry", "onSuccess", "onAlways"]
    assert [name for name, *_ in own.Notify.heard] == phases


def test_a_failing_action_supersedes_the_failure_in_flight() -> None:
    failure = run_call({"provider": NOTIFY, "onFailure": {"with": {"fail": True}}}, **FAILS)["failure"]
    assert failure["code"] == "Provider.Middleware.Notify.Failed"
    assert failure["previous"]["code"] == "Mine.Broken"


def test_an_action_that_is_gated_off_does_not_run() -> None:
    off = {"when": False}
    entry = {"provider": NOTIFY, "onEntry": off, "onSuccess": {**off, "value": "{{ 'shaped' }}"}, "onAlways": off}
    assert run_call(entry)["value"] == "shaped"
    assert own.Notify.heard == []


def test_parameters_of_a_phase_are_checked() -> None:
    failure = run_call({"provider": NOTIFY, "onEntry": {"with": {"fail": "{{ 'yes' }}"}}})["failure"]
    assert failure["code"] == "System.ParameterValidationFailed"
    assert own.Notify.heard == []


# -- transforms --------------------------------------------------------------------------------------------------------


def test_a_transform_changes_the_value_before_the_author_shapes_it() -> None:
    entry = {
        "provider": CIPHER,
        "onEntry": {"output": "{{ middleware.input + '-' }}"},
        "onSuccess": {"value": "{{ middleware.result.value + '!' + middleware.input }}"},
    }
    assert run_call(entry)["value"] == "-abc!abc", "cba- goes down, -abc comes up; the entry received abc"
    assert run_call({"provider": CIPHER}, value="xyz")["value"] == "zyx"


def test_a_transform_of_a_failure_chains_the_former_failure() -> None:
    failure = run_call({"provider": CIPHER, "onFailure": {"message": "{{ middleware.result.code }}"}}, **FAILS)[
        "failure"
    ]
    assert (failure["code"], failure["message"]) == ("Acme.Hidden", "Acme.Hidden")
    assert failure["previous"]["code"] == "Acme.Hidden"
    assert failure["previous"]["previous"]["code"] == "Mine.Broken"


def test_a_transform_of_a_failure_must_return_a_failure() -> None:
    failure = run_call({"provider": CIPHER}, failure={"code": "Mine.Nonsense"})["failure"]
    assert (failure["code"], failure["previous"]["code"]) == ("provider.malformed", "Mine.Nonsense")


def test_an_action_that_raises_fails_its_phase() -> None:
    failure = run_call({"provider": CIPHER}, value=7)["failure"]
    assert (failure["code"], "ValueError" in failure["message"]) == ("internal", True)


# -- controls ----------------------------------------------------------------------------------------------------------


def test_a_control_can_replace_the_call() -> None:
    entry = {
        "provider": CACHE,
        "onEntry": {"with": {"key": "k"}},
        "onSuccess": {"value": "{{ {'v': middleware.result.value, 'hit': middleware.metadata.hit} }}"},
    }
    output = run_call(entry, {"provider": NOTIFY}, **FAILS)
    assert output["value"] == {"v": "from the cache", "hit": True}
    assert own.Notify.heard == [], "nothing inside ran"


def test_a_control_that_passes_adds_its_declared_metadata() -> None:
    shown = "{{ {'hit': middleware.metadata.hit, 'members': size(middleware.metadata)} }}"
    entry = {"provider": CACHE, "onEntry": {"with": {"key": "other"}}, "onSuccess": {"value": shown}}
    assert run_call(entry)["value"] == {"hit": False, "members": 2}


def test_a_control_that_fails_is_never_established() -> None:
    outer = {"provider": NOTIFY}
    failure = run_call(outer, {"provider": CACHE, "onEntry": {"with": {"broken": True}}})["failure"]
    assert (failure["code"], failure["retryable"]) == ("Provider.Middleware.Cache.Failed", True)
    assert [phase for phase, *_ in own.Notify.heard] == ["onEntry", "onFailure", "onAlways"]


def test_a_control_substitutes_on_the_way_up() -> None:
    entry = {"provider": CACHE, "onSuccess": {"with": {"replace": 7}, "value": "{{ [middleware.result.value] }}"}}
    assert run_call(entry)["value"] == [7]
    entry = {"provider": CACHE, "onSuccess": {"with": {"fail": True}, "value": "unread"}}
    assert run_call(entry)["failure"]["code"] == "Provider.Middleware.Cache.Failed"
    entry = {"provider": CACHE, "onFailure": {"with": {"code": "Other.Code"}}}
    failure = run_call(entry, **FAILS)["failure"]
    assert (failure["code"], failure["previous"]["code"]) == ("Other.Code", "Mine.Broken")


def test_a_control_cannot_turn_a_failure_into_a_success() -> None:
    failure = run_call({"provider": CACHE, "onFailure": {"with": {"rescue": True}}}, **FAILS)["failure"]
    assert (failure["code"], failure["previous"]["code"]) == ("provider.malformed", "Mine.Broken")


def test_a_control_around_a_whole_flow_replaces_its_result() -> None:
    flow = {**wrap_call(), "middleware": [{"provider": CACHE, "onEntry": {"with": {"key": "k"}}}]}
    output, events = simulate_flow(harness(), flow)
    assert output == "from the cache"
    assert [event.path for event in events if event.type == ev.EffectCall.type] == [
        "main:mw0.onEntry",
        "main:mw0.onSuccess",
    ]


# -- in the log --------------------------------------------------------------------------------------------------------


def test_each_action_is_one_effect_in_a_node_of_its_own() -> None:
    _, events = simulate_flow(harness(), wrap_call({"provider": NOTIFY}))
    acted = [f"main/a:mw0.{phase}" for phase in ("onEntry", "onSuccess", "onAlways")]
    for type in (ev.EffectCall.type, ev.NodeEnter.type):
        assert [event.path for event in events if event.type == type and "mw0" in event.path] == acted


def test_actions_survive_a_crash_at_every_append() -> None:
    flow = wrap_call({"provider": NOTIFY}, {"provider": CIPHER})
    assert simulate_crashes(harness, flow, "abc", input="abc") > 20


def test_a_clean_up_runs_when_the_call_is_interrupted() -> None:
    bound = {"provider": TIMEOUT, "onEntry": {"with": {"duration": "PT1M"}}}
    output, _ = simulate_flow(harness(), wrap_call(bound, {"provider": NOTIFY}, delay="PT1H"), "abc")
    assert output["failure"]["code"] == "Provider.Middleware.Timeout.Exceeded"
    assert [(phase, type) for phase, _, type, _ in own.Notify.heard] == [
        ("onEntry", None),
        ("onAlways", "cancellation"),
    ]


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


def test_every_invalid_class_is_reported_with_its_setting() -> None:
    names = ["Shout", "Twin", "Reserved", "Mute", "NO_CLASS", "Structural", "Absent"]
    found, problems = find_custom([f"tests.support.own_providers:{name}" for name in names], by_entry_point=False)
    assert [one.uri for one in found] == [SHOUT]
    output = {problem.where.split(":")[1].partition(")")[0]: problem for problem in problems}
    assert sorted(output) == sorted(set(names) - {"Shout"})
    assert output["Twin"].code == "provider.doubled"
    assert output["Reserved"].code == "RESERVED_NAMESPACE"
    assert "execute" in output["Mute"].message
    assert "document" in output["NO_CLASS"].message
    assert output["Structural"].where.endswith("document.phases.onAlways.structural")
    assert "AttributeError" in output["Absent"].message


def test_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("shout", "tests.support.own_providers:Shout", GROUP)

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        return [point] if group == GROUP else []

    monkeypatch.setattr("callboard.runtime.worker.providers.entry_points", entry_points)
    found, problems = find_custom(["tests.support.own_providers:Shout"])
    assert (problems, [one.uri for one in found]) == ([], [SHOUT]), "named twice, it is one"
    assert find_custom([], by_entry_point=False) == ([], [])
