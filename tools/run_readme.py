"""Run the README's Python examples: the first one, or all of them with ``--all``."""

import pathlib
import re
import sys

README = pathlib.Path(__file__).parent.parent / "README.md"


def examples(document: pathlib.Path = README) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```$", document.read_text(), flags=re.MULTILINE | re.DOTALL
    )


if __name__ == "__main__":
    chosen = examples() if "--all" in sys.argv[1:] else examples()[:1]
    for source in chosen:
        exec(compile(source, str(README), "exec"), {"__name__": "__main__"})
