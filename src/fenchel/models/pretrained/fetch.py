"""Fetching a network by name: its published files, turned into a checkpoint that knows its loss."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from fenchel.fetching.retrieve import Say, retrieve
from fenchel.models.checkpoint import Checkpoint, Metadata, load_checkpoint
from fenchel.models.pretrained.registry import PRETRAINED, PretrainedEntry, file_of
from fenchel.models.registry import build
from fenchel.models.weights import load_weights
from fenchel.wnids import wnids


def fetch(name: str, *, force: bool = False, say: Say = print) -> Path:
    """Bring the network `name` into the cache and check its weights; the checkpoint's file is returned.

    What is there already and has the right weights is left alone, unless `force`. A download that breaks
    off is resumed by the next call.
    """
    return fetch_entry(name, PRETRAINED[name], file_of(name), force=force, say=say)


def fetch_entry(name: str, entry: PretrainedEntry, file: Path, *, force: bool, say: Say) -> Path:
    """The same for an entry that need not be registered."""
    if not force and _is_whole(file, entry):
        say(f"{name} is already in {file} (--force fetches it again)")
        return file
    downloads = file.parent / "download"
    retrieve(name, entry.recipe, downloads, say=say)
    say(f"reading {name}")
    checkpoint = assemble(name, entry, downloads)
    if checkpoint.digest != entry.digest:
        raise ValueError(
            f"the weights of {name} must have the SHA-256 {entry.digest}; those in {downloads} have "
            f"{checkpoint.digest}. Delete that folder and fetch again."
        )
    checkpoint.save(file)
    shutil.rmtree(downloads)
    say(f"{name} is ready in {file} (SHA-256 of the weights verified)")
    return file


def assemble(name: str, entry: PretrainedEntry, downloads: Path) -> Checkpoint:
    """The network with the weights of the published files, and what is known of it."""
    with torch.random.fork_rng(devices=[]):
        model = build(entry.architecture, **entry.arguments)
    load_weights(model, entry.read(downloads), origin=f"the files of {name}")
    metadata = Metadata(
        architecture=entry.architecture,
        arguments=entry.arguments,
        loss=entry.loss,
        classes=wnids(),
        data="imagenet",
        recipe={"published": name, "source": entry.recipe.source, "evidence": entry.evidence},
        metrics={"published_error": entry.error},
    )
    return Checkpoint(model.eval(), metadata)


def _is_whole(file: Path, entry: PretrainedEntry) -> bool:
    if not file.is_file():
        return False
    try:
        return load_checkpoint(file).digest == entry.digest
    except (ValueError, OSError):
        return False  # it is fetched anew
