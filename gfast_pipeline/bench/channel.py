"""JSON lines over a socket, with a deadline on every receive. Never pickle: what a runner says is data.

Knows nothing of what the messages mean.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

LINE_LIMIT = 4 << 20


class ChannelError(RuntimeError):
    """The other side is gone, or says something that is not a message."""


class Deadline(ChannelError):
    """The other side did not answer in time."""


class Channel:
    """One end of a conversation in JSON objects, one a line."""

    def __init__(self, end: socket.socket) -> None:
        self._socket, self._buffer = end, b""

    def send(self, message: dict[str, Any]) -> None:
        """Send one object. Raises ChannelError when nobody listens."""
        try:
            self._socket.settimeout(60)
            self._socket.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")
        except (OSError, ValueError) as error:
            raise ChannelError(f"could not be told: {error}") from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next object. Raises Deadline after `timeout_s`, ChannelError at the end or on anything but an object."""
        end = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0:
                raise Deadline(f"no answer within {timeout_s:g} s")
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError as error:
                raise ChannelError(f"connection lost: {error}") from None
            if not chunk:
                raise ChannelError("the process ended without an answer")
            self._buffer += chunk
            if len(self._buffer) > LINE_LIMIT:
                raise ChannelError(f"an answer longer than {LINE_LIMIT} bytes")
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise ChannelError(f"not JSON: {line[:80]!r}") from None
        if not isinstance(message, dict):
            raise ChannelError(f"not an object: {line[:80]!r}")
        return message

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
