"""In which language a request is answered."""

from pathlib import Path

import pytest

from tests.server.http.site import open_site

CHINESE, ENGLISH = "请先登录。", "Please log in first."


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (None, ENGLISH),
        ("", ENGLISH),
        ("zh-CN", CHINESE),
        ("fr, zh;q=0.3", CHINESE),
        ("zh, en", CHINESE),
        ("en, zh", ENGLISH),
        ("en;q=0.4, zh-TW;q=0.9", CHINESE),
        ("zh;q=0.4, en-GB ; q=0.9", ENGLISH),
        ("EN;Q=0.1, ZH;Q=0.2", CHINESE),
        ("en;q=0, zh;q=0.001", CHINESE),
        ("zh;q=0", ENGLISH),
        ("zh;q=often, en;q=0.1", ENGLISH),
        ("de, *;q=0.5", ENGLISH),
        ("english, zhongwen", ENGLISH),
        (",;=, ;q", ENGLISH),
    ],
)
async def test_the_language_that_a_client_likes_best_is_spoken(
    asked: str | None, text: str, tmp_path: Path, sqlite_url: str
) -> None:
    headers = {} if asked is None else {"Accept-Language": asked}
    async with open_site(sqlite_url, tmp_path) as site:
        async with site.http.get("/api/me", headers=headers) as response:
            assert (await response.json())["error"]["message"] == text
