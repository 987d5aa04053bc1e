"""The steps at which a worker is killed."""

STEPS = (
    "after the claim, before the publish",
    "after the publish",
    "inside the transaction",
    "after the commit, before the ack",
)
