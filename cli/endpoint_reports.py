"""How endpoints look: as JSON carries them, and on a terminal."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from cli.output import print_fields
from db.endpoint_keys import KeyLife
from db.endpoint_status import EndpointHealth
from domain.durations import format_duration
from domain.endpoints import Endpoint
from domain.instants import rfc3339


def as_data(endpoint: Endpoint) -> dict[str, object]:
    """An endpoint as JSON carries it; null where the deployment's bounds hold. Lengths in seconds."""
    terms, bounds = endpoint.terms, endpoint.terms.overrides
    return {
        "id": endpoint.id,
        "url": terms.url,
        "label": terms.label,
        "types": None if terms.types is None else list(terms.types),
        "state": endpoint.state.value,
        "reason": endpoint.reason,
        "breaker": endpoint.breaker,
        "failures": endpoint.failures,
        "failing_since": _instant(endpoint.failing_since),
        "concurrency": terms.slots,
        "rate": terms.rate,
        "max_attempts": bounds.max_attempts,
        "max_age_s": None if bounds.max_age is None else bounds.max_age.total_seconds(),
        "waits_s": None if bounds.waits is None else [wait.total_seconds() for wait in bounds.waits],
        "client_errors_final": bounds.client_errors_final,
        "created_at": rfc3339(endpoint.created_at),
    }


def keys_as_data(lives: Sequence[KeyLife]) -> list[dict[str, object]]:
    """Keys without anything of their secrets, newest first."""
    return [
        {
            "key_id": key.key_id,
            "scheme": key.scheme,
            "created_at": rfc3339(key.created_at),
            "expires_at": _instant(key.expires_at),
            "revoked_at": _instant(key.revoked_at),
        }
        for key in lives
    ]


def print_endpoint(
    endpoint: Endpoint, keys: Sequence[Mapping[str, object]], *, more: Mapping[str, object] | None = None
) -> None:
    """An endpoint for a person; what is as the deployment has it is left out."""
    terms, bounds = endpoint.terms, endpoint.terms.overrides
    print(f"{endpoint.id}  {endpoint.state}" + ("" if endpoint.reason is None else f": {endpoint.reason}"))
    print_fields(
        {
            "url": terms.url,
            "label": terms.label,
            "types": "all" if terms.types is None else ", ".join(terms.types),
            "concurrency": terms.slots,
            "rate": None if terms.rate is None else f"{terms.rate:g} a second",
            "max attempts": bounds.max_attempts,
            "max age": None if bounds.max_age is None else format_duration(bounds.max_age),
            "waits": None if bounds.waits is None else ", ".join(map(format_duration, bounds.waits)),
            "3xx and 4xx": "final" if bounds.client_errors_final else None,
            **{name.replace("_", " "): value for name, value in (more or {}).items()},
        }
    )
    for key in keys:
        ended = key["revoked_at"] and f"revoked {key['revoked_at']}"
        ends = key["expires_at"] and f"until {key['expires_at']}"
        print(f"  key {key['key_id']}  {key['scheme']}  {ended or ends or 'signs'}")


def print_health(health: EndpointHealth) -> None:
    """How an endpoint fares, for a person."""
    print_fields(
        {
            "breaker": f"{health.breaker}, {health.failures} failures in a row" if health.failures else health.breaker,
            "failing since": _instant(health.failing_since),
            "waiting": f"{health.backlog:,}" + oldest(health),
            "last hour": f"{health.attempts:,} requests{went(health)}",
        }
    )


def oldest(health: EndpointHealth) -> str:
    """How late the first of its deliveries is."""
    return "" if health.oldest_due is None else f", the oldest due for {format_duration(health.oldest_due)}"


def went(health: EndpointHealth) -> str:
    """How its requests of the last hour went."""
    if health.success_rate is None or health.p50 is None or health.p95 is None:
        return ""
    took = f"p50 {health.p50.total_seconds():.3f} s, p95 {health.p95.total_seconds():.3f} s"
    return f", {health.success_rate:.1%} succeeded, {took}"


def _instant(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)
