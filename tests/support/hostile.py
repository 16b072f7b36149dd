"""Services of the loopback interface that answer as no honest one would."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread

Reply = Callable[["Hostile", socket.socket], None]


@dataclass
class Hostile:
    """A service that does one thing on every connection.

    Attributes
    ----------
    url
        Where it is.
    n_sent
        Bytes that it got rid of.
    heard
        Requests, as their bytes.
    """

    url: str = ""
    n_sent: int = 0
    heard: list[bytes] = field(default_factory=list)

    def drip(self, connection: socket.socket, pieces: list[bytes], seconds: float = 0.0) -> None:
        """Send piece after piece, with pauses, until the device hangs up."""
        with suppress(OSError):
            for piece in pieces:
                connection.sendall(piece)
                self.n_sent += len(piece)
                time.sleep(seconds)


@contextmanager
def hostile(reply: Reply) -> Iterator[Hostile]:
    """A service until the context is left; it waits for its connections to end."""
    service = Hostile()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        service.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threads: list[Thread] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threads.append(Thread(target=_answer, args=(service, connection, reply)))
                    threads[-1].start()

        accepting = Thread(target=serve)
        accepting.start()
        try:
            yield service
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def _answer(service: Hostile, connection: socket.socket, reply: Reply) -> None:
    with connection, suppress(OSError):
        connection.settimeout(30)
        service.heard.append(connection.recv(1 << 20))
        reply(service, connection)
