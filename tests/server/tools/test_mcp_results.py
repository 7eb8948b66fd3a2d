"""What MCP servers answer, as the agent gets it; one server process serves all tests here."""

import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from PIL import Image

from guard import NoProgressCall, result_digest
from server.tools.base import ToolContext
from tests.fakes.mcp_server import journal_of, picture
from tests.server.tools.conftest import decoded, error_of
from tests.server.tools.mcp_place import Place, open_place

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("mcp")
    context = ToolContext(
        session_id="s1",
        run_id="r1",
        call_id="c1",
        workspace=folder,
        locale="en",
        progress=lambda line: None,
        emit=lambda event: None,
    )
    async with open_place(folder, context) as opened:
        yield opened


async def test_errors_of_the_protocol_become_error_results(place: Place) -> None:
    assert error_of(await place.call("refuse", code=-32602)) == "bad_arguments"
    assert error_of(await place.call("refuse", code=-32603)) == "failed"
    lookalike = await place.call("refuse", code=-32000)  # the SDK's own code of a lost connection
    assert (error_of(lookalike), lookalike.is_unsure) == ("failed", False)


async def test_arguments_that_cannot_be_sent_do_not_break_the_connection(place: Place) -> None:
    deep: object = "bottom"
    for _ in range(254):
        deep = [deep]
    assert error_of(await place.call("say", text=deep)) == "bad_arguments"
    assert (await place.call("say", text="fine")).content == "fine"
    assert len([line for line in journal_of(place.folder) if line.startswith("start")]) == 1


async def test_picture_goes_along_as_a_picture(place: Place) -> None:
    red = await place.call("paint", colour="red")
    assert red.content == "all red"
    assert red.picture is not None
    assert (red.picture.data, red.picture.media_type) == (picture("red"), "image/png")


async def test_picture_with_a_wrong_type_is_known_by_its_bytes(place: Place) -> None:
    red = await place.call("paint", colour="red", media_type="image/jpeg")
    assert red.picture is not None
    assert red.picture.media_type == "image/png"
    assert Image.open(io.BytesIO(red.picture.data)).size == (8, 6)


async def test_broken_picture_is_only_mentioned(place: Place) -> None:
    result = await place.call("scrawl")
    assert (result.content, result.picture) == ("[a picture that cannot be shown]", None)


async def test_links_and_resources_become_text(place: Place) -> None:
    assert (await place.call("show")).content.splitlines() == [
        "three things",
        "[link to notes: file:///notes.txt] My notes",
        "[file:///a.txt]",
        "inside a",
        "[file:///b.bin, application/x-b, left out]",
        "[audio, audio/wav, left out]",
    ]


async def test_result_that_does_not_fit_its_schema_is_not_thrown_away(place: Place) -> None:
    assert decoded(await place.call("misfit")) == {"n": "a text"}


async def test_empty_result_is_said_to_be_empty(place: Place) -> None:
    assert (await place.call("nothing")).content == "(no output)"


async def test_long_result_is_cut_to_the_cap(place: Place) -> None:
    result = await place.call("say", text="x" * 200_000)
    assert result.truncated
    assert len(result.content) <= 64_000
    assert "sha256" in result.content


async def test_progress_is_shown(place: Place) -> None:
    lines: list[str] = []
    watched = replace(place, context=replace(place.context, progress=lines.append))
    await watched.call("steps", n=3)
    assert lines == ["step 1", "step 2", "step 3"]


async def test_tool_that_the_server_no_longer_has_is_an_unknown_one(place: Place) -> None:
    result = await place.call("sing")
    assert error_of(result) == "bad_arguments"
    assert "no tool named 'fake__sing'" in decoded(result)["message"]


async def test_definitions_pass_the_schema_and_bound_the_description(place: Place) -> None:
    tools = {
        tool["function"]["name"]: tool["function"]
        for tool in json.loads(place.registry.definitions_json())
    }
    assert tools["fake__add"]["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    assert tools["fake__bare"]["parameters"] == {"type": "object", "properties": {}}
    assert len(tools["fake__fail"]["description"]) == 2_000
    assert all(len(name) <= 64 for name in tools)


async def test_guard_sees_equal_results_as_equal_whatever_changes_beside_them(
    place: Place,
) -> None:
    async def digest(tool: str, **arguments: object) -> str:
        result = await place.call(tool, **arguments)
        return result_digest(NoProgressCall(f"fake__{tool}", "{}", result.content))

    same = {"text": json.dumps({"n": 1, "duration_ms": 3, "timestamp": "now"})}
    again = {"text": json.dumps({"timestamp": "later", "duration_ms": 8, "n": 1})}
    other = {"text": json.dumps({"n": 2, "duration_ms": 3, "timestamp": "now"})}
    assert await digest("say", **same) == await digest("say", **again)
    assert await digest("say", **same) != await digest("say", **other)
    assert await digest("fail", why="a") == await digest("fail", why="a")
    assert await digest("fail", why="a") != await digest("fail", why="b")
    assert await digest("fail", why="a") != await digest("say", text="a")
