"""Files: bytes up, bytes down. They do not belong on the socket."""

import asyncio
import unicodedata
from datetime import UTC, datetime
from pathlib import PurePath

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from channels.pictures import PICTURE_TYPES, picture_type
from server.errors import BadRequest, NotFound
from server.rest import Refused, answer, bounded, session_of, signed_in
from server.state import State
from server.store.files import StoredFile, insert_file, load_file
from server.store.ids import new_id

MAX_FILE_BYTES = 20 * 1024 * 1024
_FRAMING_BYTES = 64 * 1024
"""What the multipart form around the file may take."""
_MAX_NAME_CHARACTERS = 120

_ZIP_TYPES = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
_TEXT_TYPES = {".md": "text/markdown", ".csv": "text/csv", ".json": "application/json"}


class FileObject(msgspec.Struct, rename="camel"):
    """A file that was kept."""

    id: str
    name: str
    media_type: str
    size_bytes: int
    url: str


def media_type_of(data: bytes, name: str) -> str:
    """What *data* is by its own bytes; the name only chooses among harmless kinds."""
    shown = picture_type(data)
    if shown is not None:
        return shown
    if data.startswith(b"%PDF-"):
        return "application/pdf"
    suffix = PurePath(name).suffix.lower()
    if data.startswith(b"PK\x03\x04"):
        return _ZIP_TYPES.get(suffix, "application/zip")
    return _TEXT_TYPES.get(suffix, "text/plain") if _is_text(data) else "application/octet-stream"


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False


def clean_name(name: str) -> str:
    """*name* without folders, control characters and leading dots, cut to a usable length."""
    last = name.replace("\\", "/").rpartition("/")[2]
    shown = "".join(c for c in last if unicodedata.category(c)[0] != "C").strip().lstrip(".")
    if len(shown) <= _MAX_NAME_CHARACTERS:
        return shown or "file"
    suffix = PurePath(shown).suffix[:16]
    return shown[: _MAX_NAME_CHARACTERS - len(suffix)] + suffix


async def upload_file(request: Request[State]) -> Response:
    """Keep the `file` of a multipart form; `session` in the query says where it belongs."""
    owner, session_id = await _place_of(request)
    upload = bounded(request, MAX_FILE_BYTES + _FRAMING_BYTES)
    async with upload.form(max_files=1, max_fields=4) as form:
        name, data = await _file_in(form)
    stored = StoredFile(
        id=new_id(),
        session_id=session_id,
        owner=owner,
        name=name,
        media_type=await asyncio.to_thread(media_type_of, data, name),
        size_bytes=len(data),
        sha256=await request.state["blobs"].write(data),
        created_at=datetime.now(UTC),
    )
    async with request.state["store"].write() as db:
        await insert_file(db, stored)
    return answer(_file_object(stored), 201)


async def _place_of(request: Request[State]) -> tuple[str, str | None]:
    """Owner and session of a new file."""
    session_id = request.query_params.get("session")
    if session_id is None:
        return signed_in(request).name, None
    session = await session_of(request, session_id)
    return session.owner, session.id


async def _file_in(form: FormData) -> tuple[str, bytes]:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise BadRequest("a multipart form with one file is needed", "file")
    data = await file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise Refused(413)
    if not data:
        raise BadRequest("the file is empty", "file")
    return clean_name(file.filename or ""), data


async def download_file(request: Request[State]) -> Response:
    """The bytes of a file; whatever may carry a script comes as a download, in a sandbox."""
    user = signed_in(request)
    async with request.state["store"].read() as db:
        stored = await load_file(db, request.path_params["file_id"])
    if not user.may_see(stored.owner):
        raise NotFound("no such file")
    path = request.state["blobs"].path(stored.sha256)
    try:
        found = await asyncio.to_thread(path.stat)
    except FileNotFoundError:
        raise NotFound("the file's bytes are gone") from None
    return FileResponse(
        path,
        media_type=stored.media_type,
        filename=stored.name,
        stat_result=found,
        content_disposition_type="inline" if stored.media_type in PICTURE_TYPES else "attachment",
        headers={
            "ETag": f'"{stored.sha256}"',
            "Cache-Control": "private, max-age=31536000, immutable",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        },
    )


def _file_object(stored: StoredFile) -> FileObject:
    return FileObject(
        stored.id, stored.name, stored.media_type, stored.size_bytes, f"/api/files/{stored.id}"
    )


ROUTES = (
    Route("/api/files", upload_file, methods=["POST"]),
    Route("/api/files/{file_id}", download_file),
)
