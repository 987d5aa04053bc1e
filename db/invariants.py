"""What must always hold of the rows, each as one statement that finds where it does not.

A statement gives a hold's id (NULL where it is no one hold's) and what is wrong. Keys are spelled here once more, in
SQL; a test holds them to domain.identity.
"""

# ruff: noqa: S608 - every part of a statement is a constant of this file

from collections.abc import Mapping
from typing import NamedTuple


class Invariant(NamedTuple):
    """What must hold, in one line, and the statement that finds each violation of it."""

    meaning: str
    violations: str


_EXPIRY_KEY = "'hold-expiry:' || {0} || '\\:v' || {1} || ':' || CAST(extract(epoch FROM {2}) AS bigint)"

_EFFECT_KEY = f"""
CASE e.kind
    WHEN 'placed' THEN 'hold-placed:' || e.hold_id
    WHEN 'extended' THEN 'hold-extended:' || e.hold_id || '\\:v' || e.version
    WHEN 'confirmed' THEN 'hold-confirmed:' || e.hold_id
    WHEN 'cancelled' THEN 'hold-cancelled:' || e.hold_id
    WHEN 'expired' THEN {_EXPIRY_KEY.format("e.hold_id", "e.version", "e.expires_at")}
END
"""

_EVENT_ID = "'reservation-' || e.kind || ':' || e.hold_id || ':' || e.version"

_LETTER_KEY = "'expiry:' || " + _EXPIRY_KEY.format("h.id", "h.version", "h.expires_at")

