"""Reviews: reviewers and their roles, consensus, evidence, and scores."""

from typing import Any

import pytest

from tests.support.graphs import Performance, graph, node, parsed, perform, perform_node, step, webhook

ASK = "h#1.1!ask"

PORTS = ("confirmed", "rejected", "unrelated", "timeout")


def review_node(**configurations: Any) -> dict[str, Any]:
    return node("h", "HUMAN_IN_THE_LOOP", "MANUAL_REVIEW", interaction_type="review", message="Pay?", **configurations)


def review(*answers: dict[str, Any], **configurations: Any) -> Performance:
    """Perform a run with a review and answers to it; after the last one the question may still be open."""
    own = review_node(**configurations)
    written = graph([webhook(), own, *map(step, PORTS)], "t -> h", *(f"h.{port} -> {port}" for port in PORTS))
    commands = [("answer", {"interaction": ASK, **one}) for one in answers]
    return perform(written, {"body": {}}, commands=commands)


def by(name: str | None, response: Any = "approve", **more: Any) -> dict[str, Any]:
    return {"user_response": response, **({"by": name} if name else {}), **more}


def find_decision(done: Performance) -> tuple[int, str]:
    [closed] = done.of_type("human.closed")
    return closed.k, closed.label


def find_refusals(done: Performance) -> list[str]:
    return [one.reason for one in done.of_type("node.warning") if one.code == "human.not_understood"]


def test_a_consensus_needs_the_approval_of_every_reviewer() -> None:
    answers = [by("ada"), by("ada"), by("eve"), by("bob", {"approved": True, "comment": "fine"})]
    done = review(*answers, reviewers=["ada", "bob"], consensus_required=True)
    assert find_decision(done) == (4, "confirmed")
    assert done.sequence == ["t", "h", "confirmed"]
    [refused] = find_refusals(done)
    assert "eve is none of the reviewers (ada, bob)" in refused
    counted = [one.message for one in done.of_type("node.progress")]
    assert counted == [f"answer {k} of ada counts: 1 of 2 approvals; waiting for bob" for k in (1, 2)]
    assert [one["by"] for one in done.out("h")["reviews"]] == ["ada", "bob"]
    assert done.out("h")["comment"] == "fine"


def test_a_consensus_without_listed_reviewers_needs_two_people() -> None:
    done = review(by(None), by("ada"), by("user:ada"), by("Bob"), consensus_required=True)
    assert find_decision(done) == (4, "confirmed")
    [refused] = find_refusals(done)
    assert "send `by` with it" in refused


def test_a_review_is_rejected_by_default_after_the_timeout() -> None:
    default = {"timeout_action": "default_response", "default_response": {"approved": False}, "timeout_seconds": 60}
    done = review(by("ada"), reviewers=["ada", "bob"], consensus_required=True, **default)
    assert done.sequence == ["t", "h", "rejected"]


@pytest.mark.parametrize("subtype", ["IN_APP_APPROVAL", "SLACK_INTERACTION", "FORM_SUBMISSION"])
def test_reviewers_and_evidence_hold_for_every_node_that_asks_a_person(subtype: str) -> None:
    own = {"interaction_type": "approval", "channel_type": "app", "message": "Pay?", "reviewers": ["ada", "bob"]}
    person = node("h", "HUMAN_IN_THE_LOOP", subtype, consensus_required=True, require_evidence=True, **own)
    given = {"approved": True, "evidence": "x"}
    commands = [
        ("answer", {"interaction": ASK, **by(*one)}) for one in (("ada", given), ("eve", given), ("bob", given))
    ]
    done = perform(graph([webhook(), person], "t -> h"), {"body": {}}, commands=commands)
    assert find_decision(done) == (3, "confirmed")
    assert done.of_type("human.asked")[0].schema["required"] == ["action", "evidence"]


@pytest.mark.parametrize("type", ["selection", "input"])
def test_a_consensus_about_a_selection_or_an_input_is_refused(type: str) -> None:
    own: dict[str, Any] = {"selection_options": ["a", "b"], "input_fields": [{"name": "x"}], "interaction_type": type}
    person = node("h", "HUMAN_IN_THE_LOOP", "MANUAL_REVIEW", message="Pay?", consensus_required=True, **own)
    done = perform_node(person)
    assert "consensus_required counts approvals" in str(done.of_type("node.exit"))
    assert done.of_type("human.asked") == []


def test_one_rejection_decides_a_consensus() -> None:
    done = review(by("ada"), by("bob", "reject"), reviewers=["ada", "bob", "cyd"], consensus_required=True)
    assert find_decision(done) == (2, "rejected")


def test_a_later_answer_of_a_reviewer_replaces_the_earlier_one() -> None:
    done = review(by("ada"), by("ada", "reject"), reviewers=["ada", "bob"], consensus_required=True)
    assert find_decision(done) == (2, "rejected")


