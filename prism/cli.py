"""The command line: verb -> module of prism.commands, imported when the verb is called."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper

from prism.reporting.files import one_line

VERBS = {
    "train": "train a recipe, or resume an interrupted run",
    "recipes": "list the recipes",
    "eval": "evaluate trained models on whole images",
    "occlusion": "measure how robust models are to occlusion",
    "predict": "classify images",
    "detect": "find objects in images",
    "segment": "label every pixel of images",
    "study": "make a table or figure of the paper, or one beyond it",
    "slots": "draw which slot wins which part of an image",
    "info": "count parameters and GMACs of a model",
    "speed": "time several models, in images per second",
    "feed": "check whether data loading keeps up with training",
    "export": "export to another engine, or write weights at half the size",
    "convert": "convert an official checkpoint of a baseline",
    "app": "open the playground: hide parts of an image in the browser",
}
# which extra brings a package that is not part of the base installation
EXTRAS = {
    "tensorboard": "train",
    "webdataset": "train",
    "braceexpand": "train",
    "datasets": "train",
    "faster_coco_eval": "detection",
    "starlette": "app",
    "uvicorn": "app",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "export",
    "openvino": "export",
    "huggingface_hub": "export",
    **dict.fromkeys(("tyro", "rich", "pandas", "jinja2", "matplotlib", "scipy", "accelerate"), "occlusion"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; what a user got wrong is one sentence, not a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, TextIOWrapper):  # a file's name need not be text
        sys.stdout.reconfigure(errors="backslashreplace")
    verb = words[0] if words else "--help"
    if verb in ("-h", "--help"):
        print(overview())
        return
    if verb not in VERBS:
        near = get_close_matches(verb, VERBS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(VERBS)}"
        print(f"prism: unknown command {verb!r}; {hint}", file=sys.stderr)
        sys.exit(2)
    try:
        from prism.reporting.provenance import called_as

        with called_as(words):
            run(verb, words[1:])
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        sys.exit(f"prism: {package} is not installed; in a clone of PRISM: pip install '.[{EXTRAS[package]}]'")
    except (ValueError, OSError) as error:
        sentence = str(error)
        if "Original Traceback" in sentence:  # a worker's: its last line is the error's name and its message
            sentence = sentence.strip().splitlines()[-1].partition(": ")[2]
        sys.exit(f"prism: {one_line(' '.join(sentence.split()))}")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RecursionError):
            sys.exit("prism: an input is nested too deeply")
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # torch has no class for it
            raise
        sys.exit(f"prism: not enough memory: {one_line(str(error).partition('.')[0])}")
    except KeyboardInterrupt:
        sys.exit("prism: interrupted")


def run(verb: str, words: Sequence[str]) -> None:
    """A verb's file has a function of its name; or `run`, where what it takes depends on what is registered."""
    from prism.commands.parsing import parse

    module = import_module(f"prism.commands.{verb}")
    if hasattr(module, "run"):
        module.run(words)
    else:
        parse(getattr(module, verb), words, verb)


def overview() -> str:
    lines = [f"  {verb:<10} {what}" for verb, what in VERBS.items()]
    return "\n".join(
        ["usage: prism COMMAND ...", "", *lines, "", "prism COMMAND --help lists the options of a command."]
    )


if __name__ == "__main__":
    main()
