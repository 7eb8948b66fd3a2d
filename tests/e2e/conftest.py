"""A page to look at."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.e2e.browser import Open, Site, open_site
from tests.fakes.llm import Script


@pytest.fixture
def open_page(tmp_path: Path, sqlite_url: str) -> Open:
    """Opens a site on a fresh database."""

    def opened(script: Script, **variables: str) -> AbstractAsyncContextManager[Site]:
        return open_site(tmp_path, sqlite_url, script, **variables)

    return opened
