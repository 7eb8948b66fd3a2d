"""Writing the configuration file of a test; the standard library only reads TOML."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Sections = Mapping[str, Mapping[str, Any]]
"""By the section's name, `mcp.notes` for one."""


def write_config(folder: Path, sections: Sections) -> str:
    """Write them into *folder*; the path, for `HEADWAY_CONFIG`."""
    path = folder / "headway.toml"
    path.write_text("\n".join(_lines(sections)), "utf-8")
    return str(path)


def _lines(sections: Sections) -> Iterator[str]:
    for name, fields in sections.items():
        yield f"[{name}]"
        for key, value in fields.items():
            inner = value.items() if isinstance(value, Mapping) else None
            if inner is None:
                yield f"{key} = {json.dumps(value)}"
            else:
                yield from (
                    f"{key}.{json.dumps(name)} = {json.dumps(word)}" for name, word in inner
                )
