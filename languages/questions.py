"""Single questions to a model: which way to go, is this good enough, what went wrong. Pure; it uses `Node.turn`."""

import re

from msgspec import Struct
from msgspec.structs import replace

from callboard.bus.effects import Choice, Failure, ModelReply, ModelRequest
from callboard.languages.language import Failed, Node, Ok
from callboard.languages.patience import patient_turn

JUDGE_TRIES_MAX = 2
"""How often a judge is asked if its answers cannot be parsed."""

_VERDICT = re.compile(r"VERDICT\s*:\s*[\"'*`<\[]*([^\s\"'*`.,;>\]]+)", re.IGNORECASE)
_REASONING = re.compile(r"REASONING\s*:\s*(.*)\Z", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"[\"'*`<]*([^\s\"'*`]+?)[\"'*`.,;!>]*\Z")


async def choose(node: Node, slot: str, request: ModelRequest, choices: list[Choice]) -> Ok[str | None] | Failed:
    """Put choices to a model; return the chosen id, or None if the answer names none."""
    _slot, outcome = await patient_turn(node, slot, replace(request, purpose="route", choices=choices))
    if isinstance(outcome, Failed):
        return outcome
    return Ok(find_choice(outcome.value, [choice.id for choice in choices]))


def find_choice(reply: ModelReply, ids: list[str]) -> str | None:
    """Return the choice that a reply names: the id that is the whole reply, or the only id that occurs as a word.

    An id inside another one that occurs does not count, such as ``order`` in ``new order``. If no id occurs exactly,
    upper and lower case are ignored, so ``Ship`` matches ``ship``.
    """
    answer = _answer(reply).strip()
    bare = answer.strip("\"'`*.")
    for candidate in (answer, bare):
        if candidate in ids:
            return candidate
    named = _outermost(_find_ids(answer, ids)) or _outermost(_find_ids(answer, ids, re.IGNORECASE))
    return next(iter(named)) if len(named) == 1 else None


def _find_ids(answer: str, ids: list[str], flags: int = 0) -> dict[str, list[tuple[int, int]]]:
    """Return the ids that occur in an answer as words, with their spans."""
    found = {
        id: [match.span() for match in re.finditer(rf"(?<![\w-]){re.escape(id)}(?![\w-])", answer, flags)]
        for id in ids
        if id
    }
    return {id: places for id, places in found.items() if places}


def _outermost(named: dict[str, list[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
    """Return the ids that occur at least once outside all other ids."""
    spans = [span for places in named.values() for span in places]
    return {
        id: places
        for id, places in named.items()
        if any(not any(_within(place, span) for span in spans) for place in places)
    }


def _within(place: tuple[int, int], span: tuple[int, int]) -> bool:
    return place != span and span[0] <= place[0] and place[1] <= span[1]


def _answer(reply: ModelReply) -> str:
    match reply.data:
        case str(text):
            return text
        case {"choice": str(text)} | {"id": str(text)}:
            return text
        case _:
            return reply.text


class Judgement(Struct, frozen=True):
    """A judge's verdict and its reasons. ``word`` is None if no answer could be parsed; ``failure`` is that of the last
    turn, if it failed."""

    word: str | None
    reasoning: str = ""
    failure: Failure | None = None


async def judge(
    node: Node, slot: str, request: ModelRequest, evaluator: str, first: int = 1, *, passing: str | None = None
) -> Judgement:
    """Ask a judge for a verdict, up to `JUDGE_TRIES_MAX` times, in the slots ``<slot>.<k>`` with k from ``first``.

    With ``passing``, the verdict with which the work passes, only that and words count; signs such as ``???`` do not.
    """
    request = replace(request, purpose="judge", evaluator=evaluator)
    verdict = Judgement(None)
    for k in range(first, first + JUDGE_TRIES_MAX):
        _slot, outcome = await patient_turn(node, f"{slot}.{k}", request)
        match outcome:
            case Ok(reply):
                verdict = read_verdict(reply)
                if passing is not None and verdict.word is not None and not _is_verdict(verdict.word, passing):
                    verdict = Judgement(None)
            case Failed(error):
                verdict = replace(verdict, failure=error)
        if verdict.word is not None:
            return verdict
    return verdict


def _is_verdict(word: str, passing: str) -> bool:
    return word.casefold() == passing.casefold() or any(character.isalnum() for character in word)


def read_verdict(reply: ModelReply) -> Judgement:
    """Parse ``VERDICT: <word>`` and ``REASONING: <text>``, an object with these members, or a word on its own line."""
    match reply.data:
        case {"verdict": str(word), **rest}:
            return Judgement(word, str(rest.get("reasoning", "")))
        case str(word) if word:
            return Judgement(word)
        case _:
            text = reply.text.strip()
    reasoning = _REASONING.search(text)
    if verdict := _VERDICT.search(text):
        return Judgement(verdict[1], reasoning[1].strip() if reasoning else "")
    first_line, _newline, rest = text.partition("\n")
    if word := _WORD.match(first_line.strip()):
        return Judgement(word[1], rest.strip())
    return Judgement(None)


async def ask(node: Node, slot: str, request: ModelRequest) -> Ok[str] | Failed:
    """Ask for a text and return it without surrounding white space; it may be empty."""
    _slot, outcome = await patient_turn(node, slot, request)
    match outcome:
        case Ok(reply):
            return Ok(reply.text.strip())
        case Failed() as failed:
            return failed
