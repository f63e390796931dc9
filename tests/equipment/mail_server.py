"""A mail server that keeps what it receives (aiosmtpd)."""

import socket
from email import message_from_bytes
from email.message import Message
from typing import Any

from aiosmtpd.controller import Controller


class MailServer:
    def __init__(self, port: int = 0) -> None:
        self.mails: list[Message] = []
        with socket.create_server(("127.0.0.1", port)) as free:
            self.port: int = free.getsockname()[1]
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(message_from_bytes(envelope.content))
        return "250 OK"

    def close(self) -> None:
        self._controller.stop()
