"""A consumer in a process of its own: `python -m comparison.consumer`."""

from importlib import import_module

from comparison.processes import orders, say_ready
from comparison.worker import ExpiryWorker, Point
from db.engine import Database


def main() -> None:
    """Attach to the candidate that is named and consume until killed."""
    order = orders()
    candidate = import_module(order["module"]).attach(order["address"])
    worker = ExpiryWorker(Database(order["database"]), f"{order['name']}-consumer", dies=Point(order["dies"]))
    say_ready()
    candidate.serve(worker)


if __name__ == "__main__":
    main()
