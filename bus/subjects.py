"""Subjects: this module builds and parses every NATS subject of the runtime.

Subjects are for routing; they do not isolate tenants. Names from outside are encoded as tokens. The encoding is
reversible: ASCII letters, digits, ``-`` and ``_`` stay, every other byte of the UTF-8 form becomes ``=XX``; the empty
name is ``=``.
"""

import re
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

TOKEN_BYTES_MAX = 160
"""Longest token, in bytes; nats-server slows down on very long subjects."""

REMEMBERED_MAX = 1024
"""Number of subjects of runs in each cache."""

_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPE = re.compile(rb"=([0-9A-F]{2})")


NAME_SHOWN_CHARS_MAX = 80
"""Number of characters of a too long name that an error shows."""


class NameTooLong(ValueError):
    """A name is too long for a subject, so nothing with this name can exist."""


@lru_cache(maxsize=1024)
def token(name: str) -> str:
    """Encode any name as one subject token.

    :raises NameTooLong: if the encoded token would be longer than `TOKEN_BYTES_MAX` bytes
    """
    if not name:
        return "="
    encoded = _UNSAFE.sub(lambda match: b"=%02X" % match.group()[0], name.encode())
    if len(encoded) > TOKEN_BYTES_MAX:
        shown = f"{name[:NAME_SHOWN_CHARS_MAX]}…" if len(name) > NAME_SHOWN_CHARS_MAX else name
        raise NameTooLong(
            f"name too long for a subject token ({len(encoded)} bytes, at most {TOKEN_BYTES_MAX}): {shown}"
        )
    return encoded.decode()


def is_name(given: object) -> bool:
    """Return whether a value from outside is a name that fits into a subject."""
    try:
        return isinstance(given, str) and bool(token(given))
    except ValueError:
        return False


def name_of(subject_token: str) -> str:
    """Return the name that `token` encoded."""
    if "=" not in subject_token:
        return subject_token
    if subject_token == "=":
        return ""
    return _ESCAPE.sub(lambda match: bytes([int(match.group(1), 16)]), subject_token.encode()).decode()


class RunRef(NamedTuple):
    """A run: its tenant and its id, as names (not tokens)."""

    tenant: str
    run: str


class EventSubject(NamedTuple):
    """The parts of an event's subject, as names."""

    tenant: str
    run: str
    definition: str
    type: str

    @property
    def ref(self) -> RunRef:
        return RunRef(self.tenant, self.run)


class CommandSubject(NamedTuple):
    """The parts of a routed command's or alarm's subject, as names; an alarm's verb is ``alarm``."""

    partition: int
    tenant: str
    run: str
    verb: str

    @property
    def ref(self) -> RunRef:
        return RunRef(self.tenant, self.run)


