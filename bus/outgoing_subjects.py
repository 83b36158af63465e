"""Outgoing subjects: the policy for subjects on which the runtime publishes or sends requests for a run or a message.

Such a subject comes from a definition, a start, a command, a header or a service's description. The runtime's account
may use every subject of the log, so the runtime checks the subject before it sends anything. `fault` checks the
subjects of a run's requests, `fault_of_reply` the reply subject of a message, which may also be an inbox.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

SUBJECT_BYTES_MAX = 1_000
"""Longest subject. The server ends a connection that exceeds its control line (4 KiB)."""

SHOWN_CHARS_MAX = 100
"""An error shows this much of a subject."""

EVERYONE = "*"
"""Key of the allow-list for all tenants that have no separate list."""

NOBODY = "none"
"""A pattern that permits nothing, as in similar settings."""

INBOX = "_INBOX"

Allowed = Mapping[str, Sequence[str]]
"""Patterns of subjects by tenant."""

_WORD = re.compile(r"[^\s.*>\x00-\x20\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]+")
_PATTERN_WORD = re.compile(r"\*|[^\s.*>\x00-\x20\x7f-\x9f]+")

_ANSWERS_OF_IMPORTS = "_R_"
"""First token of the subject on which a server receives the answer to a request from another account."""

_GATEWAY = "_GR_"
_GATEWAY_TOKENS = 3
"""A reply subject that came through a gateway is ``_GR_.<cluster>.<server>.<subject>``."""


class SubjectFault(Struct, frozen=True):
    """Why a subject is not used: it is not a valid subject, or runs may not use it."""

    kind: Literal["invalid", "refused"]
    reason: str


class Addressed(Struct, frozen=True):
    """A subject that a definition or a start contains, and the place where it does."""

    subject: str
    where: str


class OutgoingPolicy(Struct, frozen=True):
    """Which subjects runs may send requests to, and which reply subjects messages may have.

    ``prefix`` is the runtime's own, ``inbox_prefix`` that of its connection. ``allowed`` None permits every subject
    that is not reserved.
    """

    prefix: str
    inbox_prefix: str = INBOX
    allowed: Allowed | None = None

    def fault(self, tenant: str, subject: str, others: frozenset[str] = frozenset()) -> SubjectFault | None:
        """Return why a run of this tenant may not send a request to a subject, None if it may.

        ``others`` are prefixes of other runtimes.
        """
        if (fault := subject_fault(subject)) is not None:
            return fault
        if subject.startswith(("$", "_")):
            return SubjectFault("refused", "subjects that begin with $ or _ belong to the NATS server")
        if _below(subject, self.inbox_prefix):
            return SubjectFault("refused", f"subjects below {self.inbox_prefix} are inboxes of the runtime")
        return self._owned_fault(subject, others) or self._unlisted_fault(tenant, subject)

    def fault_of_reply(self, tenant: str, subject: str, others: frozenset[str] = frozenset()) -> SubjectFault | None:
        """Return why the answer to a message of this tenant may not be sent to a subject, None if it may."""
        if (fault := subject_fault(subject)) is not None:
            return fault
        if subject.startswith(f"{_GATEWAY}."):
            return self.fault_of_reply(tenant, ".".join(subject.split(".")[_GATEWAY_TOKENS:]), others)
        if subject.startswith("$"):
            return SubjectFault("refused", "subjects that begin with $ belong to the NATS server")
        if (fault := self._owned_fault(subject, others)) is not None or self.is_inbox(subject):
            return fault
        return self._unlisted_fault(tenant, subject)

    def is_inbox(self, subject: str) -> bool:
        """Return whether a subject is an inbox, on which a client waits for the answer to its request."""
        return subject.startswith((INBOX, f"{_ANSWERS_OF_IMPORTS}.")) or _below(subject, self.inbox_prefix)

    def _owned_fault(self, subject: str, others: frozenset[str]) -> SubjectFault | None:
        if _below(subject, self.prefix):
            return SubjectFault("refused", f"subjects below {self.prefix} belong to this runtime")
        if any(_below(subject, other) for other in others):
            return SubjectFault("refused", "the subject belongs to another Callboard runtime")
        return None

    def _unlisted_fault(self, tenant: str, subject: str) -> SubjectFault | None:
        if self.allowed is None:
            return None
        patterns = self.allowed.get(tenant, self.allowed.get(EVERYONE, ()))
        if any(matches(pattern, subject) for pattern in patterns):
            return None
        return SubjectFault(
            "refused", f"the setting tools_allow_nats does not permit it for tenant {tenant[:SHOWN_CHARS_MAX]}"
        )


def subject_fault(subject: str) -> SubjectFault | None:
    """Return why a text is not a subject that a message can be sent to, None if it is."""
    if not subject or not all(map(_WORD.fullmatch, subject.split("."))):
        return SubjectFault(
            "invalid", "expected words joined by dots, without wildcards, spaces and control characters"
        )
    try:
        size = len(subject.encode())
    except UnicodeEncodeError:
        return SubjectFault("invalid", "the subject is not valid Unicode")
    if size > SUBJECT_BYTES_MAX:
        return SubjectFault("invalid", f"the subject has {size} bytes, at most {SUBJECT_BYTES_MAX} are possible")
    return None


def matches(pattern: str, subject: str) -> bool:
    """Return whether a subject matches a pattern: ``*`` matches one word, a final ``>`` one or more."""
    if pattern == NOBODY:
        return False
    wanted, words = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(words) >= len(wanted) and _alike(wanted[:-1], words)
    return len(words) == len(wanted) and _alike(wanted, words)


def is_pattern(text: str) -> bool:
    """Return whether a text is a pattern of subjects."""
    *words, last = text.split(".")
    return all(map(_PATTERN_WORD.fullmatch, words)) and (last == ">" or _PATTERN_WORD.fullmatch(last) is not None)


def quote_subject(subject: str) -> str:
    """Return a subject as an error shows it, on one line."""
    return repr(subject if len(subject) <= SHOWN_CHARS_MAX else f"{subject[:SHOWN_CHARS_MAX]}…")


def _alike(wanted: Sequence[str], words: Sequence[str]) -> bool:
    return all(one in ("*", word) for one, word in zip(wanted, words, strict=False))


def _below(subject: str, prefix: str) -> bool:
    return f"{subject}.".startswith(f"{prefix}.")
