"""What is imported of the SDK: its connection alone, and the whole where it has to be."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.feishu import BOT, FakeFeishu
from tests.waiting import until

ROOT = Path(__file__).parents[3]
SECONDS = 60.0


@asynccontextmanager
async def open_program(feishu: FakeFeishu, folder: Path = ROOT) -> AsyncIterator[Process]:
    """`connecting` as a process of its own that looks for modules in *folder* first."""
    feishu.app().lines.ping_seconds = 1
    url = f"ws{feishu.url.removeprefix('http')}/ws?device_id=d&service_id=1&ticket=k-{BOT}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.channels.feishu.connecting", url),
        stdin=PIPE, stdout=PIPE, env={"PYTHONPATH": f"{folder}:{ROOT}", "PYTHONWARNINGS": "error"},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def modules_once_connected(feishu: FakeFeishu, process: Process) -> int:
    """How many the SDK had when an event was acknowledged and pings were answered."""
    assert process.stdin is not None
    assert process.stdout is not None
    lines = feishu.app().lines
    async with asyncio.timeout(SECONDS):
        connection = await lines.until_live()
        push = lines.push({"n": 1})
        await push.done.wait()
    assert push.acks == [200]

    async def pings_again() -> bool:
        return connection.pings > 1

    await until(pings_again)
    process.stdin.write(b"\n")
    async with asyncio.timeout(SECONDS):
        return int(await process.stdout.readline())


async def test_the_connection_alone_is_imported_and_whoever_wants_the_whole_sdk_gets_it(
    feishu: FakeFeishu,
) -> None:
    async with open_program(feishu) as process:
        assert 0 < await modules_once_connected(feishu, process) < 100
        assert await modules_once_connected(feishu, process) > 5000, "the whole one is used now"
        assert await process.wait() == 0


async def test_an_sdk_of_another_layout_is_imported_whole(
    feishu: FakeFeishu, tmp_path: Path
) -> None:
    make_other_layout(tmp_path)
    async with open_program(feishu, tmp_path) as process:
        assert await modules_once_connected(feishu, process) > 5000


async def test_what_decrypts_calls_is_imported_with_the_first_of_them() -> None:
    program = (
        "import sys; from channels.feishu import channel, webhook; print('Crypto' in sys.modules);"
        "webhook.decrypt('A' * 64, 'key')"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), stdout=PIPE, stderr=PIPE, cwd=ROOT
    )
    async with asyncio.timeout(SECONDS):
        out, trouble = await process.communicate()
    assert out == b"False\n"
    assert b"Undecodable" in trouble


def make_other_layout(folder: Path) -> None:
    """The SDK once more in *folder*, but that its client wants more of the handler's module."""
    [origin] = [Path(entry, "lark_oapi") for entry in sys.path if Path(entry, "lark_oapi").is_dir()]
    package = folder / "lark_oapi"
    (package / "ws").mkdir(parents=True)
    for part in (*origin.iterdir(), *(origin / "ws").iterdir()):
        place = package / part.relative_to(origin)
        if not place.exists():
            place.symlink_to(part)
    client = package / "ws/client.py"
    source = client.read_text("utf-8")
    client.unlink()
    more = "from lark_oapi.event.dispatcher_handler import WebhookCredentials\n"
    client.write_text(more + source, "utf-8")
