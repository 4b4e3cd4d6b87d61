"""How hard property tests try: `--hypothesis-profile quick` tries a quarter of what they ask for.

`--examples N` is for the test that `make soak` runs.
"""

from __future__ import annotations

from hypothesis import settings

QUICK = 30  # examples of a test that does not say how many it needs, instead of a hundred
settings.register_profile("quick", max_examples=QUICK)

wanted: int | None = None  # examples of the test that soaks, if the command line says how many


def examples(wanted: int) -> int:
    """The number of examples for a test that needs this many when there is time."""
    default = settings.default
    return wanted if default is None or default.max_examples > QUICK else max(QUICK, wanted // 4)
