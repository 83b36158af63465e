"""Refusals: the parts of a request that a model, or its server, does not accept.

Servers with an API like a provider's do not accept everything that the provider does, and report this in different
ways. If an error names a parameter that may be omitted, it is omitted from all further turns of that model. If a schema
is refused, however the error words it, it is omitted from its own turn and asked for in words. Each costs one request.
"""

import re
from collections.abc import Collection, Mapping
from functools import cache

from callboard.actors.models.request_parts import ATTACHED, SIGNATURES
from callboard.actors.models.request_retries import TryFailed
from callboard.bus.model_names import TEMPERATURE
from callboard.lib.json_types import JSON

NEVER_TAKEN = frozenset({"unsupported_parameter", "unsupported_value"})
"""Codes of errors about parameters that a model accepts in no turn."""

_NEVER = re.compile(
    r"not (?:be )?(?:supported|permitted|allowed|recogni[sz]ed|available|implemented|compatible)"
    r"|un(?:supported|recogni[sz]ed|known|expected)|extra (?:input|field|parameter|argument)"
    r"|does(?: not|n't) (?:support|accept|allow|have)|may only be|no longer|deprecated|cannot find field",
    re.IGNORECASE,
)
"""Words of errors with this meaning."""

_TOGETHER = re.compile(r"\bboth\b|only one of|mutually exclusive|together", re.IGNORECASE)
"""Words of errors about parameters that exclude each other."""

_SCHEMA_WORDS = re.compile(
    r"schema|structured[ _]?outputs?|response[_ ]?format|output[_ ]?(?:config|format)|response[_ ]?mime[_ ]?type"
    r"|json[_ ]?mode|grammar|guided",
    re.IGNORECASE,
)
"""Words of errors about the schema of an answer, whatever the parameter's name is."""

_UNSIGNED = re.compile(r"missing (?:a |the )?`?thought[ _]?signature", re.IGNORECASE)
"""Words of errors about calls that lack their signature, such as those of another model before a fork."""

_REFUSED = "model.bad_request"
_MAY_REFUSE = frozenset({_REFUSED, "model.unknown", "model.bad_reply", "model.overloaded"})
"""Codes under which servers refuse a parameter by its name; any other code has another cause."""


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for a parameter's name in errors: as it is, or in the form of Google's JSON."""
    first, *rest = name.split("_")
    camel = first + "".join(word.capitalize() for word in rest)
    return re.compile(rf"(?<!\w)(?:{re.escape(name)}|{camel})(?!\w)")


class Refusals:
    """The parameters that are omitted from the requests to each model of one provider.

    ``dispensable`` are the parameters that may be omitted, ``schema`` is the one with the schema of an answer.
    ``attached`` finds errors about the attachments of earlier messages: they may belong to another conversation, such
    as that before a fork, and are then omitted from the turn. With ``by_model``, a model that never accepts them gets
    them in no further turn.
    """

    def __init__(
        self, dispensable: Collection[str], schema: str, attached: re.Pattern[str], *, by_model: bool = False
    ) -> None:
        self._dispensable = dispensable
        self._schema = schema
        self._attached = attached
        self._attached_by_model = by_model
        self._by_model: dict[str, set[str]] = {}

    def of(self, model: str) -> set[str]:
        """Return the parameters that a model refused."""
        return self._by_model.get(model, set())

    def process_refusal(self, model: str, failed: TryFailed, sent: Collection[str], without: set[str]) -> TryFailed:
        """Process the failure of a request with the parameters ``sent``; return it, or one that is tried again at once
        without the refused parameter. One that is refused in this turn only is added to ``without``."""
        if failed.failure.code not in _MAY_REFUSE:
            return failed
        details: Mapping[str, JSON] = failed.failure.details or {}
        words, place = failed.failure.message, str(details.get("param") or "")
        param = place.partition(".")[0]
        refused = self._find_parameter(param, words, [name for name in sent if name in self._dispensable])
        if failed.failure.code == _REFUSED and _UNSIGNED.search(words) and SIGNATURES not in without:
            without.add(SIGNATURES)
        elif not refused and self._refuses_attached(f"{place} {words}", failed, sent, without):
            never = self._attached_by_model and _NEVER.search(words)
            (self._by_model.setdefault(model, set()) if never else without).add(ATTACHED)
        elif refused and _TOGETHER.search(words):
            without.add(refused)
        elif refused and (details.get("error_code") in NEVER_TAKEN or _NEVER.search(words)):
            self._by_model.setdefault(model, set()).add(refused)
        elif self._schema in sent and (refused == self._schema or (not param and failed.failure.code == _REFUSED)):
            without.add(self._schema)
        else:
            return failed
        again = TryFailed(failed.failure, again=True, after_s=0.0)
        again.usage = failed.usage
        return again

    def _refuses_attached(self, words: str, failed: TryFailed, sent: Collection[str], without: Collection[str]) -> bool:
        may = ATTACHED in sent and ATTACHED not in without and failed.failure.code == _REFUSED
        return may and self._attached.search(words) is not None

    def _find_parameter(self, param: str, words: str, candidates: Collection[str]) -> str:
        """Return the parameter that an error is about, if it names one; empty otherwise."""
        if param in candidates:
            return param
        named = [name for name in candidates if not param and _pattern(name).search(words)]
        if named:
            # Of two parameters that exclude each other, the temperature is kept.
            return min(named, key=lambda name: (name == TEMPERATURE, -len(name)))
        return self._schema if self._schema in candidates and _SCHEMA_WORDS.search(param or words) else ""
