"""The names of those who wrote: a message tells one, a press of a button only an id."""

from collections import OrderedDict

from channels.dingtalk.decode import Heard

REMEMBERED_MAX = 1000
"""People; who was silent the longest goes first."""
ID_CHARACTERS = 12
"""Of an id that stands for a name."""


class People:
    """Who was heard since the start."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, str] = OrderedDict()

    def meet(self, heard: Heard) -> None:
        """Remember who wrote a message."""
        if heard.sender_name:
            self._names[heard.sender_id] = heard.sender_name
            self._names.move_to_end(heard.sender_id)
        while len(self._names) > REMEMBERED_MAX:
            self._names.popitem(last=False)

    def name_of(self, person_id: str) -> str:
        """What others are shown for a person: the name, else the beginning of the id."""
        if name := self._names.get(person_id):
            return name
        is_long = len(person_id) > ID_CHARACTERS
        return f"{person_id[: ID_CHARACTERS - 1]}…" if is_long else person_id
