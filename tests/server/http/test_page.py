"""The page and the headers around every answer."""

from tests.server.http.site import ALICE, Site


async def test_the_page_runs_nothing_but_its_own_files(site: Site) -> None:
    async with site.http.get("/") as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"


async def test_an_unchanged_file_is_not_sent_again(site: Site) -> None:
    async with site.http.get("/api.mjs") as response:
        assert response.headers["content-type"] == "text/javascript; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"
        known = response.headers["etag"]
    async with site.http.get("/api.mjs", headers={"If-None-Match": known}) as response:
        assert response.status == 304
        assert await response.read() == b""
        assert response.headers["cache-control"] == "no-cache"


async def test_nothing_outside_the_folder_is_served(site: Site) -> None:
    for path in ("/../settings.py", "/%2e%2e/settings.py", "/..%2fsettings.py", "/nothing.mjs"):
        async with site.http.get(path) as response:
            assert response.status == 404, path


async def test_an_answer_that_is_no_page_allows_nothing_at_all(site: Site) -> None:
    async with site.http.get("/api/me", headers=ALICE) as response:
        policy = response.headers["content-security-policy"]
        assert policy == "default-src 'none'; frame-ancestors 'none'"
