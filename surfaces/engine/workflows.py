"""Workflows: registered definitions as the engine's own documents, and the templates of their nodes."""

import re
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct
from starlette.requests import Request

from callboard.bus.commands import Registration
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.languages.problems import Tree
from callboard.languages.registry import authoring
from callboard.languages.source_text import read_document
from callboard.runtime.admission.registration import registered_names
from callboard.runtime.admission.versions import RegisteredMeanwhile, UnknownDefinition, find_registration, withdraw
from callboard.service.operations.operation import ApiError, Operation, outcome
from callboard.surfaces.engine.engine_requests import number_in, object_of, subject_of, truth_in

LISTED = 50
LISTED_MAX = 200

ABOUT = ("name", "description", "icon_url", "tags", "parent_workflow", "created_by", "version")
"""Members of a request beside the graph; they become metadata."""

SHAPE = ("nodes", "connections", "triggers", "variables")

FIRST_VERSION = "1.0"

REQUIRED = ("name", "created_by", "nodes", "connections")


class Made(Struct, frozen=True):
    """Answer of ``POST /v2/workflows``."""

    workflow: dict[str, Any]


class Changed(Struct, frozen=True):
    """Answer of ``PUT /v2/workflows/{id}``."""

    success: bool
    workflow: dict[str, Any]
    message: str


class Found(Struct, frozen=True):
    """Answer of ``GET /v2/workflows/{id}``."""

    found: bool
    workflow: dict[str, Any] | None
    message: str


