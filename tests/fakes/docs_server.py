"""A small real MCP server over stdio: a search that succeeds every time, and one document.

    python -m tests.fakes.docs_server

Whatever is searched for, the same document is found and one source is still missing; ids and
times in the results are new with every call, as those of real services are.
"""

import uuid
from datetime import UTC, datetime
from typing import Any

from mcp.server import MCPServer

from tests.forkserver import MCP_FORKS

FACT = "F1：记忆在每轮结束后更新"

server = MCPServer("docs")


def _noise() -> dict[str, str]:
    return {"request_id": uuid.uuid4().hex, "fetched_at": datetime.now(UTC).isoformat()}


@server.tool()
def search_docs(query: str) -> dict[str, Any]:
    """Search the documents."""
    found = [{"id": "A1", "title": "Agent memory"}]
    return {"ok": True, "documents": found, "open_gaps": 1, **_noise()}


@server.tool()
def open_doc(id: str) -> dict[str, Any]:
    """Open a document and take the facts from it."""
    facts = [{"id": "F1", "text": FACT}] if id == "A1" else []
    return {"ok": True, "id": id, "facts": facts, **_noise()}


def docs_command() -> dict[str, Any]:
    """The settings of this server."""
    command, *arguments = MCP_FORKS.command("docs_server")
    return {"command": command, "args": arguments}


def main() -> None:
    """Run it as a process."""
    server.run("stdio")


if __name__ == "__main__":
    main()
