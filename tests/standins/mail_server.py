"""A stand-in for a mail server on loopback, which can refuse, wait, stall and speak TLS and SMTPUTF8."""

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
    """A mail, the recipients of its envelope, and what the sender's line said beside the sender."""

    to: list[str]
    message: Message
    said: str = ""


class MailServer:
    """Takes every mail while ``open`` is set; ``answers`` are its replies to some recipients.

    With ``utf8`` it offers SMTPUTF8 (RFC 6531), and takes an address beyond ASCII from a sender that asks for it.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, utf8: bool = False) -> None:
        self.utf8 = utf8
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
            # A client waits for long only while it receives something.
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
        said = ""
        while line := self.rfile.readline():
            word, _, rest = line.decode().strip().partition(" ")
            match word.upper():
                case "EHLO":
                    self._say("\r\n250-".join(["250-here", *self._offers()]) + "\r\n250 HELP")
                case "STARTTLS":
                    self._say("220 go ahead")
                    self._secure()
                case "MAIL":
                    said = rest.partition(">")[2].strip()
                    self._say(self._reply_to(rest.partition(">")[0], said))
                case "RCPT":
                    recipients.append(rest.partition("<")[2].partition(">")[0])
                    self._say(self._reply_to(recipients[-1], said))
                case "DATA":
                    self._say("354 go on")
                    message = message_from_bytes(self._data())
                    self.mail_server.take(Mail(recipients, message, said), self._say)
                    self._say("250 taken")
                    recipients = []
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 fine")

    def _offers(self) -> list[str]:
        tls = self.mail_server.tls and not isinstance(self.connection, ssl.SSLSocket)
        return (["STARTTLS"] if tls else []) + (
            ["8BITMIME", "SMTPUTF8"] if self.mail_server.utf8 else []
        )

    def _reply_to(self, address: str, said: str) -> str:
        if not address.isascii() and "SMTPUTF8" not in said:
            return "553 5.6.7 an address beyond ASCII"
        return self.mail_server.answers.get(address, "250 fine")

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
