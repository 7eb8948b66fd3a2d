"""Feishu's calls to us: proof that they are its own, decryption, the check of the address.

The SDK's handler is not used: it wants header names in one spelling, answers everything that is
wrong with 500 and the exception's text, and looks neither at the age of a call nor at repeats.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from channels.clock import SYSTEM, Clock
from channels.dedupe import Window
from channels.errors import BadSignature, Undecodable
from channels.feishu import fields
from channels.feishu.fields import Fields

AGE_SECONDS = 600.0
"""Of a signed call; older messages would not be run anyway."""
_MILLISECONDS = 1e11
"""A time above it is counted in them: events are, and it is not said of calls."""


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """What goes back over HTTP, as JSON."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Challenge:
    """The platform asks whether this is the right address."""

    answer: bytes


@dataclass(frozen=True, slots=True)
class Called:
    """A call that is the platform's."""

    payload: bytes
    """The event in clear."""
    nonces: Sequence[str]
    """Given back if the event could not be kept, so that the same call may come again."""


class Door:
    """Lets in what the platform sent, once."""

    def __init__(self, encrypt_key: str, verification_token: str, clock: Clock = SYSTEM) -> None:
        self._encrypt_key = encrypt_key
        self._token = verification_token
        self._clock = clock
        self._nonces = Window(2 * AGE_SECONDS, clock.monotonic)

    def open(self, headers: Mapping[str, str], body: bytes) -> Called | Challenge:
        """Check a call.

        Args:
            headers: Names in any case.
            body: As it came, since the signature is over its bytes.

        Raises:
            BadSignature: It does not prove that it is the platform's, or came before.
            Undecodable: It is no JSON object, or cannot be decrypted.
        """
        payload = self._clear(body)
        event = fields.parse(payload)
        if event is None:
            raise Undecodable("a webhook call holds no JSON object")
        if fields.text(event, "type") == "url_verification":
            self._check_token(fields.text(event, "token"))
            challenge = {"challenge": fields.text(event, "challenge")}
            return Challenge(json.dumps(challenge).encode())
        nonces = self._check(headers, body, event)
        return Called(payload, nonces)

    def forget(self, call: Called) -> None:
        """Let the same call in again."""
        self._nonces.release(call.nonces)

    def _check(self, headers: Mapping[str, str], body: bytes, event: Fields) -> Sequence[str]:
        token = fields.text(fields.under(event, "header"), "token")
        if not self._encrypt_key:
            if not self._token:
                raise BadSignature("neither an encrypt key nor a verification token is set")
            self._check_token(token)
            return ()
        nonces = self._check_signature({name.lower(): headers[name] for name in headers}, body)
        if token:
            self._check_token(token)
        if not self._nonces.claim(nonces):
            raise BadSignature("a call came twice")
        return nonces

    def _check_signature(self, headers: Mapping[str, str], body: bytes) -> Sequence[str]:
        told_at = headers.get("x-lark-request-timestamp", "")
        nonce = headers.get("x-lark-request-nonce", "")
        signed = _bytes(told_at + nonce + self._encrypt_key) + body
        right = hashlib.sha256(signed).hexdigest()
        given = headers.get("x-lark-signature", "")
        if not hmac.compare_digest(right.encode(), _bytes(given)):
            raise BadSignature("a signature is wrong or absent")
        seconds = fields.number({"at": told_at}, "at") or 0.0
        if seconds > _MILLISECONDS:
            seconds /= 1000
        if abs(self._clock.wall() - seconds) > AGE_SECONDS:
            raise BadSignature("a call is too old, or the clock is wrong")
        return (f"{told_at}\0{nonce}",)

    def _check_token(self, token: str) -> None:
        """Right also if none is set; then the signature alone has to be."""
        if self._token and not hmac.compare_digest(self._token.encode(), token.encode()):
            raise BadSignature("a verification token is wrong or absent")

    def _clear(self, body: bytes) -> bytes:
        whole = fields.parse(body)
        secret = fields.text(whole, "encrypt") if whole else ""
        if not secret:
            return body
        if not self._encrypt_key:
            raise Undecodable("a call is encrypted, and no encrypt key is set")
        return decrypt(secret, self._encrypt_key)


def _bytes(header: str) -> bytes:
    """Of whatever a stranger put into a header: some servers keep bytes that are no text so."""
    return header.encode("utf-8", "surrogateescape")


def decrypt(secret: str, encrypt_key: str) -> bytes:
    """AES-256-CBC with the vector in front, the key hashed, and PKCS#7 at the end."""
    from Crypto.Cipher import AES  # not above: it takes 0.1 s, and few bots are called like this

    try:
        raw = base64.b64decode(secret, validate=True)
    except binascii.Error:
        raise Undecodable("a call is not encrypted as agreed") from None
    size = AES.block_size
    if len(raw) < 2 * size or len(raw) % size:
        raise Undecodable("a call is not encrypted as agreed")
    cipher = AES.new(hashlib.sha256(encrypt_key.encode()).digest(), AES.MODE_CBC, raw[:size])
    clear = cipher.decrypt(raw[size:])
    padding = clear[-1]
    if not 1 <= padding <= size or clear[-padding:] != bytes([padding]) * padding:
        raise Undecodable("a call is encrypted with another key")
    return clear[:-padding]
