"""What is to be carried over a bridge: a message for each version of a held hold whose cohort is on path `infrai`.

The row is written in the transaction that placed or extended the hold, and waits there until its deadline enters the
horizon. A hold that is extended, confirmed or cancelled afterwards needs no recall: its message will be stale.
"""

HORIZON = "interval '7 days'"
"""SQL: how far ahead a message may be published; longer waits are the table's."""


def messages_of(source: str, *, expires_at: str, at: str) -> str:
    """The statement that writes the messages of these held holds, for those whose cohort a bridge carries.

    `source` has `hold_id`, `version` and `cohort`.

    Rolled back: no hold and no message. The cohort is routed at the same moment: this statement's snapshot decides,
    and `cohorts.fill` looks again once every transaction that may have seen the old path has ended.
    """
    return f"""
    INSERT INTO bridge_messages (hold_id, version, expires_at, publish_at)
    SELECT hold_id, version, {expires_at}, greatest({at}, {expires_at} - {HORIZON})
    FROM {source} JOIN cohort_paths AS p USING (cohort) WHERE p.path = 'infrai'
    ON CONFLICT DO NOTHING
    """  # noqa: S608 - the parts are constants of this project
