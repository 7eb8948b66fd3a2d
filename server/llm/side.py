"""Questions to the model beside the conversation: a title, a summary."""

from collections.abc import Callable, Sequence
from contextlib import aclosing

import msgspec

from server.llm.port import AttemptFailed, Model, ModelRequest, Reply


def side_messages(task: str, material: str) -> Sequence[bytes]:
    """The messages that set *task* and give what it is about."""
    return (
        msgspec.json.encode({"role": "system", "content": task}),
        msgspec.json.encode({"role": "user", "content": material}),
    )


async def ask(
    model: Model, request: ModelRequest, heard: Callable[[Reply | AttemptFailed], None]
) -> str:
    """Ask once and give back the text; *heard* learns of each attempt's end, for the accounts.

    Raises:
        LLMError: The model gave no reply.
    """
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            if isinstance(event, AttemptFailed | Reply):
                heard(event)
            if isinstance(event, Reply):
                return event.text
    raise AssertionError("a model's stream ends in a reply or an error")