def test_only_the_listed_reviewers_may_answer() -> None:
    listed = [{"id": "user:ada"}, {"name": "Bob", "email": "bob@example.com"}]
    done = review(by(None), by("eve"), by("ada"), by("user:ada"), by("user:bob"), reviewers=listed)
    assert find_decision(done) == (5, "confirmed")
    assert len(find_refusals(done)) == 4
    assert "nothing proves that this is user:ada" in find_refusals(done)[-1]


def test_an_answer_without_a_proven_role_is_refused_with_the_remedy() -> None:
    done = review(by("cfo"), by("user:ada"), reviewer_roles=["cfo"], timeout_seconds=60, timeout_action="continue")
    assert find_decision(done)[1] == "timeout"
    for reason in find_refusals(done):
        assert "has the role cfo" in reason
        assert "callboard keys add --role" in reason


NO_EVIDENCE = [None, "  ", [], [" "], {"url": ""}, [{"url": None}], True]


@pytest.mark.parametrize(
    "answer", ["approve", True, {"approved": True}, *({"approved": True, "evidence": one} for one in NO_EVIDENCE)]
)
def test_an_answer_without_the_required_evidence_does_not_count(answer: Any) -> None:
    done = review(by("ada", answer), by("ada", {"approved": True, "evidence": "report 7"}), require_evidence=True)
    assert find_decision(done) == (2, "confirmed")
    assert "evidence is missing" in find_refusals(done)[0]
    assert done.out("h")["evidence"] == "report 7"


def test_evidence_does_not_decide() -> None:
    done = review(
        by("ada", {"evidence": "approve"}), by("ada", {"action": "reject", "evidence": "x"}), require_evidence=True
    )
    assert find_decision(done) == (2, "rejected")
    assert done.of_type("model.call") == []


def test_a_question_has_its_reviewers_and_required_evidence() -> None:
    done = review(reviewers=["ada"], consensus_required=True, require_evidence=True, timeout_action="continue")
    [asked] = done.of_type("human.asked")
    assert asked.request_data["reviewers"] == ["ada"]
    assert asked.request_data["approvals"] == 1
    assert asked.schema["required"] == ["action", "evidence"]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"score": 3}, "confirmed"),
        ({"score": 2.5}, "rejected"),
        (4, "confirmed"),
        ({"approved": True, "score": 1}, "rejected"),
    ],
)
def test_a_score_below_the_threshold_rejects(response: Any, expected: str) -> None:
    done = review(by("ada", "approve"), by("ada", {"score": 9}), by("ada", response), scoring_system="numeric_scale")
    assert find_decision(done) == (3, expected)
    assert all("a number from 1 to 5" in reason for reason in find_refusals(done))


@pytest.mark.parametrize(
    ("configurations", "reason"),
    [
        ({"scoring_system": "letter_grade"}, "only pass_fail and numeric_scale are implemented"),
        ({"passing_threshold": 4}, "passing_threshold hold only with scoring_system: numeric_scale"),
        ({"scoring_system": "numeric_scale", "passing_threshold": 40}, "not from 1 to 5"),
        ({"reviewers": [7]}, "reviewers is not a list of names"),
        ({"reviewer_roles": [7]}, "reviewer_roles is not a list of texts"),
        ({"reviewers": ["ada"], "timeout_action": "default_response"}, "default_response would decide"),
    ],
)
def test_a_review_that_cannot_be_enforced_is_refused_at_the_start(configurations: dict[str, Any], reason: str) -> None:
    own = review_node(**configurations)
    [problem] = parsed(graph([own], triggers=[])).objections
    assert (problem.code, problem.severity, problem.where) == ("BAD_CONFIGURATION", "error", "nodes[0].configurations")
    assert reason in problem.message


def test_a_review_whose_templates_have_invalid_values_fails_before_it_asks() -> None:
    done = perform_node(review_node(reviewers=["{{ $json.x }}"]), {})
    assert done.record("h")["error"]["error_code"] == "invalid_configuration"
    assert done.of_type("human.asked") == []


def test_a_review_type_requires_evidence_by_default() -> None:
    table = {"review_type": "legal_review", "review_title": "Pay?", "review_description": "Pay?", "review_criteria": []}
    own = node("h", "HUMAN_IN_THE_LOOP", "MANUAL_REVIEW", reviewers=["ada"], **table)
    commands = [
        ("answer", {"interaction": ASK, **by("ada", one)}) for one in ("approve", {"approved": True, "evidence": "x"})
    ]
    done = perform(graph([webhook(), own], "t -> h"), {"body": {}}, commands=commands)
    assert find_decision(done) == (2, "confirmed")
