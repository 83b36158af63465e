"""Reviews: who may answer a question, what an answer has to bring, and how many people have to approve. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from callboard.languages.graph.coercion import UNFIT, coerce
from callboard.languages.graph.document import CONFIRMED, REJECTED
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.node_specs import node_type
from callboard.languages.graph.topology import GraphNode
from callboard.languages.language import Answered
from callboard.lib.json_types import JSON

CONTROLS = (
    "reviewers",
    "reviewer_roles",
    "consensus_required",
    "require_evidence",
    "scoring_system",
    "score_range",
    "passing_threshold",
    "timeout_action",
    "default_response",
)
"""The configurations that the conditions of a review consist of."""

NUMERIC, PASS_FAIL = "numeric_scale", "pass_fail"

PEOPLE_MIN = 2
"""How many people have to approve if a node wants a consensus and does not list its reviewers."""

_NAMES = ("id", "user_id", "name", "email")
"""The members by which a reviewer that is an object may be named."""


class Review(Struct, frozen=True):
    """The conditions of a review.

    Only ``reviewers`` may answer, and only people with one of the ``roles``; each of the two holds if it is not empty.
    ``approvals`` is how many people have to approve. ``score`` has the bounds of a score, and the least that passes.
    """

    reviewers: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    approvals: int = 1
    evidence: bool = False
    score: tuple[float, float, float] | None = None

    @property
    def names_people(self) -> bool:
        """Whether it matters who answers."""
        return bool(self.reviewers or self.roles) or self.approvals > 1

    def find_faults(self, answered: Answered, response: JSON) -> list[str]:
        """Return why an answer does not count, whatever it decides."""
        return [
            *self._faults_of_person(answered),
            *self._faults_of_evidence(response),
            *self._faults_of_score(response),
        ]

    def _faults_of_person(self, answered: Answered) -> list[str]:
        if not self.names_people:
            return []
        if not answered.by:
            return ["it does not say who answers; send `by` with it"]
        faults: list[str] = []
        listed = [name for name in self.reviewers if _is_one_of(answered.by, [name])]
        if self.reviewers and not listed:
            faults.append(f"{answered.by} is none of the reviewers ({', '.join(self.reviewers)})")
        elif listed and not answered.proven and all(_demands_proof(name) for name in listed):
            faults.append(f"nothing proves that this is {answered.by}; {_HTTP}")
        if self.roles and not set(self.roles) & set(answered.roles):
            faults.append(
                f"nothing proves that {answered.by} has the role {' or '.join(self.roles)}; {_HTTP} that has the role "
                "(`callboard keys add --role`)"
            )
        return faults

    def _faults_of_evidence(self, response: JSON) -> list[str]:
        if not self.evidence:
            return []
        if _is_blank(response.get("evidence") if isinstance(response, Mapping) else None):
            return ["evidence is missing; answer with an object that has the decision (`approved`) and `evidence`"]
        return []

    def _faults_of_score(self, response: JSON) -> list[str]:
        if self.score is None:
            return []
        least, most, _passing = self.score
        score = score_of(response)
        if score is None or not least <= score <= most:
            return [f"score is missing or not a number from {least:g} to {most:g}"]
        return []

    def label_by_score(self, response: JSON, label: str) -> str:
        """Return the label of an answer; a score that does not pass rejects."""
        if self.score is None:
            return label
        score = score_of(response)
        return label if score is not None and score >= self.score[2] else REJECTED


def _is_blank(evidence: JSON) -> bool:
    """Whether an evidence has neither a text nor a number."""
    match evidence:
        case str():
            return not evidence.strip()
        case list() | dict():
            return all(map(_is_blank, evidence.values() if isinstance(evidence, dict) else evidence))
        case _:
            return evidence is None or isinstance(evidence, bool)


def score_of(response: JSON) -> float | None:
    """Return the score in an answer: its member ``score``, or the number that it is."""
    given = response.get("score") if isinstance(response, Mapping) else response
    made = coerce(given, "number")
    return float(made) if made is not UNFIT and isinstance(made, int | float) and not isinstance(made, bool) else None


class VoteTally(Struct):
    """The votes of a review so far, the latest of each person."""

    review: Review
    votes: dict[str, dict[str, JSON]] = field(default_factory=dict[str, dict[str, JSON]])

    def take(self, answered: Answered, label: str) -> bool:
        """Count an answer; return whether the review is decided by it."""
        vote = {"by": answered.by, "roles": list(answered.roles), "ai_classification": label}
        self.votes[_person(answered.by or "")] = {**vote, "user_response": answered.user_response}
        return label != CONFIRMED or len(self.votes) >= self.review.approvals

    @property
    def missing(self) -> str:
        """Say who or how many still have to approve."""
        voted = [str(vote["by"]) for vote in self.votes.values()]
        waited = [name for name in self.review.reviewers if not any(_is_one_of(by, [name]) for by in voted)]
        count = f"{len(self.votes)} of {self.review.approvals} approvals"
        return f"{count}; waiting for {', '.join(waited)}" if waited else count


_PROVEN_BY = ("user:", "key:", "slack:")
"""The beginning of a recorded name that was authenticated."""


def _person(by: str) -> str:
    """Return the name of a person without the kind of its proof, so that ``ada`` and ``user:ada`` count once."""
    said = by.strip().casefold()
    return said.partition(":")[2] if said.startswith(_PROVEN_BY) else said


_HTTP = "name the question, and answer over HTTP with an API key or a token of the identity provider"


def _demands_proof(name: str) -> bool:
    """Whether a listed reviewer is an authenticated person: ``user:ada``, and not ``ada``."""
    return name.strip().casefold().startswith(("user:", "key:"))


def _is_one_of(by: str, names: Sequence[str]) -> bool:
    """Whether a person is listed: by the recorded name (``user:ada``), or without the kind of its proof (``ada``)."""
    said = (by.strip().casefold(), _person(by))
    return any(name.strip().casefold() in said for name in names)


# -- configurations ----------------------------------------------------------------------------------------------------


def review_of(node: GraphNode) -> tuple[Review, list[str]]:
    """Read the conditions of a node's review; return them with the problems of the configurations."""
    errors: list[str] = []
    reviewers = _names(node, "reviewers", errors)
    roles = _texts(node, "reviewer_roles", errors)
    consensus = _truth(node, "consensus_required")
    if consensus and node.setting("interaction_type") in ("input", "selection"):
        errors.append(
            "consensus_required counts approvals, and not equal inputs or selections; set interaction_type: approval "
            "or review"
        )
    approvals = (len(set(map(_person, reviewers))) or PEOPLE_MIN) if consensus else 1
    review = Review(reviewers, roles, approvals, _truth(node, "require_evidence"), _score(node, errors))
    if review != Review() and node.setting("timeout_action") == "default_response" and not _rejects(node):
        errors.append(
            "default_response would decide without the conditions of the review; set `approved: false` in it, or "
            "timeout_action: fail"
        )
    return review, errors


