"""The shell: the static files of the page, and the one document that is served at all of its addresses.

The document chooses the view by its address. It contains no data, so it is served without authentication; the data
comes from the API, which checks the caller.

The first request of a view is announced in the document, so that browsers send it while the script loads. The address
must be exactly the one that the view requests (`views/runs.js`, `views/run.js`). If it needs more than letters and
digits, nothing is announced.

The modules of the page are served as one script, which a browser loads faster than three dozen files. They are joined
when they are served, without a build step. In the script each module is a function that runs on its first import and
returns its exports. This requires that modules import and export by name, that an import is on one line, that no
exported binding changes, and that there are no import cycles. Comments that take whole lines are left
out of the script.
"""

import gzip
import html
import mimetypes
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, join, normpath

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

RUNS = 200
"""Number of runs that the list requests at once."""

EVENTS = 499
"""Events in the first request of a run's view; with one more, which shows whether there are more, it is one read."""

FILTERS = ("q", "status", "definition", "since", "order")
"""Parameters of the list's address, in the order in which the list sends them."""

COMBINED = ("tag", "error", "by", "cost")
"""Parameters of the list's address that the list turns into a query, for which nothing is announced."""

_PLAIN = r"[A-Za-z0-9_.-]+"
_PATH = re.compile(rf"/t/(?P<tenant>{_PLAIN})/runs(?:/(?P<run>{_PLAIN}))?")
_QUERY = re.compile(rf"(?:{_PLAIN}={_PLAIN}(?:&(?!$)|$))*")


def first_asked(path: str, query: str) -> str | None:
    """Return the first API request of the view at an address, None if it cannot be derived."""
    place = _PATH.fullmatch(path)
    if place is None or not _QUERY.fullmatch(query):
        return None
    runs = f"/api/{place['tenant']}/runs"
    if place["run"] is not None:
        return f"{runs}/{place['run']}/index?after=0&limit={EVENTS}"
    given = dict(one.split("=") for one in query.split("&") if one)
    if given.keys() & {*COMBINED}:
        return None
    return f"{runs}?{''.join(f'{name}={given[name]}&' for name in FILTERS if name in given)}limit={RUNS}"


ENTRY = "app.js"

_IMPORT = re.compile(r"^import (?:\{([^}]*)\} from )?'(\.[^']+)'$", re.MULTILINE)
_LATER = re.compile(r"\bimport\('(\.[^']+)'\)")
_EXPORT = re.compile(r"^export ((?:async )?function\*?|const|class) (\w+)", re.MULTILINE)

_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)[ \t]*\n", re.MULTILINE)

_HEAD = """const modules = {}
const made = {}
const use = (name) => made[name] ??= modules[name]()
"""


def bundle_modules(modules: Mapping[str, str]) -> str:
    """Return one script of all modules, keyed by name, that starts with the entry."""
    # Browsers parse a function in brackets fully at once, instead of again when it is called.
    parts = [f"modules['{name}'] = (() => {{\n{_as_function(name, text)}}})\n" for name, text in modules.items()]
    return f"{_HEAD}{''.join(parts)}use('{ENTRY}')\n"


def _as_function(name: str, text: str) -> str:
    """Return the body of a module's function."""

    def imports(found: re.Match[str]) -> str:
        used = f"use('{_export_name(name, found[2])}')"
        return used if found[1] is None else f"const {{{found[1].replace(' as ', ': ')}}} = {used}"

    exported = [one for _, one in _EXPORT.findall(text)]
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(imports, _COMMENT.sub("", text)))
    body = _LATER.sub(lambda found: f"Promise.resolve('{_export_name(name, found[1])}').then(use)", body)
    # Resolve a module's address relative to the folder of the script.
    body = body.replace("import.meta.url", f"new URL('{name}', import.meta.url).href")
    return f"{body}\nreturn {{{', '.join(exported)}}}\n"


def _export_name(module: str, written: str) -> str:
    """Return the name of a module from the path in another one's import."""
    return normpath(join(dirname(module), written))


POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "worker-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types callboard",
    )
)
"""The content security policy: only the page's own scripts run, and no text can become a script."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

COMPRESSED_BYTES_MIN = 512
"""Smaller files are sent uncompressed."""

DOCUMENTS_MAX = 64
"""Limit of the cached documents, keyed by the first request of their view."""

DOCUMENT = "index.html"
SCRIPT = "joined.js"
WORKER = "stream-worker.js"
TENANT = b"{{tenant}}"
VERSION = b"{{version}}"
PRELOADS = b"{{preloads}}"
MAY = b"{{may}}"


class File(Struct, frozen=True):
    """A file of the page: its bytes, also compressed, and an entity tag of its content."""

    media_type: str
    plain: bytes
    packed: bytes | None
    tag: str


def shell_routes(tenant: str, may_read: Callable[[Scope], Awaitable[bool]], *, reads_only: bool = False) -> list[Route]:
    """Return the routes of the page for one tenant; with ``reads_only``, the page offers no commands.

    ``may_read`` says whether the caller of a request may read runs.
    """
    found = static_files()
    name = html.escape(tenant, quote=True).encode()
    may = b"read" if reads_only else b"tell"
    version = _version()
    text = found[DOCUMENT].plain.replace(VERSION, version.encode()).replace(MAY, may).replace(TENANT, name)

    @lru_cache(DOCUMENTS_MAX)
    def document(first: str | None) -> File:
        link = f'<link rel="preload" as="fetch" href="{html.escape(first)}" crossorigin>' if first else ""
        return _file(DOCUMENT, text.replace(PRELOADS, link.encode()))

    async def shell(request: Request) -> Response:
        path = request.scope["path"]
        first = first_asked(path, request.url.query)
        # Without a token yet, the preloaded answer would be a refusal, and would be used after the login.
        known = first is not None and await may_read(request.scope)
        return _answer(request, document(first if known else None))

    async def static(request: Request) -> Response:
        first, _, rest = request.path_params["name"].partition("/")
        kept = first == version
        file = found.get(rest if kept else request.path_params["name"])
        return _answer(request, file, kept=kept) if file is not None else Response(status_code=404, headers=HEADERS)

    return [
        Route("/", shell, methods=["GET"]),
        Route("/t/{rest:path}", shell, methods=["GET"]),
        Route("/static/{name:path}", static, methods=["GET"]),
    ]


def is_shell(path: str) -> bool:
    """Whether a path belongs to the page, which needs no authentication."""
    return path == "/" or path.startswith(("/t/", "/static/"))


@cache
def static_files() -> Mapping[str, File]:
    """Return every file of the page by name, including the script of its joined modules; read once."""
    found = {name: entry.read_bytes() for name, entry in _walk(files("callboard.surfaces.page") / "static", "")}
    modules = {name: data.decode() for name, data in found.items() if name.endswith(".js") and name != WORKER}
    found[SCRIPT] = bundle_modules(modules).encode()
    return {name: _file(name, data) for name, data in found.items()}


@cache
def _version() -> str:
    """Return a hash of all files of the page; at addresses that contain it they never change."""
    tags = "".join(f"{name} {file.tag}\n" for name, file in sorted(static_files().items()))
    return sha256(tags.encode()).hexdigest()[:12]


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry


def _file(name: str, data: bytes) -> File:
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "application/octet-stream"
    text = kind.startswith("text/") or kind in ("application/json", "image/svg+xml")
    packed = gzip.compress(data, mtime=0) if text and len(data) >= COMPRESSED_BYTES_MIN else None
    return File(f"{kind}; charset=utf-8" if text else kind, data, packed, f'"{sha256(data).hexdigest()[:16]}"')


def _answer(request: Request, file: File, *, kept: bool = False) -> Response:
    # Files that may change are revalidated, so that a page never mixes two versions of Callboard.
    keeping = "public, max-age=31536000, immutable" if kept else "no-cache"
    headers = {**HEADERS, "Cache-Control": keeping, "ETag": file.tag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    packed = file.packed if "gzip" in request.headers.get("accept-encoding", "") else None
    if packed is not None:
        headers["Content-Encoding"] = "gzip"
    return Response(packed or file.plain, headers={**headers, "Content-Type": file.media_type})
