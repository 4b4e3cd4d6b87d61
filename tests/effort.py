"""How hard property tests try: `--hypothesis-profile quick` tries a quarter of what they ask for.

How long an example takes, and how long it takes to find one, is no test's business: both depend on who else has work for
the machine. `--examples N` is for the test that `make soak` runs.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK = 30  # examples of a test that does not say how many it needs, instead of a hundred
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("whole", _UNTIMED)
settings.register_profile("quick", _UNTIMED, max_examples=QUICK)
settings.load_profile("whole")  # until the command line names another one

wanted: int | None = None  # examples of the test that soaks, if the command line says how many


def examples(wanted: int) -> int:
    """The number of examples for a test that needs this many when there is time."""
    default = settings.default
    return wanted if default is None or default.max_examples > QUICK else max(QUICK, wanted // 4)
