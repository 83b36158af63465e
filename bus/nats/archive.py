"""Archives: runs in one compressed file, each stored as its messages, with digests that readers check.

The file is a ZIP. ``runs/<token>`` contains a run: for each message a line of JSON (`_Head`), the body, and a line
break. ``manifest.json`` (`Manifest`) comes last and contains the sha256 of each run; the ZIP's comment is the sha256 of
the manifest. A reader therefore detects a truncated or modified file before it uses anything of a run.
"""

import datetime as dt
import re
import secrets
import zipfile
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from callboard.bus.errors import CallboardError, OperatorError
from callboard.bus.log.forks import with_origin
from callboard.bus.log.recorded import Recorded, decode_recorded, within
from callboard.bus.nats.blobs import COUNT
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.stored_messages import Copied
from callboard.bus.subjects import RunRef, Subjects, token
from callboard.lib.json_errors import JSON_ERRORS

VERSION = 1
"""Version of the format. A reader accepts this version and older ones."""

MANIFEST = "manifest.json"

MANIFEST_BYTES_MAX = 128 * 1024 * 1024
MANIFEST_BYTES_SURE = 1024 * 1024
MANIFEST_RATIO_MAX = 50
"""How much larger than its compressed form a manifest may be. Each entry has a digest, which does not compress, so a
real manifest is about a dozen times as large as its compressed form."""

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 64 * 1024 * 1024
"""Maximum length of the line and of the body of a message. No server accepts a larger message."""

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError, OSError)
"""The errors that reading a damaged ZIP can raise."""


class ArchiveInvalid(OperatorError):
    """A file is not an archive, is truncated, or was changed after it was written."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__("archive.invalid", message, str(path), "`callboard archive` writes one; copy it again.")


class ArchiveLacks(CallboardError):
    """An archive does not contain the requested run."""

    def __init__(self, path: Path, message: str, remedy: str = "") -> None:
        super().__init__("archive.run", message, str(path), remedy)


class ArchivedRun(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The manifest's entry for a run. ``status`` is the run's final status, empty if it was open when it was archived.

    ``parent`` is the run that started it, ``origin`` the run that it is a fork of. ``children`` are the runs that it
    started and ``successor`` is the run that continues it, whether they are in the archive or not.
    """

    tenant: str
    run: str
    definition: str
    accepted_at: dt.datetime
    status: str = ""
    events: int
    messages: int
    parent: str = ""
    origin: str = ""
    children: list[str] = []
    successor: str = ""
    sha256: str

    @property
    def ref(self) -> RunRef:
        return RunRef(self.tenant, self.run)


class Manifest(Struct, frozen=True, kw_only=True):
    """The last member of an archive; ``callboard`` is the version of the format."""

    callboard: int
    made_at: dt.datetime
    prefix: str
    runs: list[ArchivedRun]


class _Head(Struct, frozen=True, omit_defaults=True):
    sequence: int
    subject: str
    time: dt.datetime
    bytes: int
    headers: Mapping[str, str] = {}


_head = msgspec.json.Decoder(_Head).decode


def member_of(run: str) -> str:
    """Return the name of a run's member in an archive."""
    return f"runs/{token(run)}"


def frame(message: Copied) -> bytes:
    """Return a message as archives and segments contain it: a line of JSON, the body, and a line break."""
    head = _Head(message.sequence, message.subject, message.time, len(message.data), message.headers)
    return b"%b\n%b\n" % (msgspec.json.encode(head), message.data)


def unframe(data: bytes) -> list[Copied]:
    """Return the messages of which ``data`` consists.

    :raises ValueError: if it does not consist of whole messages
    """
    found: list[Copied] = []
    at = 0
    while at < len(data):
        line = data.index(b"\n", at)
        head = _head(data[at:line])
        at = line + 1 + head.bytes + 1
        if at > len(data):
            raise ValueError("the last message is cut off")
        found.append(Copied(head.sequence, head.subject, head.time, head.headers, data[line + 1 : at - 1]))
    return found


