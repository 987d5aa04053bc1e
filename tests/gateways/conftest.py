"""A sender that may speak to loopback, and certificates of a throw-away authority."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from gateways.webhook import Limits, Sender

ServerContext = Callable[[trustme.LeafCert], ssl.SSLContext]


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def serve_with() -> ServerContext:
    """A server's context with this certificate."""

    def make(certificate: trustme.LeafCert) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        return context

    return make


@pytest.fixture
def sender(ca_file: Path) -> Iterator[Sender]:
    """With the ordinary deadline."""
    sender = Sender(Limits(), dangerous=True, ca_file=ca_file)
    yield sender
    sender.close()


@pytest.fixture
def brief(ca_file: Path) -> Iterator[Sender]:
    """With a deadline of half a second."""
    sender = Sender(Limits(deadline=timedelta(seconds=0.5)), dangerous=True, ca_file=ca_file)
    yield sender
    sender.close()


@pytest.fixture
def crowded() -> Iterator[int]:
    """A port whose queue is full: the next connection is neither taken nor refused."""
    with socket.socket() as listener, contextlib.ExitStack() as crowd:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = crowd.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
