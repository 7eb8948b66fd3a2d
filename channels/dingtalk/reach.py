"""What an operator has to look at where the platform does not answer; pure."""

from collections.abc import Mapping

CALL_SECONDS = 10.0
"""For one call, connecting included."""

_DIRECTLY = "It has to be reached directly: HTTPS_PROXY is not used"
_SILENT = f"no answer within {CALL_SECONDS:.0f} s; check the firewall. {_DIRECTLY}"
_BROKEN = f"the connection fails; check host and port of api_base, and the firewall. {_DIRECTLY}"
_TROUBLES: Mapping[str, str] = {
    "ClientConnectorDNSError": (
        "its name does not resolve; check the host in api_base, and the DNS of this machine"
    ),
    "ClientConnectorCertificateError": (
        "its certificate is not trusted; check the host in api_base, and proxies on the way"
    ),
    "ClientConnectorSSLError": "it speaks no TLS there; check scheme and port of api_base",
    "TimeoutError": _SILENT,
    "ConnectionTimeoutError": _SILENT,
    "ServerTimeoutError": _SILENT,
    "SocketTimeoutError": _SILENT,
    "ClientConnectorError": _BROKEN,
    "ClientOSError": _BROKEN,
    "ServerDisconnectedError": _BROKEN,
    "not_json": "what answers there is not DingTalk; check api_base, and proxies on the way",
}
"""What to look at, by the code of a refusal that is none of the platform's own."""


def is_unreached(code: str) -> bool:
    """Whether a refusal's code is none of the platform's own: nobody there was asked."""
    return code in _TROUBLES


def unreached(host: str, code: str) -> str:
    """What to look at where the platform does not do what it is asked; *code* of the refusal."""
    if text := _TROUBLES.get(code):
        return f"{host} cannot be asked ({code}): {text}"
    return f"{host}, or a proxy on the way, has trouble ({code}); try again later"
