"""Say how much of the package the last measured test run covered, branches included, and fail where it is too little."""

from __future__ import annotations

import io
import sys

from coverage import Coverage

PARTS = ("log", "loop", "tools", "intercept")  # where a branch that no test takes may break a promise
FLOOR = 95.0  # per cent of each of them


def main() -> int:
    run = Coverage()
    run.load()

    def covered(files: str) -> float:
        return run.report(include=[files], file=io.StringIO())

    low = []
    print(f"Coverage: {covered('*'):.1f} % of all")
    for part in PARTS:
        files = f"src/interlock/{part}/*"
        percent = covered(files)
        print(f"  {percent:5.1f} % of {part}")
        if percent < FLOOR:
            low.append(files)
    if low:
        print(f"These lines have no test, and at least {FLOOR:g} % of each part must have one:")
        run.report(include=low, show_missing=True, skip_covered=True)
    return len(low)


if __name__ == "__main__":
    sys.exit(main())
