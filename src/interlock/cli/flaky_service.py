"""The folder that the demo plays in: a small service that fails now and then, its log, configuration and code.

Lives here: `build`. The cause can be found by reading: a report takes a connection and does not always give it back.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

LOG = "logs/checkout.log"
CONFIG = "config/checkout.toml"
REPORT = "checkout/report.py"
POOL = "checkout/pool.py"

_CONFIG = """\
[database]
pool_size = 4
pool_timeout = 2.0   # seconds that a request waits for a free connection

[report]
every = 600          # seconds

[supervisor]
restart_after = 2    # failed requests in a row
"""

_POOL = '''\
"""Connections to the database: a request borrows one and gives it back."""

import queue


class Pool:
    def __init__(self, connect, size, timeout):
        self._free = queue.Queue()
        self._timeout = timeout
        for _ in range(size):
            self._free.put(connect())

    def take(self):
        try:
            return self._free.get(timeout=self._timeout)
        except queue.Empty:
            raise TimeoutError(f"no free connection after {self._timeout} s") from None

    def give_back(self, connection):
        self._free.put(connection)
'''

_REPORT = '''\
"""Every ten minutes: what the orders of the day are worth."""


def run(pool):
    connection = pool.take()
    total = sum(worth(order) for order in connection.orders_of_today())
    pool.give_back(connection)
    return total


def worth(order):
    if order.price is None:
        raise ValueError(f"order {order.id} has no price")
    return order.price * order.amount
'''

_SERVICE = '''\
"""Takes orders: each request uses one connection of the pool."""


def checkout(pool, basket):
    connection = pool.take()
    try:
        return connection.insert_order(basket)
    finally:
        pool.give_back(connection)
'''


def build(folder: Path) -> None:
    """Write the files into `folder`, which is empty."""
    for name, text in {
        LOG: _log(),
        CONFIG: _CONFIG,
        POOL: _POOL,
        REPORT: _REPORT,
        "checkout/service.py": _SERVICE,
    }.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def _log() -> str:
    """Two hours in which four reports fail, each with a connection, before the requests do."""
    at = datetime(2026, 11, 28, 8, 0, 0)
    lines = []
    free, order = 4, 1030

    def say(level: str, text: str) -> None:
        lines.append(f"{at:%Y-%m-%d %H:%M:%S} {level:<5} {text}")

    say("INFO", "checkout started, pool 4 of 4 free")
    for report in range(1, 13):
        at += timedelta(minutes=10)
        for _ in range(2):
            order += 1
            at += timedelta(seconds=3)
            if free:
                say("INFO", f"order {order} accepted in {20 + order % 7} ms, pool {free} of 4 free")
            else:
                say("ERROR", f"order {order} failed: TimeoutError: no free connection after 2.0 s")
        if not free:
            say("WARN", "supervisor: too many failed requests, restarting")
            free = 4
            say("INFO", "checkout started, pool 4 of 4 free")
        elif report % 2:
            free -= 1
            say("ERROR", f"report {report} failed: ValueError: order {order} has no price")
        else:
            say("INFO", f"report {report} done, pool {free} of 4 free")
    return "\n".join(lines) + "\n"