class Member:
    """The member of an archive that a run is being written to."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = sha256()
        self.messages = 0

    def add(self, message: Copied) -> None:
        framed = frame(message)
        self._digest.update(framed)
        self._file.write(framed)
        self.messages += 1

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class ArchiveWriter:
    """Writes an archive. ``path`` is replaced once the archive is complete; if writing fails, it is left unchanged."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path = path
        self._aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        self._prefix = prefix
        self.runs: list[ArchivedRun] = []

    def __enter__(self) -> "ArchiveWriter":
        """Create the file.

        :raises OSError: if it cannot be written
        """
        self._zip = zipfile.ZipFile(self._aside, "w", zipfile.ZIP_DEFLATED)
        return self

    @contextmanager
    def member(self, run: str) -> Generator[Member]:
        """Add a run. The caller appends the run's manifest entry to `runs`."""
        with self._zip.open(member_of(run), "w", force_zip64=True) as file:
            yield Member(file)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                made_at = dt.datetime.now(dt.UTC)
                manifest = Manifest(callboard=VERSION, made_at=made_at, prefix=self._prefix, runs=self.runs)
                data = msgspec.json.encode(manifest)
                self._zip.writestr(MANIFEST, data)
                self._zip.comment = sha256(data).hexdigest().encode()
            self._zip.close()
            if error is None:
                self._aside.replace(self._path)
        finally:
            self._aside.unlink(missing_ok=True)


class Archive:
    """An archive that is open for reading, run by run."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        :raises ArchiveInvalid: if it is not an archive, or its manifest does not match its digest
        """
        self.path = path
        try:
            with zipfile.ZipFile(path) as file:
                comment = file.comment
                _check_manifest_size(path, file.getinfo(MANIFEST))
                with file.open(MANIFEST) as member:
                    data = member.read(MANIFEST_BYTES_MAX)
        except _DAMAGE as error:
            unread = isinstance(error, OSError) and bool(error.strerror)
            what = "the file cannot be read" if unread else "this is not an archive, or it is truncated"
            raise ArchiveInvalid(path, f"{what}: {_why(error)}") from error
        if sha256(data).hexdigest().encode() != comment:
            raise ArchiveInvalid(path, "its manifest was changed after it was written: the digest differs")
        self.manifest = _manifest(path, data)
        self._runs = {one.run: one for one in self.manifest.runs}
        self._subjects = Subjects(self.manifest.prefix)

    @property
    def runs(self) -> list[ArchivedRun]:
        return self.manifest.runs

    def run(self, name: str | None) -> ArchivedRun:
        """Return a run's entry. Without a name, return the only run that is not a child or an origin of another here.

        :raises ArchiveLacks: if the archive does not contain the run, or no name is given and there are several
        """
        if name is not None:
            if name not in self._runs:
                raise ArchiveLacks(self.path, f"run {name!r} is not in this archive")
            return self._runs[name]
        origins = {one.origin for one in self.runs}
        roots = [one for one in self.runs if one.parent not in self._runs and one.run not in origins]
        if len(roots) == 1:
            return roots[0]
        few = ", ".join(one.run for one in roots[:5])
        more = f" and {len(roots) - 5} more" if len(roots) > 5 else ""
        message = f"it has {len(roots)} runs: {few}{more}" if roots else "it has no runs"
        raise ArchiveLacks(self.path, message, f"Name one: {self.path}#RUN.")

    def has(self, name: str) -> bool:
        """Return whether the archive contains a run."""
        return name in self._runs

    def with_origins(self, runs: Sequence[ArchivedRun]) -> list[ArchivedRun]:
        """Return runs and their origins, as far as the archive contains them; each fork comes after its origin."""
        found: dict[str, ArchivedRun] = {}
        for run in runs:
            line = {run.run: run}
            while (origin := run.origin) in self._runs and origin not in line:
                run = line[origin] = self._runs[origin]
            found.update((name, one) for name, one in reversed(line.items()) if name not in found)
        return list(found.values())

    def verify(self, run: ArchivedRun) -> None:
        """Read a run completely and check its digest.

        :raises ArchiveInvalid: if the run is damaged or was changed
        """
        for _ in self.messages(run):
            pass

    def messages(self, run: ArchivedRun) -> Iterator[Copied]:
        """Yield the messages of a run: its large values, then its events.

        :raises ArchiveInvalid: after the last message at the latest, if the run is damaged or was changed
        """
        digest, count = sha256(), 0
        try:
            with zipfile.ZipFile(self.path) as file, file.open(member_of(run.run)) as member:
                while line := member.readline(HEAD_BYTES_MAX):
                    head = _head(line)
                    body = member.read(min(head.bytes, BODY_BYTES_MAX) + 1)
                    digest.update(line)
                    digest.update(body)
                    count += 1
                    self._check_subject(run, head.subject, count)
                    yield Copied(head.sequence, head.subject, head.time, head.headers, body[:-1])
        except (*_DAMAGE, *JSON_ERRORS) as error:
            raise ArchiveInvalid(self.path, f"run {run.run} is damaged: {_why(error)}") from error
        if digest.hexdigest() != run.sha256 or count != run.messages:
            raise ArchiveInvalid(self.path, f"run {run.run} was changed after it was written: its digest differs")

    def _check_subject(self, run: ArchivedRun, subject: str, place: int) -> None:
        """Refuse a message that does not belong to a run: it would be stored where no purge of the run removes it."""
        prefix, name = self._subjects.prefix, f"{token(run.tenant)}.{token(run.run)}"
        event, value = (rf"{re.escape(f'{prefix}.{family}.{name}')}\." for family in ("run", "blob"))
        if re.fullmatch(rf"{event}[^.*>\s]+\.[a-z.]+|{value}[0-9a-f]+\.\d+", subject) is None:
            what = f"message {place} of run {run.run} is neither an event nor a large value of the run: {subject}"
            raise ArchiveInvalid(self.path, what)

    def is_event(self, message: Copied) -> bool:
        """Return whether a message is an event of a run, as opposed to a piece of a large value."""
        return message.subject.startswith(f"{self._subjects.prefix}.run.")

    def definition_of(self, message: Copied) -> str:
        """Return the definition's name from the subject of an event."""
        return self._subjects.parse_event(message.subject).definition

    def decode_copied(self, run: ArchivedRun, one: Copied) -> Recorded:
        """Decode a message as an event of a run."""
        return decode_recorded(one.subject, one.sequence, run.ref, one.headers.get(MARK, ""), one.data)


