"""Shell completion of names: methods, losses, data sets, models and more, and the options of each.

A shell asks while the user types. So nothing is imported before it is needed, and nothing raises.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator

Names = Callable[[], Iterable[str]]
OptionsOf = Callable[[str], Iterable[str]]
Completer = Callable[[str], list[str]]


def completer(names: Names, options_of: OptionsOf = lambda name: ()) -> Completer:
    """What `autocompletion=` takes: names, and after `name:` the options of that name."""

    def complete(incomplete: str) -> list[str]:
        try:
            return _candidates(incomplete, names, options_of)
        except Exception:
            return []  # a completion that fails must not disturb the line being typed

    return complete


def _candidates(incomplete: str, names: Names, options_of: OptionsOf) -> list[str]:
    matches = [name for name in names() if name.startswith(incomplete)]
    name, colon, tail = incomplete.partition(":")
    if matches or not colon:
        return matches
    written, _, last = tail.rpartition(",")
    used = {option.partition("=")[0] for option in written.split(",")}
    start = incomplete.removesuffix(last)
    options = (option for option in options_of(name) if option not in used)
    return [f"{start}{option}=" for option in options if option.startswith(last)]


def _method_names() -> Iterable[str]:
    from fenchel import methods  # registers the library's own
    from fenchel.adapters import METHODS

    return dict.fromkeys((*methods.STANDARD_METHODS, *METHODS.everything()))


def _method_options(name: str) -> Iterable[str]:
    from fenchel import methods  # noqa: F401, registers the library's own
    from fenchel.adapters import METHODS

    return METHODS[name].options()


def _loss_names() -> Iterable[str]:
    from fenchel.losses import LOSSES

    return LOSSES


def _loss_options(name: str) -> Iterable[str]:
    from fenchel.losses import LOSSES

    return [field.name for field in dataclasses.fields(LOSSES[name]) if field.init]


def _dataset_names() -> Iterable[str]:
    from fenchel.data import DATASETS

    return sorted(DATASETS)


def _dataset_options(name: str) -> Iterable[str]:
    from fenchel.data import DATASETS

    return DATASETS[name].options


def _fetchable_names() -> Iterable[str]:
    from fenchel.data import DATASETS

    return sorted(name for name, entry in DATASETS.items() if entry.recipe)


def _made_names() -> Iterable[str]:
    from fenchel.data.make import PUBLIC_FOLDERS

    return PUBLIC_FOLDERS


def _corruption_names() -> Iterable[str]:
    from fenchel.data.corruptions import CORRUPTIONS

    return CORRUPTIONS


def _model_names() -> Iterable[str]:
    from fenchel.models import MODELS

    return MODELS


def _model_options(name: str) -> Iterable[str]:
    from fenchel.models import MODELS

    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(MODELS[name]).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def _zoo_names() -> Iterable[str]:
    from fenchel.models import zoo

    return [f"zoo:{name}" for name in zoo.names()]


def _pretrained_names() -> Iterable[str]:
    from fenchel.models import PRETRAINED

    return PRETRAINED


def _training_presets() -> Iterable[str]:
    from fenchel.train import PRESETS

    return PRESETS


def _paper_presets() -> Iterable[str]:
    from fenchel.paper import PRESETS

    return ["list", *PRESETS]


def _hostile_columns() -> Iterable[str]:
    from fenchel.paper.hostile import hostile_table

    return (column.name for column in hostile_table().columns)


def _hostile_rows() -> Iterable[str]:
    from fenchel.paper.hostile import hostile_table

    return (row.title for row in hostile_table().rows)


def _scale_names() -> Iterable[str]:
    from fenchel.paper import SCALES

    return SCALES


def _executor_names() -> Iterable[str]:
    from fenchel.bench.executors import EXECUTORS

    return EXECUTORS


methods = completer(_method_names, _method_options)
method_names = completer(_method_names)
losses = completer(_loss_names, _loss_options)
datasets = completer(_dataset_names, _dataset_options)
dataset_names = completer(_dataset_names)
fetchable_datasets = completer(_fetchable_names)
made_datasets = completer(_made_names)
corruptions = completer(_corruption_names)
models = completer(_model_names, _model_options)
models_and_zoo = completer(
    lambda: [
        *_model_names(),
        *_zoo_names(),
        *(f"pretrained:{name}" for name in _pretrained_names()),
    ]
)
pretrained = completer(_pretrained_names)
training_presets = completer(_training_presets)
paper_presets = completer(_paper_presets)
hostile_columns = completer(_hostile_columns)
hostile_rows = completer(_hostile_rows)
scales = completer(_scale_names)
executors = completer(_executor_names)


_BREAK = re.compile(r"[:=]+")


@contextlib.contextmanager
def whole_words() -> Iterator[None]:
    """Undo that bash ends words at `:` and `=`: it hands over `hard:th` as the three words `hard : th`.

    The words are joined for the program, and the answer is cut to what bash replaces, the last of them.
    """
    environment = os.environ
    if environment.get("_FENCHEL_COMPLETE") != "complete_bash":
        yield
        return
    joined, typed = join_words(
        environment.get("COMP_WORDS", ""), int(environment.get("COMP_CWORD") or 0)
    )
    environment["COMP_WORDS"], environment["COMP_CWORD"] = shlex.join(joined), str(len(joined) - 1)
    answer = io.StringIO()
    try:
        with contextlib.redirect_stdout(answer):
            yield
    finally:
        if typed.startswith("--"):
            typed = typed.partition("=")[2]  # of --method=hard:th, the program completes the value
        for line in answer.getvalue().splitlines():
            print(line.removeprefix(typed))


def join_words(text: str, place: int) -> tuple[list[str], str]:
    """The words up to the one at `place`, joined around `:` and `=`; and what of it is not replaced.

    >>> join_words("fenchel adapt --method hard : th", 5)
    (['fenchel', 'adapt', '--method', 'hard:th'], 'hard:')
    >>> join_words("fenchel adapt --method ha", 3)
    (['fenchel', 'adapt', '--method', 'ha'], '')
    """
    words = _split(text)[: place + 1]
    words += [""] * (place + 1 - len(words))
    joined: list[str] = []
    typed, glue = "", False
    for word in words:
        is_break = _BREAK.fullmatch(word) is not None
        if joined and (glue or is_break):
            typed = joined[-1] + (word if is_break else "")
            joined[-1] += word
        else:
            typed = ""
            joined.append(word)
        glue = is_break
    return joined, typed


def _split(text: str) -> list[str]:
    """The words of a line that may be unfinished, such as within quotes."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
