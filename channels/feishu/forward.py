"""Messages as the platform keeps them, in another shape than pushed ones, as words. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from channels import markdown
from channels.feishu import content, fields
from channels.feishu.content import FORWARD, Content
from channels.feishu.decode import Message, Person, mentions_in
from channels.feishu.fields import Fields

MESSAGES_MAX = 300
"""Of one forward; the platform lets people pick 100, which may hold more."""
MESSAGE_BYTES_MAX = 8_000
FORWARD_BYTES_MAX = 200_000
"""About 50 000 tokens; a model reads so much piece by piece."""
DEPTH_MAX = 8
"""Of forwards in forwards."""


def is_forward(item: Fields) -> bool:
    """Whether a message holds others."""
    return fields.text(item, "msg_type") == FORWARD


def read_item(item: Fields) -> Content:
    """Read a message as the platform keeps it."""
    message = Message(
        event_id="",
        app_id="",
        message_id=fields.text(item, "message_id"),
        chat_id="",
        is_group=False,
        thread_id="",
        root_id="",
        parent_id="",
        sender=Person(""),
        sender_type="",
        sent_at=0.0,
        mentions=mentions_in(item),
        kind=fields.text(item, "msg_type"),
        content=fields.parse(fields.text(fields.under(item, "body"), "content")),
    )
    return content.read(message, "")


def render(items: Sequence[Fields]) -> str:
    """Write out what a forward holds: a line for each message, quoted as deep as it lies.

    Args:
        items: The forward itself, and after it all that it holds at whatever depth.

    Returns:
        Nothing if it holds nothing; at most `FORWARD_BYTES_MAX` and a note.
    """
    forward, *held = items
    tree = _Tree(held)
    lines: list[str] = []
    size_bytes = count = 0
    for item, depth in tree.under(fields.text(forward, "message_id"), 1):
        line = _quoted(f"{tree.sender(item)}: {_words(item)}", depth)
        size_bytes += markdown.size(line)
        if count == MESSAGES_MAX or size_bytes > FORWARD_BYTES_MAX:
            break
        lines.append(line)
        count += 1
    if count < len(held):
        lines.append(f"({len(held) - count} more messages are left out)")
    return "\n".join(lines)


class _Tree:
    """The messages of a forward by what holds them."""

    def __init__(self, items: Sequence[Fields]) -> None:
        self._held: dict[str, list[Fields]] = {}
        for item in sorted(items, key=lambda one: fields.number(one, "create_time") or 0.0):
            self._held.setdefault(fields.text(item, "upper_message_id"), []).append(item)
        self._names: Mapping[str, str] = {
            mention.open_id: mention.name
            for item in items
            for mention in mentions_in(item)
            if mention.open_id and mention.name
        }

    def under(self, message_id: str, depth: int) -> Iterator[tuple[Fields, int]]:
        """What a message holds, each with its depth; each once, whatever holds what."""
        for item in self._held.pop(message_id, []):
            yield item, depth
            if is_forward(item) and depth < DEPTH_MAX:
                yield from self.under(fields.text(item, "message_id"), depth + 1)

    def sender(self, item: Fields) -> str:
        """The name of whoever wrote it, if the platform tells one, else the id."""
        sender = fields.under(item, "sender")
        sender_id = fields.text(sender, "id")
        name = fields.text(sender, "sender_name") or self._names.get(sender_id, "")
        return " ".join(name.split()) or sender_id or "unknown"


def _words(item: Fields) -> str:
    if item.get("deleted") is True:
        return "[withdrawn]"
    if is_forward(item):
        return "[forwarded messages]"
    read = read_item(item)
    files = [f"[{resource.name}]" for resource in read.resources]
    words = " ".join([read.text, *files]).strip()
    return markdown.truncate(words, MESSAGE_BYTES_MAX, "…") or f"[{fields.text(item, 'msg_type')}]"


def _quoted(text: str, depth: int) -> str:
    return "\n".join(f"{'> ' * depth}{line}".rstrip() for line in text.split("\n"))
