"""Endpoints, their keys and slots; deliveries and their attempts. Events may be about an endpoint, not a hold.

Revision ID: 0002
Revises: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"

_TABLES = """
ALTER TABLE events ALTER COLUMN hold_id DROP NOT NULL;
ALTER TABLE events ADD COLUMN audience integer NOT NULL DEFAULT 0;
ALTER TABLE events ADD CONSTRAINT events_hold CHECK (hold_id IS NOT NULL OR type NOT LIKE 'reservation.%');

CREATE TABLE endpoints (
    id                  text COLLATE "C" PRIMARY KEY CONSTRAINT endpoints_id CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    url                 text NOT NULL,
    label               text,
    types               text[] CONSTRAINT endpoints_types CHECK (cardinality(types) > 0),
    state               text NOT NULL DEFAULT 'enabled'
                        CONSTRAINT endpoints_state CHECK (state IN ('enabled', 'paused', 'disabled', 'deleted')),
    reason              text,
    waits               interval[] CONSTRAINT endpoints_waits CHECK (cardinality(waits) > 0),
    max_attempts        integer CONSTRAINT endpoints_max_attempts CHECK (max_attempts > 0),
    max_age             interval CONSTRAINT endpoints_max_age CHECK (max_age > '0'::interval),
    client_errors_final boolean NOT NULL DEFAULT false,
    slots               smallint NOT NULL DEFAULT 4 CONSTRAINT endpoints_slots CHECK (slots BETWEEN 1 AND 64),
    rate                double precision CONSTRAINT endpoints_rate CHECK (rate > 0),
    paced_until         timestamptz,
    failing_since       timestamptz,
    failures            integer NOT NULL DEFAULT 0,
    breaker_until       timestamptz,
    told                text CONSTRAINT endpoints_told CHECK (told IN ('failing', 'disabled')),
    stood_still         interval NOT NULL DEFAULT '0'::interval,
    still_since         timestamptz,
    created_at          timestamptz NOT NULL,
    CONSTRAINT endpoints_still_since CHECK ((state IN ('paused', 'disabled')) = (still_since IS NOT NULL))
) WITH (fillfactor = 50);

CREATE TABLE endpoint_keys (
    endpoint_id text COLLATE "C" NOT NULL,
    key_id      text NOT NULL,
    scheme      text NOT NULL CONSTRAINT endpoint_keys_scheme CHECK (scheme IN ('v1', 'v1a')),
    sealed      bytea NOT NULL,
    created_at  timestamptz NOT NULL,
    expires_at  timestamptz,
    revoked_at  timestamptz,
    PRIMARY KEY (endpoint_id, key_id)
);

CREATE TABLE endpoint_slots (
    endpoint_id      text COLLATE "C" NOT NULL,
    slot             smallint NOT NULL,
    token            uuid,
    lease_until      timestamptz,
    dispatched_until timestamptz,
    PRIMARY KEY (endpoint_id, slot)
) WITH (
    -- written before each request: room for many versions, and vacuumed before they pile up
    fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0
);

CREATE TABLE deliveries (
    event_id        text COLLATE "C" NOT NULL,
    endpoint_id     text COLLATE "C" NOT NULL,
    state           text NOT NULL DEFAULT 'pending'
                    CONSTRAINT deliveries_state CHECK (state IN ('pending', 'delivered', 'dead', 'cancelled')),
    trigger         text NOT NULL DEFAULT 'auto'
                    CONSTRAINT deliveries_trigger CHECK (trigger IN ('auto', 'replay', 'test')),
    attempts        integer NOT NULL DEFAULT 0,
    spared          integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    lease_token     uuid,
    lease_until     timestamptz,
    created_at      timestamptz NOT NULL,
    aging_since     timestamptz NOT NULL,
    still_before    interval NOT NULL,
    settled_at      timestamptz,
    replays         integer NOT NULL DEFAULT 0,
    replayed_at     timestamptz,
    replayed_by     text,
    PRIMARY KEY (event_id, endpoint_id),
    CONSTRAINT deliveries_attempts CHECK (attempts >= spared AND spared >= 0),
    CONSTRAINT deliveries_settled_at CHECK ((state = 'pending') = (settled_at IS NULL)),
    CONSTRAINT deliveries_lease CHECK (
        (lease_token IS NULL) = (lease_until IS NULL) AND (state = 'pending' OR lease_token IS NULL)
    )
) WITH (
    -- room on each page, so that taking, which touches no indexed column, stays on it (a HOT update)
    fillfactor = 70,
    -- the due index is read from its old end before each request: dead entries there must not pile up
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX deliveries_due ON deliveries (endpoint_id, next_attempt_at) WHERE state = 'pending';

CREATE TABLE attempts (
    event_id    text COLLATE "C" NOT NULL,
    endpoint_id text COLLATE "C" NOT NULL,
    number      integer NOT NULL,
    trigger     text NOT NULL,
    started_at  timestamptz NOT NULL,
    key_ids     text[] NOT NULL,
    worker      text NOT NULL,
    duration    interval,
    peer        text,
    status      integer,
    failure     text,
    detail      text,
    PRIMARY KEY (event_id, endpoint_id, number)
) WITH (fillfactor = 80);
-- `status` reads the last hour; rows come in the order of time, so a coarse index is small and enough
CREATE INDEX attempts_started_at ON attempts USING brin (started_at);
"""


def upgrade() -> None:
    op.execute(_TABLES)
