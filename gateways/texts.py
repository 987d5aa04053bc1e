"""The texts of reminders: Jinja2 templates by channel and locale, in its sandbox, overridable by a folder.

A template is `CHANNEL.LOCALE.PIECE.j2`: `email.de.subject.j2`, `email.de.txt.j2`, `email.de.html.j2`, `sms.de.txt.j2`.
What begins with `_` is for others to include. All are read once; rendering touches no disk.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType

from jinja2 import FunctionLoader, StrictUndefined, Template, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from domain.contacts import check_locale, one_line
from domain.errors import BadInput, HoldfastError
from domain.instants import in_zone
from domain.reminding import Channel, Rendered
from domain.segments import MOST_SEGMENTS, measure
from domain.wording import clock, moment, span

FALLBACK = "en"
"""The locale that has every text."""
_OURS = Path(__file__).parent / "templates"
_NAME = re.compile(r"email\.([A-Za-z0-9-]+)\.(?:subject|txt|html)\.j2|sms\.([A-Za-z0-9-]+)\.txt\.j2")
_LONGEST_SUBJECT = 600
"""Characters: resource and customer as long as they may be, and words; a header's line may have 998."""
_LARGEST_BODY = 256 * 1024
_CHANNELS = tuple(f"{channel}." for channel in Channel)


class TemplateFault(HoldfastError):
    """A template gives no text that can be sent."""

    def __init__(self, name: str, line: int | None, cause: str) -> None:
        super().__init__(name, line, cause)
        self.name, self.line, self.cause = name, line, cause

    def __str__(self) -> str:
        return f"{self.name}{f', line {self.line}' if self.line else ''}: {self.cause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a text may tell."""

    hold_id: str
    resource: str
    customer: str
    deadline: datetime
    zone: str | None
    """The customer's, an IANA name; UTC without one."""
    lead: timedelta
    """How long before the deadline this reminder was due; it may go out later."""

    def variables(self, locale: str) -> dict[str, object]:
        """What templates see, in the words of this locale."""
        language = locale.partition("-")[0]
        return {
            "hold_id": self.hold_id,
            "resource": self.resource,
            "customer": self.customer,
            "deadline": moment(self.deadline, self.zone, language),
            "deadline_time": clock(self.deadline, self.zone),
            "deadline_at": in_zone(self.deadline, self.zone),
            "lead": span(self.lead, language),
            "locale": locale,
        }


class Texts:
    """Every template, read and compiled; shared between threads."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` holds templates that come before ours of the same name, and further locales.

        Raises:
            BadInput: it is no folder, or a file in it would never be used.
        """
        self._sources = _read(_OURS) | (_read(folder) if folder else {})
        self._environment = ImmutableSandboxedEnvironment(
            loader=FunctionLoader(self._load), undefined=StrictUndefined, auto_reload=False, cache_size=-1,
            autoescape=lambda name: name is not None and name.endswith(".html.j2"), keep_trailing_newline=False,
        )  # fmt: skip
        self._faults: dict[str, TemplateFault] = {}
        self._templates: dict[str, Template] = {}
        for name in self._sources:
            self._compile(name)
        for name in self._sources:
            self._check_company(name)

    def render(self, channel: Channel, locale: str | None, facts: Facts) -> Rendered:
        """The text of one reminder, in the nearest locale there is: `de-AT`, then `de`, then `en`.

        Raises:
            TemplateFault: a template fails, or its text cannot be sent.
        """
        chosen = next(one for one in _nearest(locale) if f"{channel.value}.{one}.txt.j2" in self._sources)
        variables = facts.variables(chosen)
        text = self._piece(f"{channel.value}.{chosen}.txt.j2", variables, _fits[channel])
        if channel is Channel.SMS:
            return Rendered(None, text, None)
        subject = self._piece(f"email.{chosen}.subject.j2", variables, _check_subject)
        html = f"email.{chosen}.html.j2"
        shown = self._piece(html, variables, _check_html) if html in self._sources else ""
        return Rendered(subject, text, shown or None)

    def _piece(self, name: str, variables: Mapping[str, object], check: Callable[[str], str]) -> str:
        if name in self._faults:
            raise self._faults[name].with_traceback(None)
        try:
            return check(self._templates[name].render(variables).strip())
        except Exception as error:  # noqa: BLE001 - whatever a template provokes is a fault of that template
            where, line = _place(error.__traceback__)
            raise TemplateFault(where or name, line, _said(error)) from None

    def _load(self, name: str) -> tuple[str, str, Callable[[], bool]] | None:
        source = self._sources.get(name)
        return None if source is None else (source, name, lambda: True)

    def _compile(self, name: str) -> None:
        """A template that is no template is a fault of the reminders that need it, not of the process."""
        try:
            self._templates[name] = self._environment.get_template(name)
        except TemplateSyntaxError as error:
            self._faults[name] = TemplateFault(error.name or name, error.lineno, _said(error))

    def _check_company(self, name: str) -> None:
        """An email has a subject and a text in each of its locales."""
        channel, _, rest = name.partition(".")
        locale = rest.partition(".")[0]
        needed = ("subject", "txt") if channel == "email" else ()
        for missing in (f"{channel}.{locale}.{piece}.j2" for piece in needed):
            if missing not in self._sources:
                raise BadInput("texts", f"{name} has no {missing} beside it; add it")


