"""Files that somebody has changed: ``python -m tests.attacks 1000`` tries so many of each kind.

It prints a table: how many were tried, how many were refused, and the most memory there was.
"""

import collections
import functools
import pathlib
import resource
import sys
import tempfile
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings

from tests import attacks_on_models, attacks_on_tables

MOST_GIGABYTES = 1.0
LARGEST_BOMB = 4e6


def battery(count: int, strategy, attack: Callable[[bytes], None]) -> None:
    """So many files of one kind."""

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(strategy)
    def attack_once(changed):
        attack(changed)

    attack_once()


def peak_memory() -> int:
    """In kilobytes. To ``getrusage`` a child is as large as the process that forked it."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(status.read_text().split("VmHWM:")[1].split()[0])


def main(count: int) -> None:
    tried, refused = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files = {
            attacks_on_models: attacks_on_models.fitted(folder),
            attacks_on_tables: attacks_on_tables.originals(),
        }

        def attack(look, kind, name, content):
            tried[kind] += 1
            refused[kind] += look(folder, name, content)

        for module, look in (
            (attacks_on_models, attacks_on_models.predict),
            (attacks_on_tables, attacks_on_tables.read),
        ):
            for kind, strategy in module.ATTACKS.items():
                for name, content in files[module].items():
                    each = max(1, count // len(files[module]))
                    battery(each, strategy(content), functools.partial(attack, look, kind, name))
        for bomb in attacks_on_models.bombs(files[attacks_on_models]["classes"]).values():
            assert len(bomb) < LARGEST_BOMB
            attack(attacks_on_models.predict, "bombs", "classes", bomb)
    print(f"| {'what was changed':20} | tried | refused |")
    for kind in tried:
        print(f"| {kind:20} | {tried[kind]:5} | {refused[kind]:7} |")
    most = peak_memory() / 2**20
    print(f"{tried.total()} files, no traceback, at most {most:.2f} GB of memory")
    assert most < MOST_GIGABYTES


if __name__ == "__main__":
    main(int(sys.argv[1]))
