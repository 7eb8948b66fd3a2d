"""Who may ask, and from which page."""

import aiohttp
import pytest

from server.auth import COOKIE
from tests.server.http.site import ALICE, Site


async def code_of(response: aiohttp.ClientResponse) -> tuple[int, str]:
    return response.status, (await response.json())["error"]["code"]


async def test_loopback_alone_is_no_credential(site: Site) -> None:
    async with site.http.get("/api/sessions") as response:
        assert await code_of(response) == (401, "unauthenticated")


async def test_a_token_in_the_header_says_who_asks(site: Site) -> None:
    async with site.http.get("/api/me", headers=ALICE) as response:
        assert response.status == 200
        assert (await response.json())["user"] == {"name": "alice", "isAdmin": False}
        assert response.headers["cache-control"] == "no-store"


async def test_a_login_gives_a_cookie_that_scripts_cannot_read(site: Site) -> None:
    async with site.http.post("/api/login", json={"token": "root-token"}) as response:
        assert response.status == 200
        assert (await response.json())["user"] == {"name": "admin", "isAdmin": True}
        cookie = response.cookies[COOKIE]
        assert cookie["httponly"]
        assert cookie["samesite"].lower() == "lax"
        assert cookie["path"] == "/"
        assert "root-token" not in cookie.value
    cookies = {COOKIE: cookie.value}
    async with aiohttp.ClientSession(site.url, cookies=cookies) as browser:
        async with browser.get("/api/me") as response:
            assert response.status == 200


async def test_a_wrong_token_gives_no_cookie(site: Site) -> None:
    async with site.http.post("/api/login", json={"token": "guess"}) as response:
        assert await code_of(response) == (401, "unauthenticated")
        assert COOKIE not in response.cookies


@pytest.mark.parametrize("body", ["", "{", "[]", '{"token": 1}', '{"token": null}', "{}"])
async def test_a_login_without_a_token_is_a_bad_request(site: Site, body: str) -> None:
    async with site.http.post("/api/login", data=body) as response:
        assert await code_of(response) == (400, "bad_request")


async def test_a_login_of_a_megabyte_is_too_large(site: Site) -> None:
    async with site.http.post("/api/login", data=b"x" * 1_000_000) as response:
        assert await code_of(response) == (413, "payload_too_large")


async def test_a_cookie_may_change_something_from_our_own_page_only(site: Site) -> None:
    async with site.http.post("/api/login", json={"token": "alice-token"}) as response:
        cookies = {COOKIE: response.cookies[COOKIE].value}
    async with aiohttp.ClientSession(site.url, cookies=cookies) as browser:
        async with browser.post("/api/logout") as response:
            assert await code_of(response) == (403, "forbidden")
        foreign = {"Origin": "https://evil.example"}
        async with browser.post("/api/logout", headers=foreign) as response:
            assert await code_of(response) == (403, "forbidden")
        async with browser.post("/api/logout", headers={"Origin": site.url}) as response:
            assert response.status == 204
            assert response.cookies[COOKIE]["max-age"] == "0"


async def test_a_name_that_was_rebound_to_this_machine_is_refused(site: Site) -> None:
    headers = {**ALICE, "Host": "evil.example"}
    async with site.http.get("/api/me", headers=headers) as response:
        assert await code_of(response) == (403, "forbidden")


async def test_an_unknown_address_is_told_as_json(site: Site) -> None:
    async with site.http.get("/api/nothing/here", headers=ALICE) as response:
        assert await code_of(response) == (404, "not_found")
    async with site.http.put("/api/me", headers=ALICE) as response:
        assert response.status in (404, 405)
        assert response.content_type == "application/json"
