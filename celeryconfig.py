"""Every Celery setting, each with its reason. What may differ between deployments comes from `settings`."""

from kombu import Queue

from beat_schedule import TIMETABLE
from settings import settings

_settings = settings()
_on_redis = not _settings.broker.startswith("amqp")

# -- the broker ---------------------------------------------------------------------------------------------------
broker_url = _settings.broker
broker_connection_retry_on_startup = True  # a worker may start before its broker
broker_connection_max_retries = None  # the default gives up after 46 minutes
broker_channel_error_retry = True  # a fail-over or a closed channel reconnects, it does not end the worker
broker_pool_acquire_timeout = 5  # the default waits for ever
broker_transport_options = (
    {
        # an unacknowledged message comes back after this long; longer than any task, longer than a claim
        "visibility_timeout": _settings.visibility_timeout.total_seconds(),
        # look for such messages every 5 s; the default of every 100 s adds that to the time above
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        # a frozen server must not hold a publisher for ever
        "socket_connect_timeout": 3,
        "socket_timeout": 5,
        "socket_keepalive": not _settings.broker.startswith("redis+socket"),
        "health_check_interval": 10,
        "client_name": "holdfast",
        # the keys of a Redis that others use too
        "global_keyprefix": _settings.key_prefix,
    }
    if _on_redis
    # a message is only a prompt: classic queues and unconfirmed publishing cost at most one claim lease
    else {"confirm_publish": False}
)

# -- lanes: one queue each, so that what is slow fills its own only --------------------------------------------------
_LANES = ("sweeps", "expiry", "webhooks", "reminders", "bridge")
task_queues = [Queue(_settings.queue_prefix + lane, routing_key=_settings.queue_prefix + lane) for lane in _LANES]
task_create_missing_queues = False  # a typo in a queue's name is an error, not a queue nobody reads
task_default_queue = _settings.queue_prefix + "sweeps"
task_routes = {
    "sweep.*": {"queue": _settings.queue_prefix + "sweeps"},
    "expiry.*": {"queue": _settings.queue_prefix + "expiry"},
    # it expires in its own process, so it goes where expiries go and keeps no other sweep waiting
    "scanner.*": {"queue": _settings.queue_prefix + "expiry"},
    "bridge.*": {"queue": _settings.queue_prefix + "bridge"},  # a slow service keeps only its own lane waiting
    # its sweep too: a run of another sweep may take seconds, and here a tick only waits where its messages would
    "webhook.*": {"queue": _settings.queue_prefix + "webhooks"},
    "reminder.*": {"queue": _settings.queue_prefix + "reminders"},  # the same
}

if _settings.queue_prefix:  # a shared broker carries other apps' pings and events too
    control_exchange = _settings.queue_prefix + "control"
    event_exchange = event_queue_prefix = _settings.queue_prefix + "events"

# -- delivery --------------------------------------------------------------------------------------------------------
task_acks_late = True  # a worker that dies loses no message
worker_prefetch_multiplier = 1  # with late acks: one message a slot
task_acks_on_failure = True  # a task that failed is not delivered again: its rows are, by the next sweep
task_acks_on_timeout = True  # the same for one that was killed for its time
task_reject_on_worker_lost = False  # a message that kills its worker would loop
task_publish_retry_policy = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.2}
task_ignore_result = True  # the result is a row; a result backend would only grow
task_store_errors_even_if_ignored = False

# -- JSON only: pickle is code ---------------------------------------------------------------------------------------
task_serializer = "json"
result_serializer = "json"
event_serializer = "json"
accept_content = ["json"]

# -- time: instants are the database's; beat counts intervals in UTC -------------------------------------------------
timezone = "UTC"
enable_utc = True
beat_schedule = TIMETABLE
beat_max_loop_interval = 1  # beat looks at its schedule at least this often, in seconds
beat_sync_every = 1  # after a crash beat sends no burst of what it had already sent

# -- workers ---------------------------------------------------------------------------------------------------------
worker_max_tasks_per_child = 2000  # a slow leak ends with the process
worker_max_memory_per_child = 300_000  # KiB
worker_disable_rate_limits = True  # nothing uses them
worker_send_task_events = True  # Flower sees tasks from their beginning; a message is a chunk, so this is cheap
task_send_sent_event = False  # doubles the cost of publishing
worker_eta_task_limit = 1000  # a fuse: waits live in tables, not in a worker
worker_cancel_long_running_tasks_on_connection_loss = False  # a transaction in progress ends by itself
worker_soft_shutdown_timeout = 20  # a cold shutdown first lets a transaction end
worker_hijack_root_logger = False  # tasks.logs writes the lines
worker_redirect_stdouts = False