def _rejects(node: GraphNode) -> bool:
    """Whether the response that counts after the timeout rejects explicitly."""
    given = node.setting("default_response")
    return isinstance(given, Mapping) and coerce(given.get("approved"), "boolean") is False


def _configuration(node: GraphNode, name: str) -> JSON:
    """Return a configuration. The table's default applies to nodes that are written by the table."""
    given = node.configurations.get(name)
    own_words = node_type(node.type).instead
    return given if given is not None or any(word in node.configurations for word in own_words) else node.setting(name)


def _truth(node: GraphNode, name: str) -> bool:
    return coerce(_configuration(node, name), "boolean") is True


def _texts(node: GraphNode, name: str, errors: list[str]) -> tuple[str, ...]:
    given = _configuration(node, name)
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(one, str) and one.strip() for one in given):
        errors.append(f"{name} is not a list of texts")
        return ()
    return tuple(one.strip() for one in given)


def _names(node: GraphNode, name: str, errors: list[str]) -> tuple[str, ...]:
    """Return the names of people in a list of texts, or of objects that have one."""
    given = _configuration(node, name)
    listed = given if isinstance(given, list) else [] if given is None else [None]
    found = [one if isinstance(one, str) else _name_in(one) for one in listed]
    if not all(one.strip() for one in found):
        errors.append(f"{name} is not a list of names, or of objects with one of {', '.join(_NAMES)}")
        return ()
    return tuple(found)


def _name_in(reviewer: JSON) -> str:
    if not isinstance(reviewer, Mapping):
        return ""
    return next((text for name in _NAMES if (text := text_of(reviewer.get(name)).strip())), "")


def _score(node: GraphNode, errors: list[str]) -> tuple[float, float, float] | None:
    system = node.configurations.get("scoring_system")
    limits = [name for name in ("passing_threshold", "score_range") if name in node.configurations]
    if system not in (None, PASS_FAIL, NUMERIC):
        errors.append(f"scoring_system is {text_of(system)!r}, and only {PASS_FAIL} and {NUMERIC} are implemented")
    if system != NUMERIC:
        changed = [name for name in limits if node.spec is None or node.configurations[name] != _default(node, name)]
        if changed:
            errors.append(f"{' and '.join(changed)} hold only with scoring_system: {NUMERIC}")
        return None
    bounds = node.setting("score_range")
    found = bounds if isinstance(bounds, Mapping) else {}
    numbers = [
        coerce(one, "number") for one in (found.get("min", 1), found.get("max", 5), node.setting("passing_threshold"))
    ]
    if not all(isinstance(one, int | float) for one in numbers):
        errors.append("score_range is not {min, max} with numbers, or passing_threshold is not a number")
        return None
    least, most, passing = (float(one) for one in numbers)
    if not least <= passing <= most:
        errors.append(f"passing_threshold is {passing:g}, not from {least:g} to {most:g} (score_range)")
    return least, most, passing


def _default(node: GraphNode, name: str) -> JSON:
    assert node.spec is not None
    return node.spec.configurations[name].default if name in node.spec.configurations else None
