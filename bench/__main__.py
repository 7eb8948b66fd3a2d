"""Measure everything, or the parts that are named, and print the table."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from bench import guard, idle, incident, relay, rounds, start
from bench.figure import Figure, table

Measure = Callable[[Path], Awaitable[list[Figure]]]


async def _guard(_: Path) -> list[Figure]:
    return guard.measure()


PARTS: Mapping[str, Measure] = {
    "guard": _guard,
    "relay": relay.measure,
    "idle": idle.measure,
    "rounds": rounds.measure,
    "start": start.measure,
    "incident": incident.measure,
}


async def run(names: list[str]) -> list[Figure]:
    """The figures of these parts; each works in a folder of its own."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        for name in names:
            began = time.monotonic()
            figures += await PARTS[name](Path(folder) / name)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return figures


def main() -> None:
    """Print the table; a target that is missed is said there and fails nothing."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    names = parser.parse_args().parts or list(PARTS)
    if unknown := set(names) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    print(table(asyncio.run(run(names))))


if __name__ == "__main__":
    main()
