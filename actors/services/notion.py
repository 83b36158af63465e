"""Notion, over its API, with the token of an integration.

Each action is one request; a node that only has an ``instruction`` searches for it. Carrying out an instruction needs
an agent with tools.
"""

from typing import Any

from callboard.actors.services.action import ActionRefused, Payload, ServiceAction
from callboard.actors.skills.service import Service, member, segment

API_URL = "https://api.notion.com/v1"
VERSION = "2022-06-28"

ACTIONS = (
    "search",
    "query_database",
    "retrieve_database",
    "retrieve_page",
    "create_page",
    "update_page",
    "update_database",
    "append_blocks",
    "retrieve_block_children",
    "update_block",
    "delete_block",
    "batch_delete_blocks",
)

BLOCKS_MAX = 100
"""How many blocks one action deletes."""


def act(action: ServiceAction) -> Payload:
    """Carry an action out.

    :raises ActionRefused, ServiceFailed: if it fails
    """
    token = action.token("notion_token", "NOTION_TOKEN")
    headers = {"authorization": f"Bearer {token}", "notion-version": VERSION}
    service = Service("Notion", action.address("NOTION_API_URL", API_URL), "NOTION_TOKEN", headers, (token,))
    name = action.name or "search"
    found = _ask_notion(action, name, service)
    results: Any = member(found, "results")
    return {
        "success": True,
        "resource_id": str(member(found, "id") or ""),
        "resource_url": str(member(found, "url") or ""),
        "error_message": "",
        "ai_execution": {},
        "discovered_resources": {"results": results} if isinstance(results, list) else found,
    }


def _ask_notion(action: ServiceAction, name: str, service: Service) -> Any:
    match name:
        case "search":
            query = action.text("query", "instruction") or (action.input if isinstance(action.input, str) else "")
            return service.post("/search", {"query": query, **action.members(*_PAGE, "filter")}, repeatable=True)
        case "query_database":
            path = f"/databases/{_id(action, 'database_id')}/query"
            return service.post(path, action.members("filter", "sorts", *_PAGE), repeatable=True)
        case "retrieve_database":
            return service.get(f"/databases/{_id(action, 'database_id')}")
        case "retrieve_page":
            return service.get(f"/pages/{_id(action, 'page_id')}")
        case "create_page":
            return service.post("/pages", {"parent": _parent(action), **_page(action)})
        case "update_page":
            path = f"/pages/{_id(action, 'page_id')}"
            return service.decode(service.ask("PATCH", path, body=_page(action), repeatable=True))
        case "update_database":
            path = f"/databases/{_id(action, 'database_id')}"
            return _change_object(action, service, path, "title", "description", "properties")
        case "update_block":
            block = action.require("block")
            path = f"/blocks/{_id(action, 'block_id')}"
            return service.decode(service.ask("PATCH", path, body=block, repeatable=True))
        case "delete_block":
            return _delete_block(service, action.require("block_id"))
        case "batch_delete_blocks":
            return {"results": [_delete_block(service, id) for id in _blocks(action)]}
        case "append_blocks":
            body = {"children": action.require("children")}
            return service.decode(service.ask("PATCH", f"/blocks/{_block(action)}/children", body=body))
        case "retrieve_block_children":
            return service.get(f"/blocks/{_block(action)}/children", action.members(*_PAGE))
        case _:
            raise action.unsupported_action(*ACTIONS)


def _change_object(action: ServiceAction, service: Service, path: str, *names: str) -> Any:
    body = action.members(*names)
    if not body:
        raise action.lacking(names[0])
    if isinstance(body.get("title"), str):
        body["title"] = [{"text": {"content": body["title"]}}]
    return service.decode(service.ask("PATCH", path, body=body, repeatable=True))


def _delete_block(service: Service, id: Any) -> Any:
    """Move a block to the bin, where it may be already."""
    return service.decode(service.ask("DELETE", f"/blocks/{segment(str(id), 'block')}", repeatable=True))


def _blocks(action: ServiceAction) -> list[Any]:
    ids: Any = action.require("block_ids")
    if not isinstance(ids, list) or len(ids) > BLOCKS_MAX:
        message = f"{action.name} takes a list of {BLOCKS_MAX} block_ids at most"
        raise ActionRefused("missing_parameters", message, "give fewer")
    return list(ids)


_PAGE = ("page_size", "start_cursor")


def _id(action: ServiceAction, name: str) -> str:
    return segment(str(action.require(name)), name)


def _block(action: ServiceAction) -> str:
    return segment(str(action.require("block_id", "page_id")), "block")


def _parent(action: ServiceAction) -> Any:
    parent = action.first_given("parent")
    if parent is not None:
        return parent
    database = action.first_given("database_id")
    return {"database_id": database} if database is not None else {"page_id": action.require("page_id")}


def _page(action: ServiceAction) -> Payload:
    """Return the members of a page; a bare title becomes the property of that name."""
    page = action.members("properties", "children", "icon", "cover", "archived")
    title = action.text("title")
    if title and "properties" not in page:
        page["properties"] = {"title": {"title": [{"text": {"content": title}}]}}
    return page
