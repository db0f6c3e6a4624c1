"""A stand-in provider made of bare sockets: the test decides on every byte and every silence."""

import contextlib
import datetime as dt
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Longer than anything here takes: what must happen at once is given this much before it has failed.
GENEROUS = 60.0
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Peer:
    """The provider's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def request(self) -> bytes:
        """One whole request; b"" when the client has left instead."""
        data = b""
        while b"\r\n\r\n" not in data:
            if not (more := self.sock.recv(65536)):
                return b""
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            int(line[15:])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        while len(body) < length:
            if not (more := self.sock.recv(65536)):
                return b""
            body += more
        return head + b"\r\n\r\n" + body

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def answer(self, body: bytes) -> None:
        self.send(OK + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def close(self) -> None:
        # The base class, since a TLS socket's own method would drop the encryption first.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_until_gone(self) -> None:
        """Return once the client has ended the connection."""
        with contextlib.suppress(OSError):
            while self.sock.recv(65536):
                pass


class Provider:
    """A server whose every connection is played by `script`, and then held until the client ends it.

    `gone` is set when a client has ended a connection that its script left open.
    """

    def __init__(
        self, script: Callable[[Peer], None], tls: ssl.SSLContext | None, host: str = "127.0.0.1"
    ) -> None:
        self.script = script
        self.tls = tls
        self.connections = 0
        self.gone = threading.Event()
        self.errors: list[BaseException] = []
        self.closing = False
        self.peers: list[Peer] = []
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{host}:{self.port}/v1/chat"
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self) -> None:
        while True:
            sock, _ = self.listener.accept()
            if self.closing:
                sock.close()
                return
            self.connections += 1
            thread = threading.Thread(target=self.serve, args=(sock,))
            self.threads.append(thread)
            thread.start()

    def serve(self, sock: socket.socket) -> None:
        if self.tls is not None:
            try:
                sock = self.tls.wrap_socket(sock, server_side=True)
            except OSError:
                sock.close()
                self.gone.set()
                return
        peer = Peer(sock)
        self.peers.append(peer)
        try:
            self.script(peer)
            if sock.fileno() != -1:
                peer.wait_until_gone()
                if not self.closing:
                    self.gone.set()
        except ConnectionError:
            # Its client was faster than the script, which is no fault: the test knows what became of the client.
            self.gone.set()
        except Exception as error:  # noqa: BLE001 - the test's own thread reports it
            # A script that still waits for a request at the end of its test is cut off, and that is no fault.
            if not (self.closing and isinstance(error, OSError)):
                self.errors.append(error)
        finally:
            peer.close()

    def stop(self) -> None:
        self.closing = True
        socket.create_connection(self.listener.getsockname()).close()
        for peer in self.peers:
            peer.close()
        for thread in self.threads:
            thread.join(GENEROUS)
        self.listener.close()
        assert not any(thread.is_alive() for thread in self.threads)


@contextlib.contextmanager
def nobody() -> Iterator[int]:
    """A port that refuses connections, and that nobody else is given meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextlib.contextmanager
def playing(
    script: Callable[[Peer], None], tls: ssl.SSLContext | None = None
) -> Iterator[Provider]:
    """A provider until the block ends; what went wrong in its script fails the test."""
    provider = Provider(script, tls)
    try:
        yield provider
    finally:
        provider.stop()
    assert provider.errors == []


class Authority:
    """A certificate authority of the test's own, and the server contexts it vouches for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.bundle = folder / "authority.pem"
        certificate = (
            self.unsigned(self.name, self.key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage(signs_certificates=True), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def unsigned(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        day = dt.timedelta(days=1)
        now = dt.datetime.now(dt.UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(issuer, critical=False)
        )

    def certificate(self, name: x509.GeneralName) -> Path:
        """A PEM file with the key and the certificate of a server of this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self.unsigned(x509.Name([]), key.public_key())
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=False), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        file = self.folder / f"{certificate.serial_number}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return file

    def server(self, name: x509.GeneralName) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate(name))
        return context


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
