"""The `prism` command. It answers --help, lists and usage errors without torch, which takes seconds to import.

`import prism` registers the models and so imports torch. Here the package is known but not yet executed: its
subpackages can be imported one by one, and a command executes it before it runs (`prism.commands.parsing`).
"""

import sys
from importlib.util import find_spec, module_from_spec


def main() -> None:
    spec = find_spec("prism")
    assert spec is not None
    sys.modules["prism"] = module_from_spec(spec)
    from prism.cli import main as run

    run()


if __name__ == "__main__":
    main()
