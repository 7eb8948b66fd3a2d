"""Opened MCP servers and the registry that has their tools."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.settings import McpSettings
from server.tools.base import Registry, ToolContext, ToolResult
from server.tools.mcp import McpServers, open_mcp, tool_name
from tests.fakes.mcp_server import command_of
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Place:
    """Opened servers and the registry that has their tools."""

    folder: Path
    servers: McpServers
    registry: Registry
    context: ToolContext

    @property
    def names(self) -> list[str]:
        """What models are shown."""
        tools = json.loads(self.registry.definitions_json())
        return [tool["function"]["name"] for tool in tools]

    async def call(self, tool: str, **arguments: object) -> ToolResult:
        """Call a tool of the server `fake`."""
        name = tool_name("fake", tool)
        return await self.registry.dispatch(name, json.dumps(arguments), self.context)

    async def has_tool(self, name: str) -> None:
        """Wait until models are shown it."""

        async def is_shown() -> bool:
            return name in self.names

        await until(is_shown)

    async def is_degraded(self) -> None:
        """Wait until the server `fake` is found to be gone."""

        async def is_gone() -> bool:
            return self.servers.health()[0].state == "degraded"

        await until(is_gone)


@asynccontextmanager
async def open_place(
    folder: Path, context: ToolContext, *options: str, **settings: Any
) -> AsyncIterator[Place]:
    """One server `fake` over stdio, or over what *settings* say."""
    way = settings if "url" in settings else {**command_of(folder, *options), **settings}
    fake = McpSettings.model_validate(way)
    async with open_mcp({"fake": fake}, os.environ) as servers:
        yield Place(folder, servers, Registry([], servers), context)
