"""Resources: definitions, results and traces to read by URI."""

from typing import Any

import msgspec
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)
from pydantic import ValidationError

from callboard.bus.errors import CallboardError
from callboard.surfaces.mcp.arguments import GetRun
from callboard.surfaces.mcp.results import ANSWER_BYTES_MAX, error_members
from callboard.surfaces.mcp.tools import Tools
from callboard.surfaces.mcp.uris import JSON_TYPE, TEMPLATES, Address, address_of, definition_uri, file_uri

_TYPES = {".json": JSON_TYPE, ".md": "text/markdown"}
YAML_TYPE = "application/yaml"


class Resources:
    """The resources of the tools' tenant and folders."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def list(
        self, _context: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """List the definitions; runs are read through the templates, with the ids that tools return."""
        found = (await self._tools.workflows(None)).workflows
        return ListResourcesResult(
            resources=[
                Resource(
                    uri=definition_uri(one.name) if one.name else file_uri(one.file or ""),
                    name=one.name or one.file or one.id,
                    title=one.title or None,
                    description=one.description or f"A definition ({one.language}).",
                    mime_type=YAML_TYPE if one.name else _type_of(one.file or ""),
                )
                for one in found
            ]
        )

    async def templates(
        self, _context: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """List the templates of URIs."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(name=kind, uri_template=template, description=text)
                for kind, (template, text) in TEMPLATES.items()
            ]
        )

    async def read(
        self, _context: ServerRequestContext[Any, Any], params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        """Return the content of a URI."""
        address = address_of(params.uri)
        if address is None:
            known = ", ".join(template for template, _text in TEMPLATES.values())
            raise MCPError(INVALID_PARAMS, f"unknown resource: {params.uri!r}; expected one of {known}")
        try:
            if address.kind in ("result", "trace"):
                GetRun.model_validate({"run_id": address.name})
            text, kind = await self._content(address)
        except ValidationError as error:
            raise MCPError(INVALID_PARAMS, f"{params.uri!r} has an invalid run id") from error
        except CallboardError as error:
            raise MCPError(INVALID_PARAMS, error.message, {"uri": params.uri, "error": error_members(error)}) from error
        if len(text) > ANSWER_BYTES_MAX:
            raise MCPError(INVALID_PARAMS, f"{params.uri} has more than {ANSWER_BYTES_MAX} characters; see watch_run")
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=kind, text=text)])

    async def _content(self, address: Address) -> tuple[str, str]:
        match address.kind:
            case "definition":
                return await self._tools.registered_source(address.name), YAML_TYPE
            case "file":
                return self._tools.library.definition(address.name), _type_of(address.name)
            case "trace":
                return msgspec.json.encode(await self._tools.trace(address.name)).decode(), JSON_TYPE
            case _:
                return msgspec.json.encode(await self._tools.result(address.name)).decode(), JSON_TYPE


def _type_of(file: str) -> str:
    return next((kind for suffix, kind in _TYPES.items() if file.endswith(suffix)), YAML_TYPE)