INVARIANTS: Mapping[str, Invariant] = {
    "opening-entry": Invariant(
        "a hold with an amount has one opening entry, of its amount and currency; a hold without has none",
        """
        SELECT h.id, format('amount %s %s, opening entries %s: %s %s',
                            h.amount, h.currency, coalesce(o.entries, 0), o.amount, o.currency)
        FROM holds AS h LEFT JOIN (
            SELECT hold_id, count(*) AS entries, min(amount) AS amount, min(currency) AS currency
            FROM ledger WHERE side = 'open' GROUP BY hold_id
        ) AS o ON o.hold_id = h.id
        WHERE coalesce(o.entries, 0) <> CASE WHEN h.amount IS NULL THEN 0 ELSE 1 END
           OR o.amount <> h.amount OR o.currency <> h.currency
        """,
    ),
    "closing-entry": Invariant(
        "a closed hold with an amount has one closing entry, which cancels out the opening one and says how it was "
        "closed; a held hold has none",
        """
        SELECT h.id, format('%s, closing entries %s (%s), balance %s', h.status, coalesce(l.closes, 0), l.reason,
                            coalesce(l.balance, 0))
        FROM holds AS h LEFT JOIN (
            SELECT hold_id, sum(amount) AS balance, count(DISTINCT currency) AS currencies,
                   count(*) FILTER (WHERE side = 'open') AS opens,
                   count(*) FILTER (WHERE side = 'close') AS closes,
                   min(reason) FILTER (WHERE side = 'close') AS reason
            FROM ledger GROUP BY hold_id
        ) AS l ON l.hold_id = h.id
        WHERE coalesce(l.closes, 0) <> CASE WHEN h.amount IS NULL OR h.status = 'held' THEN 0 ELSE 1 END
           OR (l.closes = 1 AND (l.reason <> h.status OR (l.opens > 0 AND (l.balance <> 0 OR l.currencies > 1))))
        """,
    ),
    "pruned-entries": Invariant(
        "entries whose hold was pruned are one opening and one closing entry that cancel out",
        """
        SELECT l.hold_id, format('the hold is gone; opening entries %s, closing entries %s, balance %s',
                                 count(*) FILTER (WHERE side = 'open'), count(*) FILTER (WHERE side = 'close'),
                                 sum(l.amount))
        FROM ledger AS l LEFT JOIN holds AS h ON h.id = l.hold_id
        WHERE h.id IS NULL GROUP BY l.hold_id
        HAVING count(*) <> 2 OR count(DISTINCT side) <> 2 OR sum(l.amount) <> 0 OR count(DISTINCT l.currency) <> 1
        """,
    ),
    "ledger-sum": Invariant(
        "per currency, the sum of all entries is the sum of the amounts of held holds",
        """
        SELECT NULL, format('%s: entries sum to %s, held holds to %s', currency, coalesce(l.amount, 0),
                            coalesce(h.amount, 0))
        FROM (SELECT currency, sum(amount) AS amount FROM ledger GROUP BY currency) AS l
        FULL JOIN (
            SELECT currency, sum(amount) AS amount FROM holds
            WHERE status = 'held' AND amount IS NOT NULL GROUP BY currency
        ) AS h USING (currency)
        WHERE coalesce(l.amount, 0) <> coalesce(h.amount, 0)
        """,
    ),
    "effect-key": Invariant(
        "each effect has the key that its kind, hold, version and deadline spell",
        f"""
        SELECT e.hold_id, format('%s is no key of a change %s to version %s until %s',
                                 e.key, e.kind, e.version, e.expires_at)
        FROM effects AS e WHERE e.key IS DISTINCT FROM {_EFFECT_KEY}
        """,
    ),
    "effect-hold": Invariant(
        "each effect's hold exists: pruning deletes both or neither",
        """
        SELECT e.hold_id, format('%s is there, the hold is gone', e.key)
        FROM effects AS e LEFT JOIN holds AS h ON h.id = e.hold_id WHERE h.id IS NULL
        """,
    ),
    "placed-effect": Invariant(
        "each hold has its effect hold-placed, of version 1 unless it was imported",
        """
        SELECT h.id, CASE WHEN p.key IS NULL THEN 'there is no effect hold-placed'
                          ELSE format('placed at version %s without an import', p.version) END
        FROM holds AS h LEFT JOIN effects AS p ON p.hold_id = h.id AND p.kind = 'placed'
        WHERE p.key IS NULL OR (p.version <> 1 AND NOT p.imported)
        """,
    ),
    "extended-effects": Invariant(
        "each version a hold has reached since it was placed (or imported) has its effect hold-extended, and no other",
        """
        SELECT h.id, format('began at version %s, is at %s, effects hold-extended: %s, from v%s to v%s',
                            p.version, h.version, coalesce(x.effects, 0), x.lowest, x.highest)
        FROM holds AS h JOIN effects AS p ON p.hold_id = h.id AND p.kind = 'placed' LEFT JOIN (
            SELECT hold_id, count(*) AS effects, min(version) AS lowest, max(version) AS highest
            FROM effects WHERE kind = 'extended' GROUP BY hold_id
        ) AS x ON x.hold_id = h.id
        WHERE coalesce(x.effects, 0) <> h.version - p.version
           OR x.lowest <> p.version + 1 OR x.highest <> h.version
        """,
    ),
    "deadline": Invariant(
        "a hold's deadline is the one its version was placed or extended with",
        """
        SELECT h.id, format('version %s was given the deadline %s, the hold says %s',
                            h.version, e.expires_at, h.expires_at)
        FROM holds AS h JOIN effects AS e ON e.hold_id = h.id AND e.version = h.version
        WHERE e.kind IN ('placed', 'extended') AND e.expires_at <> h.expires_at
        """,
    ),
    "closing-effect": Invariant(
        "a closed hold has one closing effect, which fits its status, version and deadline; a held hold has none",
        """
        SELECT h.id, format('%s at version %s until %s, closing effects %s: %s', h.status, h.version, h.expires_at,
                            coalesce(c.effects, 0), c.keys)
        FROM holds AS h LEFT JOIN (
            SELECT hold_id, count(*) AS effects, min(kind) AS kind, min(version) AS version,
                   min(expires_at) AS expires_at, string_agg(key, ', ' ORDER BY key) AS keys
            FROM effects WHERE kind NOT IN ('placed', 'extended') GROUP BY hold_id
        ) AS c ON c.hold_id = h.id
        WHERE CASE h.status WHEN 'held' THEN c.effects > 0
              ELSE (c.effects, c.kind, c.version, c.expires_at)
                   IS DISTINCT FROM (CAST(1 AS bigint), h.status, h.version, h.expires_at) END
        """,
    ),
    "expired-early": Invariant(
        "no hold was expired before its deadline",
        """
        SELECT e.hold_id, format('expired at %s, before its deadline %s', e.at, e.expires_at)
        FROM effects AS e WHERE e.kind = 'expired' AND NOT e.imported AND e.at < e.expires_at
        """,
    ),
    "closed-late": Invariant(
        "no hold was confirmed or cancelled at or after its deadline",
        """
        SELECT e.hold_id, format('%s at %s, its deadline was %s', e.kind, e.at, e.expires_at)
        FROM effects AS e WHERE e.kind IN ('confirmed', 'cancelled') AND NOT e.imported AND e.at >= e.expires_at
        """,
    ),
    "extended-late": Invariant(
        "no hold was extended at or after the deadline it had",
        """
        SELECT e.hold_id, format('extended to version %s at %s, its deadline was %s', e.version, e.at, b.expires_at)
        FROM effects AS e JOIN effects AS b ON b.hold_id = e.hold_id AND b.version = e.version - 1
        WHERE e.kind = 'extended' AND b.kind IN ('placed', 'extended') AND NOT e.imported AND e.at >= b.expires_at
        """,
    ),
    "receipt": Invariant(
        "each expiry that was not imported has its receipt",
        """
        SELECT e.hold_id, format('%s has receipt %s, which is not there', e.key, coalesce(e.receipt::text, 'none'))
        FROM effects AS e LEFT JOIN receipts AS r ON r.id = e.receipt
        WHERE e.kind = 'expired' AND NOT e.imported AND r.id IS NULL
        """,
    ),
    # Fewer effects than tallied is what pruning leaves, and what is pruned leaves no mark: it is a violation only of
    # a receipt so young that nothing of its time can be pruned yet. A remaining hold's lost effect has its own check.
    "receipt-tally": Invariant(
        "a receipt counts as many expiries as point to it; fewer only where holds of its time may be pruned",
        """
        SELECT NULL, format('receipt %s counts %s expired, effects that point to it: %s',
                            r.id, r.expired, coalesce(e.effects, 0))
        FROM (
            SELECT id, at, (SELECT coalesce(sum(n::bigint), 0) FROM jsonb_each_text(tally -> 'expired') AS t(c, n))
                   AS expired
            FROM receipts
        ) AS r LEFT JOIN (
            SELECT receipt, count(*) AS effects FROM effects WHERE kind = 'expired' GROUP BY receipt
        ) AS e ON e.receipt = r.id
        WHERE e.effects > r.expired
           OR (coalesce(e.effects, 0) < r.expired AND r.at > now() - CAST(:kept AS interval))
        """,
    ),
    # A message applied by hand names no run, whatever path it acts as.
    "receipt-run": Invariant(
        "a sweep run that receipts name exists, and observed at least what they expired",
        """
        SELECT NULL, format('receipts of run %s count %s expired, the run observed %s',
                            r.sweep_run, r.expired, coalesce(s.observed::text, 'nothing: it is gone'))
        FROM (
            SELECT r.sweep_run, coalesce(sum(t.n::bigint), 0) AS expired
            FROM receipts AS r LEFT JOIN LATERAL jsonb_each_text(r.tally -> 'expired') AS t(c, n) ON true
            WHERE r.sweep_run IS NOT NULL GROUP BY r.sweep_run
        ) AS r LEFT JOIN sweep_runs AS s ON s.id = r.sweep_run
        WHERE s.id IS NULL OR s.observed < r.expired
        """,
    ),
    "effect-event": Invariant(
        "each effect that was not imported has its event, of its type and hold",
        f"""
        SELECT e.hold_id, format('%s has no event %s', e.key, {_EVENT_ID})
        FROM effects AS e LEFT JOIN events AS v ON v.event_id = {_EVENT_ID}
        WHERE (v.event_id IS NULL AND NOT e.imported)
           OR v.hold_id <> e.hold_id OR v.type <> 'reservation.' || e.kind
        """,
    ),
    "event-effect": Invariant(
        "each event of a hold has its effect; of a pruned hold, only what outlived it to be delivered",
        f"""
        SELECT v.hold_id, format('event %s follows from no effect', v.event_id)
        FROM events AS v LEFT JOIN effects AS e ON {_EVENT_ID} = v.event_id
        WHERE e.key IS NULL AND v.hold_id IS NOT NULL AND NOT (
            NOT EXISTS (SELECT FROM holds AS h WHERE h.id = v.hold_id)
            AND EXISTS (SELECT FROM deliveries AS d WHERE d.event_id = v.event_id))
        """,
    ),
    "event-id": Invariant(
        "no event's id has a dot in it",
        """
        SELECT v.hold_id, format('event %s', v.event_id) FROM events AS v WHERE strpos(v.event_id, '.') > 0
        """,
    ),
    "set-aside-letter": Invariant(
        "each held hold that is set aside has an open dead letter",
        f"""
        SELECT h.id, 'is set aside without an open dead letter: nobody will see it'
        FROM holds AS h LEFT JOIN dead_letters AS d ON d.key = {_LETTER_KEY} AND d.replayed_at IS NULL
        WHERE h.set_aside AND h.status = 'held' AND d.id IS NULL
        """,
    ),
    "set-aside-closed": Invariant(
        "no closed hold is set aside",
        """
        SELECT h.id, format('is %s, and set aside', h.status) FROM holds AS h
        WHERE h.set_aside AND h.status <> 'held'
        """,
    ),
    "letter-hold": Invariant(
        "the hold of an open dead letter of an expiry, while it is held at that version, is set aside",
        f"""
        SELECT h.id, format('dead letter %s is open, the hold is not set aside', d.id)
        FROM dead_letters AS d JOIN holds AS h ON h.id = d.hold_id
        WHERE d.kind = 'expiry' AND d.replayed_at IS NULL AND d.key = {_LETTER_KEY}
          AND h.status = 'held' AND NOT h.set_aside
        """,
    ),
}
