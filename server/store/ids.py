"""Ids of rows: short, safe in a URL, and sorting in the order of their making."""

import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32, lower case: no letter that reads like a digit, sorted as ASCII is."""

_LENGTH = 26
"""Characters for 48 bits of milliseconds and 80 random bits."""

_RANDOM_BITS = 80


class IdSource:
    """Makes ids that rise strictly within one process, even when the clock steps back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> str:
        """A fresh id; another process makes the same one with a chance of 2^-80 a millisecond."""
        with self._lock:
            value = time.time_ns() // 1_000_000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
            if value <= self._last:
                value = self._last + 1 + secrets.randbits(_RANDOM_BITS - 16)
            self._last = value
        return _spell(value)


def _spell(value: int) -> str:
    """*value* in the alphabet, padded, so that texts sort as the numbers do."""
    digits = []
    for _ in range(_LENGTH):
        value, digit = divmod(value, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


_SOURCE = IdSource()


def new_id() -> str:
    """A new id of 26 characters `[0-9a-z]`, greater than all that this process made before."""
    return _SOURCE.next()
