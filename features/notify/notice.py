"""Notices: the message of one rule about one event, in a form for programs and as text for people."""

import datetime as dt
from hashlib import sha256
from urllib.parse import quote

from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import Event, RunRejected
from callboard.bus.subjects import RunRef

ID_CHARS = 32

WORDS_MAX = 1_000
"""Limit of the characters of a question or an error in a notice."""

REASONS_MAX = 5
"""Limit of the reasons in a notice about a rejected start."""


class Error(Struct, frozen=True):
    """Why a run failed."""

    code: str
    message: str


class Notice(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A notice. ``id`` is the same in every attempt to send it.

    ``n`` is the number of the event, ``on`` the occasion in the rule, ``key`` the key of what is waiting. A rejected
    start of a ``schedule`` has no event: ``n`` is 0, and ``run`` the id that the run would have had.
    """

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
        """The whole text for people."""
        about = f"Run {self.run} of tenant {self.tenant}, event {self.n}"
        if self.schedule:
            about = f"Schedule {self.schedule} of tenant {self.tenant}, start {self.run}"
        lines = [self.text, "", about, self.link]
        return "\n".join(lines).rstrip()


def notice_id(rule: str, ref: RunRef, n: int) -> str:
    """Return the id of the notice of a rule about an event."""
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
    """Return a text, truncated if it is long."""
    return text if len(text) <= WORDS_MAX else f"{text[: WORDS_MAX - 1]}…"


def _page_of(http_url: str | None, ref: RunRef) -> str:
    if http_url is None:
        return ""
    return f"{http_url.rstrip('/')}/t/{quote(ref.tenant, safe='')}/runs/{quote(ref.run, safe='')}"
