"""What an operator sees of MCP servers: readiness, metrics, the doctor."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.mcp_server import command_of
from tests.server.http.site import open_site
from tests.server.test_cli import environment, run
from tests.toml import write_config

ROOT = Path(__file__).parents[2]


def config_of(folder: Path, servers: Mapping[str, Mapping[str, Any]]) -> str:
    """A configuration file with these servers; its path."""
    environment = {"env": {"PYTHONPATH": str(ROOT)}}
    given = {f"mcp.{name}": {**fields, **environment} for name, fields in servers.items()}
    return write_config(folder, given)


async def test_server_that_is_away_degrades_readiness_and_no_more(
    sqlite_url: str, tmp_path: Path
) -> None:
    servers = {"fake": command_of(tmp_path), "gone": {"command": "/nonexistent"}}
    config = config_of(tmp_path, servers)
    async with open_site(sqlite_url, tmp_path, CONFIG=config) as site:
        async with site.http.get("/readyz") as response:
            body = await response.json()
            assert (response.status, body["status"]) == (200, "ready")
        fake, gone = body["mcp"]
        assert fake == {"ok": True, "name": "fake", "state": "up", "tools": 18}
        assert gone == {
            "ok": True,
            "name": "gone",
            "state": "degraded",
            "tools": 0,
            "reason": "its command is not there",
        }
        async with site.http.get("/metrics") as response:
            lines = (await response.text()).splitlines()
    assert 'headway_mcp_up{server="fake"} 1.0' in lines
    assert 'headway_mcp_up{server="gone"} 0.0' in lines
    assert 'headway_mcp_tools{server="fake"} 18.0' in lines


async def test_the_doctor_connects_to_each_server(tmp_path: Path) -> None:
    servers = {
        "good": {**command_of(tmp_path), "tools": ["say"]},
        "slip": {**command_of(tmp_path, "--token", "s3cret"), "kinds": {"sya": "read"}},
        "gone": {"command": "/nonexistent"},
    }
    environ = environment(tmp_path / "data", PORT="0", CONFIG=config_of(tmp_path, servers))
    code, out, err = await run(environ, "doctor", folder=tmp_path)
    assert code == 0
    assert re.search("^ok +mcp good: lists 18 tools$", out, re.MULTILINE)
    assert re.search("^warn +mcp slip: has no tool named sya; it has add, say", out, re.MULTILINE)
    assert re.search("^warn +mcp gone: its command is not there; until", out, re.MULTILINE)
    assert "s3cret" not in out
    assert "fake server up" in err  # what its own program says, for the one who looks
