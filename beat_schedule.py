"""The timetable: what ticks, how often, and what breaks if it stops.

A tick is a hint. It may be lost, doubled or late: every sweep takes all that is due, and one that began less than half
an interval ago returns at once.
"""

from typing import Any

from settings import settings

TICKS_EXPIRE_AFTER = 15 * 60
"""Seconds after which a waiting tick is dropped. Each worker's own clock judges this, so it is far more than clocks
differ by; the pile of an outage costs one query a tick."""

TIMETABLE: dict[str, dict[str, Any]] = {
    # If this stops, no hold is expired any more. Reads and commands still see lapsed holds as lapsed, and the first
    # tick afterwards finds all that came due meanwhile. `holdfast status` turns red when it is late.
    "expire-due-holds": {
        "task": "sweep.expiries",
        "schedule": settings().tick.total_seconds(),
        "kwargs": {"path": "sweep"},
        "options": {"expires": TICKS_EXPIRE_AFTER},
    },
    # If this stops, holds whose cohort is on path `scanner` are expired by the sweep's rescue only, late.
    "scan-for-due-holds": {
        "task": "scanner.expiries",
        "schedule": settings().tick.total_seconds(),
        "kwargs": {},
        "options": {"expires": TICKS_EXPIRE_AFTER},
    },
    # If this stops, no webhook goes out any more, except what a busy endpoint still drains. Deliveries wait in their
    # table and keep their ids; the first tick afterwards goes on.
    "dispatch-due-webhooks": {
        "task": "webhook.sweep",
        "schedule": settings().webhook_tick.total_seconds(),
        "kwargs": {},
        "options": {"expires": TICKS_EXPIRE_AFTER},
    },
    # If this stops, deliveries of deleted endpoints stay pending (nothing is sent), and old keys stay visible.
    "tidy-webhooks": {
        "task": "webhook.tidy",
        "schedule": 60.0,
        "kwargs": {},
        "options": {"expires": TICKS_EXPIRE_AFTER},
    },
    # If this stops, no customer is reminded any more. Reminders wait in their table, and the first tick afterwards
    # sends those whose hold still counts.
    "send-due-reminders": {
        "task": "reminder.sweep",
        "schedule": settings().reminder_tick.total_seconds(),
        "kwargs": {},
        "options": {"expires": TICKS_EXPIRE_AFTER},
    },
}

BRIDGE: dict[str, dict[str, Any]] = {
    # If this stops, holds on path `infrai` get no message any more; those whose message is out already still expire.
    "publish-over-the-bridge": {
        "task": "bridge.publish",
        "schedule": settings().bridge_tick.total_seconds(),
        "kwargs": {},
        "options": {"expires": TICKS_EXPIRE_AFTER},
    },
    # If this stops, messages wait in Infrai's queue, and the sweep rescues their holds once overdue by the grace time.
    "consume-from-the-bridge": {
        "task": "bridge.consume",
        "schedule": settings().bridge_tick.total_seconds(),
        "kwargs": {},
        "options": {"expires": TICKS_EXPIRE_AFTER},
    },
}
"""Only where there is a bridge, since only there a worker takes these."""

if settings().has_bridge:
    TIMETABLE |= BRIDGE
