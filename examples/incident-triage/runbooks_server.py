"""An MCP server over stdio that serves the runbooks in this folder. It does not depend on Callboard."""

from pathlib import Path

from mcp.server import MCPServer

RUNBOOKS = Path(__file__).parent / "runbooks"

server = MCPServer("runbooks")


@server.tool()
def find_runbook(symptom: str) -> list[str]:
    """Find runbooks by the words of a symptom, those with the most matches first."""
    words = symptom.lower().split()
    hits = {path.stem: sum(word in path.read_text().lower() for word in words) for path in RUNBOOKS.glob("*.md")}
    return sorted((name for name, count in hits.items() if count), key=lambda name: (-hits[name], name))


@server.tool()
def read_runbook(name: str) -> str:
    """Read a runbook."""
    known = sorted(path.stem for path in RUNBOOKS.glob("*.md"))
    if name not in known:
        raise ValueError(f"runbook {name!r} not found; the runbooks are {', '.join(known)}")
    return (RUNBOOKS / f"{name}.md").read_text()


if __name__ == "__main__":
    server.run("stdio")