class Subjects:
    """All subjects below one prefix."""

    def __init__(self, prefix: str = "cb") -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", prefix):
            raise ValueError(f"not a usable subject prefix: {prefix!r} (expected letters, digits, - and _, with dots)")
        self.prefix = prefix
        self._depth = prefix.count(".") + 1
        # Cached, because every append of a run needs both.
        self.run = lru_cache(maxsize=REMEMBERED_MAX)(self._run)
        self._events = lru_cache(maxsize=REMEMBERED_MAX)(self._events_of)

    def stored_subjects(self) -> list[str]:
        """Return all subjects that the stream stores."""
        families = (
            "run",
            "start",
            "tell",
            "cmd",
            "reject",
            "timer",
            "due",
            "blob",
            "def",
            "schedule",
            "clock",
            "tick",
            "gone",
            "cold",
            "forked",
        )
        return [f"{self.prefix}.{family}.>" for family in families]

    # the log

    def event(self, ref: RunRef, definition: str, event_type: str) -> str:
        return self._events(ref, definition) + event_type

    def _events_of(self, ref: RunRef, definition: str) -> str:
        return f"{self.prefix}.run.{token(ref.tenant)}.{token(ref.run)}.{token(definition)}."

    def _run(self, ref: RunRef) -> str:
        """Return the filter for all events of one run. Every guard of that run contains this string."""
        return f"{self.prefix}.run.{token(ref.tenant)}.{token(ref.run)}.>"

    def events(
        self, tenant: str | None = None, run: str | None = None, definition: str | None = None, event_type: str = ">"
    ) -> str:
        """Return a filter for events; None means any."""
        parts = (token(part) if part is not None else "*" for part in (tenant, run, definition))
        return f"{self.prefix}.run.{'.'.join(parts)}.{event_type}"

    def parse_event(self, subject: str) -> EventSubject:
        tenant, run, definition, event_type = subject.split(".", self._depth + 4)[self._depth + 1 :]
        return EventSubject(name_of(tenant), name_of(run), name_of(definition), event_type)

    # messages of clients

    def start(self, tenant: str) -> str:
        return f"{self.prefix}.start.{token(tenant)}"

    def tell(self, ref: RunRef, verb: str) -> str:
        return f"{self.prefix}.tell.{token(ref.tenant)}.{token(ref.run)}.{verb}"

    def told_subject(self, ref: RunRef, verb: str, id: str) -> str:
        """Return the subject on which the first command with an id is recorded. Admission does not read it."""
        return f"{self.tell(ref, verb)}.{sha256(id.encode()).hexdigest()[:32]}"

    def stop_subject(self, first: RunRef) -> str:
        """Return the subject of the mark that a chain of runs was stopped. Admission does not read it."""
        return f"{self.tell(first, 'stop')}.chain"

    def tells(self, ref: RunRef) -> str:
        """Return a filter for all published commands to one run."""
        return self.tell(ref, "*")

    def commands(self, partition: int, ref: RunRef) -> str:
        """Return a filter for all routed commands of one run."""
        return self.command(partition, ref, "*")

    def inbound(self) -> list[str]:
        """Return the filters that admission reads."""
        return [f"{self.prefix}.start.*", f"{self.prefix}.tell.*.*.*"]

    def parse_inbound(self, subject: str) -> tuple[str, str | None, str]:
        """Return tenant, run (None for a start) and verb (``start`` for a start)."""
        parts = subject.split(".")[self._depth :]
        if parts[0] == "start":
            return name_of(parts[1]), None, "start"
        return name_of(parts[1]), name_of(parts[2]), parts[3]

    def reject(self, tenant: str, message_id: str) -> str:
        return f"{self.prefix}.reject.{token(tenant)}.{token(message_id)}"

    def rejections(self, tenant: str | None = None) -> str:
        """A filter over all refusals; None means any tenant."""
        return f"{self.prefix}.reject.{token(tenant) if tenant is not None else '*'}.*"

    def tenant_of_rejection(self, subject: str) -> str | None:
        """Return the tenant of a refusal; None if this is the subject of something else."""
        family, tenant, *_ = subject.split(".")[self._depth :]
        try:
            return name_of(tenant) if family == "reject" else None
        except ValueError:
            return None

    # what workers read

    def command(self, partition: int, ref: RunRef, verb: str) -> str:
        return f"{self.prefix}.cmd.{partition}.{token(ref.tenant)}.{token(ref.run)}.{verb}"

    def due(self, partition: int, ref: RunRef) -> str:
        return f"{self.prefix}.due.{partition}.{token(ref.tenant)}.{token(ref.run)}"

    def partition(self, partition: int) -> list[str]:
        """Return the filters that the owner of a partition reads."""
        return [f"{self.prefix}.cmd.{partition}.>", f"{self.prefix}.due.{partition}.>"]

    def parse_command(self, subject: str) -> CommandSubject:
        """Parse the subject of a command or an alarm.

        :raises ValueError: if it is not the subject of a command or an alarm
        """
        family, partition, tenant, run, *verb = subject.split(".")[self._depth :]
        if len(verb) != (family == "cmd"):
            raise ValueError(f"not the subject of a command: {subject}")
        return CommandSubject(int(partition), name_of(tenant), name_of(run), verb[0] if verb else "alarm")

    # other messages of a run, and of none

    def timer(self, ref: RunRef) -> str:
        return f"{self.prefix}.timer.{token(ref.tenant)}.{token(ref.run)}"

    def blob(self, ref: RunRef, digest: str) -> str:
        return f"{self.prefix}.blob.{token(ref.tenant)}.{token(ref.run)}.{digest}"

    def gone_subject(self, ref: RunRef) -> str:
        """Return the subject of the mark that a run has been purged."""
        return f"{self.prefix}.gone.{token(ref.tenant)}.{token(ref.run)}"

    def parse_gone(self, subject: str) -> RunRef:
        """Return the purged run from the subject of its mark.

        :raises ValueError: if the subject contains no run
        """
        tenant, run = subject.split(".")[self._depth + 1 :]
        return RunRef(name_of(tenant), name_of(run))

    def forked_subject(self, ref: RunRef) -> str:
        """Return the subject of the notes that forks share a run's events."""
        return f"{self.prefix}.forked.{token(ref.tenant)}.{token(ref.run)}"

    def segment_mark(self, segment: str) -> str:
        """Return the subject of the mark of a segment of cold storage, ``<tenant>/<id>.segment``."""
        tenant, id = segment.split(".")[0].rsplit("/", 1)
        return f"{self.prefix}.cold.{tenant}.{id}"

    def segment_marks(self, tenant: str | None) -> str:
        """Return a filter for the marks of all segments of a tenant or, with None, of all tenants."""
        return f"{self.prefix}.cold.{token(tenant) if tenant is not None else '*'}.*"

    def parse_run_filter(self, filter: str) -> RunRef | None:
        """Return the run whose events, of all types, a filter matches; None if it matches others."""
        before, _, rest = filter.partition(f"{self.prefix}.run.")
        match rest.split("."):
            case [tenant, run, ">"] | [tenant, run, "*", ">"] if not before and "*" not in (tenant, run):
                return RunRef(name_of(tenant), name_of(run))
            case _:
                return None

    def all_gone(self, tenant: str) -> str:
        """Return a filter for the marks of all purged runs of a tenant."""
        return f"{self.prefix}.gone.{token(tenant)}.*"

    def marks(self) -> str:
        """Return a filter for the marks of all purged runs."""
        return f"{self.prefix}.gone.*.*"

    def belonging(self, ref: RunRef) -> list[str]:
        """Return filters for all messages of a run, except for its start message and the mark of its purge."""
        run = f"{token(ref.tenant)}.{token(ref.run)}"
        families = ("run.{}.>", "blob.{}.>", "tell.{}.>", "cmd.*.{}.*", "due.*.{}", "timer.{}", "reject.{}")
        return [f"{self.prefix}.{family.format(run)}" for family in (*families, "forked.{}")]

    def pointless(self, ref: RunRef) -> list[str]:
        """Return filters for the messages that are not needed after a run has ended: commands and alarms."""
        run = f"{token(ref.tenant)}.{token(ref.run)}"
        families = ("tell.{}.*", "cmd.*.{}.*", "due.*.{}", "timer.{}", "reject.{}")
        return [f"{self.prefix}.{family.format(run)}" for family in families]

    def definition(self, tenant: str, name: str) -> str:
        return f"{self.prefix}.def.{token(tenant)}.{token(name)}"

    # schedules

    def schedule(self, tenant: str, name: str) -> str:
        return f"{self.prefix}.schedule.{token(tenant)}.{token(name)}"

    def clock(self, tenant: str, name: str) -> str:
        """Return the subject of the timer that the server runs for a schedule."""
        return f"{self.prefix}.clock.{token(tenant)}.{token(name)}"

    def tick(self, tenant: str, name: str) -> str:
        """Return the subject on which the server publishes when a schedule is due."""
        return f"{self.prefix}.tick.{token(tenant)}.{token(name)}"

    def ticks(self) -> str:
        return f"{self.prefix}.tick.*.*"

    def parse_tick(self, subject: str) -> tuple[str, str]:
        """Return the tenant and the name of the schedule that is due."""
        tenant, name = subject.split(".")[self._depth + 1 :]
        return name_of(tenant), name_of(name)

    # the rest

    def live(self, ref: RunRef, definition: str | None, event_type: str) -> str:
        """Return the subject of live progress, which is not stored; with definition None, a filter for any."""
        name = token(definition) if definition is not None else "*"
        return f"{self.prefix}.live.{token(ref.tenant)}.{token(ref.run)}.{name}.{event_type}"

    def api(self, tenant: str, verb: str) -> str:
        return f"{self.prefix}.api.{token(tenant)}.{verb}"

    def beat(self) -> str:
        """Return the subject of the workers' heartbeats, which are not stored."""
        return f"{self.prefix}.worker.beat"

    def index(self, tenant: str) -> str:
        """Return the subject of requests to index new events of a tenant at once, which are not stored."""
        return f"{self.prefix}.index.{token(tenant)}"

    def worker(self, name: str, what: str) -> str:
        """Return the subject of messages to one worker, which are not stored."""
        return f"{self.prefix}.worker.{name}.{what}"


def partition_of(ref: RunRef, count: int) -> int:
    """Return the partition, below ``count``, of all commands of a run."""
    return crc32(f"{ref.tenant}/{ref.run}".encode()) % count
