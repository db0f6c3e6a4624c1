"""A stand-in for a mail server on loopback, which can refuse, wait, stall and speak TLS."""

import socketserver
import ssl
import threading
from collections.abc import Callable
from email import message_from_bytes
from email.message import Message
from typing import NamedTuple

# A reply that always has one more line.
ENDLESS = "endless"


class Mail(NamedTuple):
    """A mail and the recipients of its envelope."""

    to: list[str]
    message: Message


class MailServer:
    """Takes every mail while ``open`` is set; ``answers`` are its replies to some recipients."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, str] = {}
        self.mails: list[Mail] = []
        # While this is cleared, mails wait for the end of the reply to their last line, however long that takes.
        self.open = threading.Event()
        self.open.set()
        self.closing = threading.Event()
        self.tls = tls
        self._lock = threading.Lock()
        self._waiting = 0
        server = self

        class Session(_Session):
            mail_server = server

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    @property
    def waiting(self) -> int:
        """The number of mails that wait for their reply."""
        return self._waiting

    def take(self, mail: Mail, say: Callable[[str], None]) -> None:
        with self._lock:
            self.mails.append(mail)
            self._waiting += 1
        try:
            # Who sends waits for long only where it hears something.
            while not self.open.wait(1):
                say("250-wait")
        finally:
            with self._lock:
                self._waiting -= 1

    def close(self) -> None:
        self.closing.set()
        self.open.set()
        self._server.shutdown()
        self._server.server_close()


class _Session(socketserver.StreamRequestHandler):
    mail_server: MailServer

    def handle(self) -> None:
        try:
            self._converse()
        except OSError:
            # The client has left.
            return
        finally:
            self.connection.close()

    def _converse(self) -> None:
        self._say("220 ready")
        recipients: list[str] = []
        while line := self.rfile.readline():
            word, _, rest = line.decode().strip().partition(" ")
            match word.upper():
                case "EHLO":
                    tls = self.mail_server.tls and not isinstance(self.connection, ssl.SSLSocket)
                    self._say("250-here\r\n250 STARTTLS" if tls else "250 here")
                case "STARTTLS":
                    self._say("220 go ahead")
                    self._secure()
                case "RCPT":
                    recipients.append(rest.partition("<")[2].partition(">")[0])
                    self._say(self.mail_server.answers.get(recipients[-1], "250 fine"))
                case "DATA":
                    self._say("354 go on")
                    message = message_from_bytes(self._data())
                    self.mail_server.take(Mail(recipients, message), self._say)
                    self._say("250 taken")
                    recipients = []
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 fine")

    def _data(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line)
        return b"".join(lines)

    def _secure(self) -> None:
        assert self.mail_server.tls
        self.connection = self.mail_server.tls.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = (
            self.connection.makefile("rb"),
            self.connection.makefile("wb", buffering=0),
        )

    def _say(self, text: str) -> None:
        while text == ENDLESS and not self.mail_server.closing.wait(1):
            self.wfile.write(b"250-more\r\n")
        self.wfile.write(f"{text}\r\n".encode())
