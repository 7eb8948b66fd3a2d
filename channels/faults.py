"""What is logged of an error that was not foreseen, and how often."""

import traceback


def fault_of(error: BaseException) -> str:
    """Where *error* broke and its type, but not its own text, which may quote what people wrote."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"error={type(error).__name__}\n{frames}"


def is_told(count: int) -> bool:
    """Whether the *count*th of many equal events is worth a line: 0, 1, 2, 4, 8, …"""
    return count & (count - 1) == 0