class ArchivedLog:
    """The `callboard.bus.log.port.LogReader` of an archive. It keeps the messages of one run at a time in memory."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._at_hand: tuple[RunRef, list[Recorded], dict[str, list[Copied]]] | None = None

    async def last(self, ref: RunRef) -> Recorded | None:
        return next(reversed(self._of(ref)[0]), None)

    async def read(
        self, ref: RunRef, after: int = 0, limit: int | None = None, bytes_max: int | None = None
    ) -> list[Recorded]:
        own = within([one for one in self._of(ref)[0] if one.sequence > after][:limit], bytes_max)
        return await with_origin(self, ref, own, after, limit, bytes_max)

    async def get_blob(self, ref: RunRef, digest: str) -> bytes:
        pieces = {_number(one): one for one in reversed(self._of(ref)[1][digest])}
        count = int(pieces[0].headers.get(COUNT, "1"))
        return b"".join(pieces[i].data for i in range(count))

    def _of(self, ref: RunRef) -> tuple[list[Recorded], dict[str, list[Copied]]]:
        if self._at_hand is None or self._at_hand[0] != ref:
            run = self._archive.run(ref.run)
            events: list[Recorded] = []
            blobs: dict[str, list[Copied]] = {}
            for one in self._archive.messages(run):
                if self._archive.is_event(one):
                    events.append(self._archive.decode_copied(run, one))
                else:
                    blobs.setdefault(one.subject.split(".")[-2], []).append(one)
            self._at_hand = ref, events, blobs
        return self._at_hand[1:]


def _number(piece: Copied) -> int:
    return int(piece.subject.rpartition(".")[2])


class _Version(Struct, frozen=True):
    """The member of a manifest that every version has."""

    callboard: int


def _check_manifest_size(path: Path, info: zipfile.ZipInfo) -> None:
    """Refuse a manifest that would take much memory, before it is decompressed."""
    most = min(MANIFEST_BYTES_MAX, max(info.compress_size * MANIFEST_RATIO_MAX, MANIFEST_BYTES_SURE))
    if info.file_size > most:
        message = f"its manifest expands from {info.compress_size} to {info.file_size} bytes; the limit is {most}"
        raise ArchiveInvalid(path, message)


def _manifest(path: Path, data: bytes) -> Manifest:
    try:
        version = msgspec.json.decode(data, type=_Version).callboard
        if not 1 <= version <= VERSION:
            raise ArchiveInvalid(path, f"it has format {version}; this version reads formats up to {VERSION}")
        return msgspec.json.decode(data, type=Manifest)
    except (*JSON_ERRORS, KeyError, TypeError) as error:
        raise ArchiveInvalid(path, f"its manifest cannot be read: {_why(error)}") from error


def _why(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
