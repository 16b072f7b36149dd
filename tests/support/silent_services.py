"""Services that give no answer that a device can use."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Final

Answering = Callable[[socket.socket], None]


def _hangs(connection: socket.socket) -> None:
    while connection.recv(1024):
        pass


def _junk(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall(b"220 mail.example ESMTP\r\n")


def _page(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 503 Down\r\nContent-Length: 6\r\n\r\n<html>")


@contextmanager
def _answering(answer: Answering) -> Iterator[str]:
    with closing(socket.create_server(("127.0.0.1", 0))) as service:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = service.accept()
                    with closing(connection):
                        answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{service.getsockname()[1]}"


@contextmanager
def _closed_port() -> Iterator[str]:
    with closing(socket.create_server(("127.0.0.1", 0))) as service:
        address = f"http://127.0.0.1:{service.getsockname()[1]}"
    yield address


LISTENING: Final[dict[str, Callable[[], AbstractContextManager[str]]]] = {
    "closed": _closed_port,
    "hangs": lambda: _answering(_hangs),
    "junk": lambda: _answering(_junk),
    "page": lambda: _answering(_page),
}
"""What yields the address of each."""
