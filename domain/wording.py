"""Instants and durations in the words of a customer's language, read off the customer's own clock."""

from datetime import datetime, timedelta

from domain.instants import in_zone

_DAYS = {
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "de": ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"),
}
_MONTHS = {
    "en": ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December"),
    "de": ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober",
           "November", "Dezember"),
}  # fmt: skip
_UNITS = (
    (86_400, {"en": ("day", "days"), "de": ("Tag", "Tage")}),
    (3_600, {"en": ("hour", "hours"), "de": ("Stunde", "Stunden")}),
    (60, {"en": ("minute", "minutes"), "de": ("Minute", "Minuten")}),
    (1, {"en": ("second", "seconds"), "de": ("Sekunde", "Sekunden")}),
)


def clock(instant: datetime, zone: str | None) -> str:
    """The time of day with its zone: `10:00 CET`; seconds only where there are some."""
    local = in_zone(instant, zone)
    return f"{local:%H:%M:%S}".removesuffix(":00") + f" {abbreviation(local)}"


def abbreviation(local: datetime) -> str:
    """`CET`, or `UTC+05:45` where a zone has no letters of its own."""
    name = local.tzname() or "UTC"
    return name if name.isalpha() else f"UTC{local.isoformat()[-6:]}"


def moment(instant: datetime, zone: str | None, language: str) -> str:
    """`Sunday, 1 March 2026, 10:00 CET`; ISO's date in a language without names here."""
    local = in_zone(instant, zone)
    if language not in _DAYS:
        return f"{local:%Y-%m-%d} {clock(instant, zone)}"
    day, month = _DAYS[language][local.weekday()], _MONTHS[language][local.month - 1]
    dot = "." if language == "de" else ""
    return f"{day}, {local.day}{dot} {month} {local.year}, {clock(instant, zone)}"


def span(length: timedelta, language: str) -> str:
    """`24 hours`, `1 day 2 hours` and so on, in English where the language has no names here.

    A single whole day or two is told in hours, as people do.
    """
    seconds = int(length.total_seconds())
    if seconds <= 2 * 86_400 and seconds % 3_600 == 0:
        return _counted(seconds // 3_600, _UNITS[1][1], language)
    parts = []
    for size, names in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(_counted(count, names, language))
    return " ".join(parts)


def _counted(count: int, names: dict[str, tuple[str, str]], language: str) -> str:
    one, many = names.get(language, names["en"])
    return f"{count} {one if count == 1 else many}"