def _read(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise BadInput("texts", f"{folder} is no folder")
    sources = {}
    for path in sorted(folder.iterdir()):
        if not path.name.endswith(".j2") and not path.name.startswith(_CHANNELS):
            continue  # a README, say
        if not path.name.startswith("_") and not _is_looked_for(path.name):
            raise BadInput(
                "texts", f"{path.name} would never be used; name it like email.de-AT.txt.j2, sms.de.txt.j2 or _x.j2"
            )
        try:
            sources[path.name] = path.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            raise BadInput("texts", f"{path.name} cannot be read: {_said(error)}") from None
    return sources


def _is_looked_for(name: str) -> bool:
    """Whether a reminder of some locale takes this template: locales are looked for in the form they are kept in."""
    match = _NAME.fullmatch(name)
    locale = match and (match[1] or match[2])
    try:
        return locale is not None and check_locale(locale) == locale
    except BadInput:
        return False


def _nearest(locale: str | None) -> list[str]:
    """`zh-Hant-TW`, `zh-Hant`, `zh`, `en`."""
    parts = locale.split("-") if locale else []
    return ["-".join(parts[:count]) for count in range(len(parts), 0, -1)] + [FALLBACK]


def _place(trace: TracebackType | None) -> tuple[str | None, int | None]:
    """Template and line of the innermost frame that is a template's."""
    found: tuple[str | None, int | None] = (None, None)
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(".j2"):
            found = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return found


def _said(error: BaseException) -> str:
    line = str(error).partition("\n")[0][:200] or type(error).__name__
    return "".join(sign if sign.isprintable() else "?" for sign in line)


def _check_subject(text: str) -> str:
    if not text or len(text) > _LONGEST_SUBJECT:
        raise ValueError(f"a subject of {len(text)} characters; 1 to {_LONGEST_SUBJECT} are sent")
    return one_line("subject", text)


def _check_body(text: str) -> str:
    if not text or len(text) > _LARGEST_BODY:
        raise ValueError(f"a text of {len(text)} characters; 1 to {_LARGEST_BODY} are sent")
    return _clean(text)


def _check_html(text: str) -> str:
    """Empty: the email has none."""
    return _check_body(text) if text else ""


def _check_sms(text: str) -> str:
    segments = measure(text)
    if not text or segments.count > MOST_SEGMENTS:
        raise ValueError(f"an SMS of {segments.count} segments ({segments.encoding}); 1 to {MOST_SEGMENTS} are sent")
    return _clean(text)


def _clean(text: str) -> str:
    """Text that JSON, a form and a mail can carry, and that the database keeps."""
    text.encode()
    if "\x00" in text:
        raise ValueError("the text holds a NUL")
    return text


_fits: dict[Channel, Callable[[str], str]] = {Channel.EMAIL: _check_body, Channel.SMS: _check_sms}