class RegisteredWorkflows:
    """The workflows of one tenant: definitions in one ``language``, by the names that they are registered under."""

    def __init__(self, log: JetStreamLog, tenant: str, operations: Mapping[str, Operation], language: str) -> None:
        self._log = log
        self._tenant = tenant
        self._operations = operations
        self._language = language

    async def create(self, request: Request) -> Any:
        """``POST /v2/workflows``: register a workflow."""
        body = await object_of(request)
        if missing := [name for name in REQUIRED if body.get(name) is None]:
            raise ApiError(400, "api.malformed", f"{', '.join(missing)} missing")
        id = uuid4().hex
        given: Any = body.get("metadata")
        said: dict[str, Any] = given if isinstance(given, dict) else {}
        about = {name: body[name] for name in ABOUT if body.get(name) is not None}
        created = body.get("created_time_ms") or int(time.time() * 1000)
        metadata = {"version": FIRST_VERSION, **said, **about, "id": id, "created_time": created}
        document = {"metadata": metadata, **{name: body[name] for name in SHAPE if body.get(name) is not None}}
        document.setdefault("triggers", _triggers(document["nodes"]))
        await self._register(request, id, document)
        return Made(_describe_workflow(id, document))

    async def change(self, request: Request) -> Any:
        """``PUT /v2/workflows/{id}``: register a changed workflow as its next version."""
        id, body = request.path_params["id"], await object_of(request)
        before = await self._document(id)
        if before is None:
            raise ApiError(404, "definition.unknown", f"Workflow {id} not found")
        about = {name: body[name] for name in ABOUT if name in body}
        shape = {name: body[name] for name in SHAPE if name in body}
        metadata = {**before.get("metadata", {}), **about}
        document = {**before, **shape, "metadata": metadata}
        if document != before and "version" not in about:
            metadata["version"] = _next_version(str(metadata.get("version") or FIRST_VERSION))
        await self._register(request, id, document)
        return Changed(True, _describe_workflow(id, document), "Workflow updated")

    async def delete(self, request: Request) -> Any:
        """``DELETE /v2/workflows/{id}``: withdraw a workflow; its versions and executions stay in the log."""
        id = request.path_params["id"]
        if await self._document(id) is None:
            raise ApiError(404, "definition.unknown", f"Workflow {id} not found")
        try:
            await withdraw(self._log, self._tenant, id, subject_of(request).name or None)
        except UnknownDefinition as error:
            raise ApiError(404, error.code, f"Workflow {id} not found") from error
        except RegisteredMeanwhile as error:
            raise ApiError(409, error.code, error.message) from error
        return {"success": True, "message": "Workflow deleted"}

    async def show(self, request: Request) -> Any:
        """``GET /v2/workflows/{id}``: a registered workflow."""
        id = request.path_params["id"]
        document = await self._document(id)
        if document is None:
            return Found(False, None, f"Workflow {id} not found")
        return Found(True, _describe_workflow(id, document), "Workflow found")

    async def list_workflows(self, request: Request) -> Any:
        """``GET /v2/workflows``: the registered workflows."""
        limit, offset = number_in(request, "limit", LISTED, LISTED_MAX), number_in(request, "offset", 0, 10**9)
        wanted = {tag for tag in request.query_params.get("tags", "").split(",") if tag}
        found: list[dict[str, Any]] = []
        for id in await registered_names(self._log, self._tenant):
            document = await self._document(id)
            if document is not None and wanted <= set(document.get("metadata", {}).get("tags") or ()):
                found.append(_describe_workflow(id, document))
        page = found[offset : offset + limit]
        return {"workflows": page, "total_count": len(found), "has_more": offset + limit < len(found)}

    async def templates(self, request: Request) -> Any:
        """``GET /v2/workflows/node-templates``: the parameters of each type of node."""
        system = truth_in(request, "include_system", True)
        types = authoring(self._language).node_types
        assert types is not None
        query = request.query_params
        found = [
            {
                "id": f"{spec.type}.{spec.subtype}",
                "name": spec.title,
                "category": spec.type.lower(),
                "node_type": spec.type,
                "node_subtype": spec.subtype,
                "default_params": {name: one.default for name, one in spec.configurations.items()},
                "required_params": [name for name, one in spec.configurations.items() if one.required],
                "is_system_template": True,
            }
            for name in (types.names if system else ())
            for spec in types.of(name).subtypes.values()
            if query.get("node_type", spec.type) == spec.type and query.get("category", name.lower()) == name.lower()
        ]
        return {"node_templates": found, "total_count": len(found)}

    async def _register(self, request: Request, id: str, document: dict[str, Any]) -> None:
        source = msgspec.json.encode(document).decode()
        by = subject_of(request).name or None
        wanted = Registration(language=self._language, source=source, name=id, by=by)
        found = await outcome(self._operations["definition"].perform(self._tenant, wanted))
        if isinstance(found, ApiError):
            raise found

    async def _document(self, id: str) -> dict[str, Any] | None:
        kept = await find_registration(self._log, self._tenant, id)
        if kept is None or kept.language != self._language:
            return None
        tree = read_document(kept.source or "")
        return tree.value if isinstance(tree, Tree) and isinstance(tree.value, dict) else None


def _next_version(version: str) -> str:
    """Return the version after this one: its last number is one more; one without a number gets one."""
    found = re.fullmatch(r"(.*?)([0-9]{1,15})([^0-9]*)", version, re.DOTALL)
    return f"{found[1]}{int(found[2]) + 1}{found[3]}" if found else f"{version}.1"


def _triggers(nodes: Any) -> list[Any]:
    """Return the ids of all trigger nodes, for a request without ``triggers``."""
    listed = nodes if isinstance(nodes, list) else []
    return [one.get("id") for one in listed if isinstance(one, dict) and one.get("type") == "TRIGGER"]


def _describe_workflow(id: str, document: Mapping[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = document.get("metadata", {})
    return {
        "deployment_status": "UNDEPLOYED",
        **{name: metadata.get(name) for name in ABOUT},
        **document,
        "id": id,
        "user_id": metadata.get("created_by"),
        "active": True,
        "created_at": metadata.get("created_time"),
        "updated_at": metadata.get("updated_time", metadata.get("created_time")),
    }
