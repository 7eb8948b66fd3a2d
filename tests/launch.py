"""Stands for a program that is forked from a process that has imported it, see `forkserver`.

    python -I -S launch.py SOCKET PROGRAM ARGUMENT…

The program gets the streams, the environment and the folder of this process, and every signal that
can be passed on; then this process ends as the program did. It imports as little as it can, since
saving imports is all that it is for.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

MOST_BYTES = 1 << 16
"""Of one message on the socket."""

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def order_of(arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> bytes:
    """What the process that is forked is told."""
    return json.dumps([list(arguments), dict(environment), folder]).encode()


def hire(address: str, order: bytes, streams: Sequence[int]) -> socket.socket:
    """Order a process with these streams; its id comes first, its exit code last."""
    life = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        life.connect(address)
        socket.send_fds(life, [order], streams)
    except BaseException:
        life.close()
        raise
    return life


def _main(address: str, *arguments: str) -> None:
    order = order_of(arguments, os.environ, os.getcwd())
    with hire(address, order, (0, 1, 2)) as life:
        pid = int(life.recv(MOST_BYTES))
        for number in _PASSED_ON:
            signal.signal(number, lambda sent, _: os.kill(pid, sent))
        # The others must see the program's end of its streams, and not that of this process.
        for stream in (0, 1, 2):
            os.close(stream)
        code = int(life.recv(MOST_BYTES))
    if code < 0:
        if -code in _PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _main(*sys.argv[1:])
