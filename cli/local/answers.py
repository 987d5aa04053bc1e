"""Whether a server answers: each function returns the reason why it does not, or an empty text."""

import socket
from typing import Any

import psycopg
from kombu import Connection
from sqlalchemy import make_url

from domain.errors import HoldfastError


class PortTaken(HoldfastError):
    """Flower cannot listen where it should."""


def postgres(url: str) -> str:
    """Ask a Postgres at an address in SQLAlchemy's form."""
    address = make_url(url)
    named: dict[str, Any] = {**address.translate_connect_args(username="user", database="dbname"), **address.query}
    try:
        psycopg.connect(**{**named, "connect_timeout": 2}).close()
    except psycopg.OperationalError as fault:
        return str(fault).strip().partition("\n")[0]
    return ""


def broker(url: str) -> str:
    """Ask a Redis, Valkey or RabbitMQ at an address in kombu's form."""
    with Connection(url, connect_timeout=2, transport_options={"socket_connect_timeout": 2}) as connection:
        faults: tuple[type[BaseException], ...] = (OSError, *connection.connection_errors, *connection.channel_errors)
        try:
            connection.connect()
            _ = connection.default_channel  # only this asks a Redis anything
        except faults as fault:
            return str(fault).strip().partition("\n")[0] or type(fault).__name__
    return ""


def port(number: int) -> str:
    """Ask whether anyone listens on a port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", number), timeout=2).close()
    except OSError as fault:
        return str(fault)
    return ""


def free_port(wanted: int) -> int:
    """A port on loopback that nobody listens on: this one, or any for 0.

    Raises:
        PortTaken: it cannot be had.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as fault:
            cause = f"Flower's port {wanted} cannot be used ({fault.strerror})"
            raise PortTaken(f"{cause}; set HOLDFAST_FLOWER_PORT to another, or to 0 for any") from None
        return int(probe.getsockname()[1])
