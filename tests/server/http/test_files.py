"""Files up and down."""

import hashlib
import io
import zlib

import aiohttp
import pytest

from server.rest_files import MAX_FILE_BYTES, clean_name, media_type_of
from server.store.engine import Store
from tests.server.http.site import ADMIN, ALICE, BOB, Site, add_session


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", bytes((0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0)))
    + _chunk(b"IDAT", zlib.compress(b"\0\0"))
    + _chunk(b"IEND", b"")
)


def form(data: bytes, name: str = "a.bin", media_type: str = "image/png") -> aiohttp.FormData:
    fields = aiohttp.FormData(quote_fields=False)  # names as browsers send them
    fields.add_field("file", io.BytesIO(data), filename=name, content_type=media_type)
    return fields


async def test_a_picture_goes_up_and_comes_down_as_it_was(site: Site) -> None:
    async with site.http.post("/api/files", data=form(PNG, "图.png"), headers=ALICE) as response:
        assert response.status == 201
        kept = await response.json()
        assert kept["name"] == "图.png"
        assert kept["mediaType"] == "image/png"
        assert kept["sizeBytes"] == len(PNG)
    async with site.http.get(kept["url"], headers=ALICE) as response:
        assert await response.read() == PNG
        assert response.headers["content-type"] == "image/png"
        assert response.headers["content-disposition"].startswith("inline; filename*=utf-8''")
        assert response.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["etag"] == f'"{hashlib.sha256(PNG).hexdigest()}"'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"),
        ("x.html", b"<!doctype html><script>alert(1)</script>"),
        ("x.png", b"<!doctype html><script>alert(1)</script>"),
    ],
)
async def test_what_carries_a_script_is_text_to_download_whatever_it_claims(
    site: Site, name: str, data: bytes
) -> None:
    for claimed in ("image/svg+xml", "text/html", "image/png"):
        sent = form(data, name, claimed)
        async with site.http.post("/api/files", data=sent, headers=ALICE) as response:
            kept = await response.json()
            assert kept["mediaType"] == "text/plain"
        async with site.http.get(kept["url"], headers=ALICE) as response:
            assert response.headers["content-type"].startswith("text/plain")
            assert response.headers["content-disposition"].startswith("attachment;")


async def test_a_file_of_the_largest_size_is_kept_and_a_larger_one_refused(site: Site) -> None:
    largest = bytes(MAX_FILE_BYTES)
    async with site.http.post("/api/files", data=form(largest), headers=ALICE) as response:
        assert response.status == 201
    async with site.http.post("/api/files", data=form(largest + b"x"), headers=ALICE) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "payload_too_large"


async def test_an_upload_without_a_file_is_a_bad_request(site: Site) -> None:
    for data in (form(b""), aiohttp.FormData({"file": "text"}), b"no form"):
        async with site.http.post("/api/files", data=data, headers=ALICE) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == "bad_request"


async def test_a_file_is_its_owners_and_the_admins(site: Site) -> None:
    async with site.http.post("/api/files", data=form(PNG), headers=ALICE) as response:
        url = (await response.json())["url"]
    for headers, status in ((ALICE, 200), (ADMIN, 200), (BOB, 404), ({}, 401)):
        async with site.http.get(url, headers=headers) as response:
            assert response.status == status


async def test_a_file_for_a_session_belongs_to_the_sessions_owner(site: Site, store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice")
    query = "/api/files?session=s1"
    async with site.http.post(query, data=form(PNG), headers=ADMIN) as response:
        url = (await response.json())["url"]
    async with site.http.get(url, headers=ALICE) as response:
        assert response.status == 200
    async with site.http.post(query, data=form(PNG), headers=BOB) as response:
        assert response.status == 404


async def test_equal_bytes_are_kept_once(site: Site) -> None:
    for headers in (ALICE, BOB):
        async with site.http.post("/api/files", data=form(PNG), headers=headers) as response:
            assert response.status == 201
    kept = [path for path in (site.data_dir / "files").rglob("*") if path.is_file()]
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\a\\b.txt", "b.txt"),
        (".bashrc", "bashrc"),
        ("a\r\nSet-Cookie: x.txt", "aSet-Cookie: x.txt"),
        ("\u202etxt.exe", "txt.exe"),
        ("", "file"),
        ("...", "file"),
        ("x" * 300 + ".png", "x" * 116 + ".png"),
    ],
)
def test_names_are_cleaned(name: str, expected: str) -> None:
    assert clean_name(name) == expected


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (PNG, "x.txt", "image/png"),
        (b"\xff\xd8\xff\xe0", "x", "image/jpeg"),
        (b"GIF89a", "x", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "x", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", "x.webp", "application/octet-stream"),
        (b"%PDF-1.7", "x", "application/pdf"),
        (b"PK\x03\x04", "a.zip", "application/zip"),
        ("你好".encode(), "x", "text/plain"),
        (b"a,b", "x.csv", "text/csv"),
        (b"# a", "x.MD", "text/markdown"),
        (b"{}", "x.json", "application/json"),
        (b"\xff\xfe", "x.txt", "application/octet-stream"),
        (b"a\0b", "x.txt", "application/octet-stream"),
    ],
)
def test_the_bytes_say_what_a_file_is(data: bytes, name: str, expected: str) -> None:
    assert media_type_of(data, name) == expected
