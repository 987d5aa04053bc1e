"""One expired hold and one extended, two deliveries each, in both orders."""

from datetime import timedelta

from comparison.ground import expired_once, untouched
from comparison.trial import Trial
from domain.references import Reference

ORDERS = {
    "expired first": ("expired", "extended", "expired", "extended"),
    "extended first": ("extended", "expired", "extended", "expired"),
}


def both_orders(trial: Trial) -> None:
    """Each order has its own two holds; what the database says of them must not depend on the order."""
    finals = []
    for title, order in ORDERS.items():
        references, names = _scene(trial, title)
        trial.worker = trial.new_worker()
        seen = []
        for subject in order:
            trial.publish(references[subject], subject)
            seen.append(trial.receive(subject))
        trial.check_outcomes([_outcome(order, place) for place in range(len(order))], seen)
        trial.check_expired_once_each(1)
        trial.check_states({names["expired"]: expired_once(), names["extended"]: untouched(version=2)})
        trial.check_own_payload()
        states = trial.ground.states(names.values())
        finals.append([states.get(names[subject]) for subject in ("expired", "extended")])
        for subject in ("expired", "extended"):
            trial.step("hold", str(getattr(states.get(names[subject]), "status", "missing")), subject)
        trial.end_timeline(title)
    same = finals[0] == finals[1]
    trial.check("the same final state in both orders", "equal" if same else "they differ", passed=same)


def _scene(trial: Trial, order: str) -> tuple[dict[str, Reference], dict[str, str]]:
    """A hold past its deadline, and one whose first deadline has passed and which was extended before it did."""
    names = {
        subject: trial.name(f"{subject}-when-{order.replace(' ', '-')}", subject) for subject in ("expired", "extended")
    }
    [expired] = trial.ground.overdue(names["expired"])
    [first] = trial.ground.place(names["extended"])
    trial.ground.extend(first, timedelta(hours=4))
    [extended] = trial.ground.pass_time([first.id], timedelta(hours=3))
    old = Reference.to(extended.id, 1, extended.expires_at - timedelta(hours=4))
    return {"expired": expired.reference, "extended": old}, names


def _outcome(order: tuple[str, ...], place: int) -> str:
    if order[place] == "extended":
        return "stale"
    return "duplicate" if "expired" in order[:place] else "expired"
