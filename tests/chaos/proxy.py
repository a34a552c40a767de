"""A small proxy between a part of the service and Redis, which does to connections what nets do."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Final, Self

CHUNK: Final = 1 << 16
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER by which a socket that is closed resets its peer's."""


class Proxy:
    """Listens on loopback and passes bytes on.

    Arguments:
        target: Port of loopback that is spoken to; may be changed at any time.
        delay_s: Seconds by which every piece is late, each way.
    """

    def __init__(self, target: int, delay_s: float = 0.0) -> None:
        self.target, self.delay_s = target, delay_s
        self.silent = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset every connection."""
        with self._lock:
            there, self._open = self._open, set()
        for one in there:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target), 5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(CHUNK):
                if self.delay_s:
                    time.sleep(self.delay_s)
                while self.silent.is_set():  # half open: nothing comes, and nobody says so
                    time.sleep(0.01)
                other.sendall(data)
        for end in (one, other):
            with self._lock:
                self._open.discard(end)
            with contextlib.suppress(OSError):
                end.close()
