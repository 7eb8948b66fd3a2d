"""`headway`, which is `python -m server`: the command line, and how often garbage is looked for."""

import gc

_YOUNG_OBJECTS = 10_000
"""So many more objects than were let go are made before the young ones are looked through.

A round of a run makes some thousands, none of them garbage: with Python's 700 a tenth of its time
went into looking.
"""


def main() -> None:
    """Run the command line."""
    # What is imported stays. Looking through it again and again while it grows took a seventh of
    # the start, so the import stands here; frozen, it is never looked through later either.
    gc.disable()
    from server.cli import main as command_line

    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    gc.enable()
    command_line()


if __name__ == "__main__":
    main()
