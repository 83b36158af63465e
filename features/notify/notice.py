"""A notice: what one rule has to say of one event, as programs read it and in words for people."""

import datetime as dt
from hashlib import sha256
from urllib.parse import quote

from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import Event, RunRejected
from callboard.bus.subjects import RunRef

ID_CHARS = 32

WORDS_MAX = 1_000
"""Characters of a question or an error that are told."""

REASONS_MAX = 5
"""Reasons that are told of a start that was rejected."""


class Error(Struct, frozen=True):
    """Why a run failed."""

    code: str
    message: str


class Notice(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is told. ``id`` is the same however often it is sent; ``n`` is the event that it is about, ``on`` which of
    the rule's occasions that is, ``key`` what has been waiting, as an answer names it. The start of a ``schedule`` that
    was rejected has no event: ``n`` is 0, and ``run`` the id that the run would have had."""

    id: str
    rule: str
    on: str
    tenant: str
    run: str
    definition: str
    n: int
    time: dt.datetime
    text: str
    error: Error | None = None
    key: str = ""
    link: str = ""
    schedule: str = ""

    @property
    def subject(self) -> str:
        """One line for people."""
        return self.text.partition("\n")[0]

    @property
    def letter(self) -> str:
        """All that people are told."""
        about = f"Run {self.run} of tenant {self.tenant}, event {self.n}"
        if self.schedule:
            about = f"Schedule {self.schedule} of tenant {self.tenant}, start {self.run}"
        lines = [self.text, "", about, self.link]
        return "\n".join(lines).rstrip()


def notice_id(rule: str, ref: RunRef, n: int) -> str:
    """The id of what a rule has to say of an event."""
    return sha256(f"{rule}\n{ref.tenant}\n{ref.run}\n{n}".encode()).hexdigest()[:ID_CHARS]


def made(
    rule: str,
    on: str,
    ref: RunRef,
    event: Event,
    text: str,
    *,
    failure: Failure | None = None,
    key: str = "",
    http_url: str | None = None,
) -> Notice:
    """Make the notice of an event."""
    return Notice(
        id=notice_id(rule, ref, event.n),
        rule=rule,
        on=on,
        tenant=ref.tenant,
        run=ref.run,
        definition=event.definition,
        n=event.n,
        time=event.time,
        text=text,
        error=Error(failure.code, short(failure.message)) if failure is not None else None,
        key=key,
        link=_page_of(http_url, ref),
    )


def of_rejection(rule: str, tenant: str, refused: RunRejected, sequence: int, time: dt.datetime) -> Notice:
    """Make the notice of the refusal of a scheduled start, which is stored at a sequence and a time."""
    run, problems = refused.id or str(sequence), refused.problems
    reasons = "\n".join(short(f"{one.code}: {one.message}") for one in problems[:REASONS_MAX])
    more = f"\nand {len(problems) - REASONS_MAX} more problems" if len(problems) > REASONS_MAX else ""
    return Notice(
        # The start of one id may be refused more than once.
        id=notice_id(rule, RunRef(tenant, run), -sequence),
        rule=rule,
        on="rejected",
        tenant=tenant,
        run=run,
        definition="",
        n=0,
        time=time,
        text=f"schedule {refused.schedule}: the start of {run} was rejected: {reasons}{more}",
        error=Error(problems[0].code, short(problems[0].message)) if problems else None,
        schedule=refused.schedule,
    )


def short(text: str) -> str:
    """A text as it is told, with its end left out if it is long."""
    return text if len(text) <= WORDS_MAX else f"{text[: WORDS_MAX - 1]}…"


def _page_of(http_url: str | None, ref: RunRef) -> str:
    if http_url is None:
        return ""
    return f"{http_url.rstrip('/')}/t/{quote(ref.tenant, safe='')}/runs/{quote(ref.run, safe='')}"
