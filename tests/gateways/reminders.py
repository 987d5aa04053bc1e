"""Messages and gateways as the tests here make them, and a mail server that follows a script."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from math import inf
from ssl import SSLContext

from domain.reminding import Channel, Message, Rendered
from tests.gateways.receiver import Receiver, Talk, receiving

DEADLINE = timedelta(seconds=10)
LATER = inf
"""No worker stood still."""
BRIEF = timedelta(seconds=0.5)
EMAIL_KEY = "hold-reminder:h_1:email:1796000000:86400"
SMS_KEY = "hold-reminder:h_1:sms:1796000000:86400"
SENDER = "Holds <holds@example.com>"
EMAIL = Message(
    EMAIL_KEY, Channel.EMAIL, "anna@example.com",
    Rendered("Ihr Sitz läuft ab", "Grüße\n.\n..zwei\nEnde", "<p>Grüße</p>\n.\n<p>Ende</p>"),
)  # fmt: skip
SMS = Message(SMS_KEY, Channel.SMS, "+4915112345678", Rendered(None, "Grüße & Küsse + 1", None))

Step = bytes | Callable[[Talk], None]
"""What a scripted server says, or does."""


def breaking(talk: Talk) -> None:
    """Close without a word."""
    raise EOFError


def resetting(talk: Talk) -> None:
    """Break off with RST."""
    talk.reset()
    raise EOFError


def hanging(talk: Talk) -> None:
    """Say nothing more."""
    talk.hang()


def flooding(talk: Talk) -> None:
    """A reply without an end."""
    while not talk.over.is_set():
        talk.say(b"250-" + b"x" * 900 + b"\r\n")


def then_closing(reply: bytes) -> Step:
    """Say this, and close."""

    def step(talk: Talk) -> None:
        talk.say(reply)
        raise EOFError

    return step


HONEST: dict[str, Step] = {
    "connect": b"220 stand-in\r\n", "EHLO": b"250-stand-in\r\n250 8BITMIME\r\n", "MAIL": b"250 2.1.0 ok\r\n",
    "RCPT": b"250 2.1.5 ok\r\n", "DATA": b"354 go on\r\n", ".": b"250 2.0.0 taken\r\n", "QUIT": b"221 bye\r\n",
}  # fmt: skip


PIPELINING: dict[str, Step] = {"EHLO": b"250-stand-in\r\n250 PIPELINING\r\n"}
"""What a server says that takes commands together."""


class Script:
    """A mail server that does at each step what it is told to, else what an honest one does."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self.steps = HONEST | dict(steps)
        self.taken: list[bytes] = []
        """Every message up to whose end it heard."""
        self.heard: list[str] = []

    def __call__(self, talk: Talk) -> None:
        self._do("connect", talk)
        while True:
            verb = _line(talk).decode()[:4].strip().upper()
            self.heard.append(verb)
            self._do(verb, talk)
            if verb == "DATA" and self.steps["DATA"] == HONEST["DATA"]:
                self._take(talk)

    def _take(self, talk: Talk) -> None:
        while b"\r\n.\r\n" not in talk.left:
            _more(talk)
        mail, _, talk.left = talk.left.partition(b"\r\n.\r\n")
        self.taken.append(mail + b"\r\n")
        self._do(".", talk)

    def _do(self, name: str, talk: Talk) -> None:
        step = self.steps[name]
        if isinstance(step, bytes):
            talk.say(step)
        else:
            step(talk)


def _line(talk: Talk) -> bytes:
    while b"\r\n" not in talk.left:
        _more(talk)
    line, _, talk.left = talk.left.partition(b"\r\n")
    return line


def _more(talk: Talk) -> None:
    data = talk.sock.recv(65536)
    if not data:
        raise EOFError
    talk.left += data


@contextmanager
def scripted(steps: Mapping[str, Step], tls: SSLContext | None = None) -> Iterator[tuple[Receiver, Script]]:
    """A scripted mail server on loopback; with `tls` from the first byte."""
    script = Script(steps)

    def greet(talk: Talk) -> None:
        if tls is None:
            script(talk)
            return
        with tls.wrap_socket(talk.sock, server_side=True) as spoken:
            script(Talk(spoken, talk.over))

    with receiving(lambda *_: None, greet=greet) as receiver:
        yield receiver, script
