"""``pollux pretrain``: learn features of images without labels."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollux.app.console import GOOD, STOPPED, Console, say
from pollux.errors import counted

if TYPE_CHECKING:
    from pollux.training import Epoch

# Listed here because importing the data sets imports numpy; a test compares the two lists.
DATA_SETS = "mnist, fashion_mnist, cifar10"
_VIEWS = {"view_size": "size", "flip": "flip"}
_SETTINGS = ("epochs", "batch_size", "temperature", "learning_rate", "weight_decay", "widths", "blocks", "random_state")


def add(commands: Any) -> None:
    pretrain = commands.add_parser(
        "pretrain",
        description="Learn features of images without labels, to cluster the images by.",
    )
    methods = pretrain.add_subparsers(dest="method", metavar="METHOD", required=True)
    simclr = methods.add_parser(
        "simclr",
        help="features that random views of an image share",
        description=f"Learn an encoder from the images of DATA, which is {DATA_SETS} or an .npy file, an .npz file or "
        "a folder of images: two random views of an image get similar features, unlike those of other images. "
        "The file is written after each epoch; a training that was stopped goes on with --resume.",
        argument_default=argparse.SUPPRESS,
    )
    simclr.add_argument("data", metavar="DATA", help="the data set, file or folder")
    training = simclr.add_argument_group("training")
    for option, kind, words in (
        ("--epochs N", int, "passes over the images (default: 100)"),
        ("--batch-size N", int, "images of a step (default: 256)"),
        ("--temperature X", float, "of the loss (default: 0.5)"),
        ("--learning-rate X", float, "its peak (default: 0.002)"),
        ("--weight-decay X", float, "default: 0.0001"),
        ("--widths N,N", _numbers, "channels of each stage (default: 32,128,256)"),
        ("--blocks N,N", _numbers, "blocks of each stage (default: 1,1,1)"),
    ):
        name, metavar = option.split()
        training.add_argument(name, metavar=metavar, type=kind, help=words)
    training.add_argument("--seed", metavar="N", type=int, dest="random_state", help="of all randomness (default: 0)")
    training.add_argument("--threads", metavar="N", type=int, help="most threads of the training (default: one a core)")
    views = simclr.add_argument_group("views")
    views.add_argument(
        "--view-size", metavar="N", type=int, help="side of the views: smaller ones are faster (default: as the images)"
    )
    views.add_argument(
        "--flip",
        action=argparse.BooleanOptionalAction,
        help="mirror half of the views, unless left and right mean something (default: yes, but not for mnist)",
    )
    reading = simclr.add_argument_group("reading")
    reading.add_argument("--array", metavar="NAME", help="which array of an .npz file holds the images")
    reading.add_argument("--image-size", metavar="N", type=int, help="scale the images of a folder to N × N")
    output = simclr.add_argument_group("output")
    output.add_argument("--out", metavar="FILE", help="the encoder's file (default: NAME-simclr.safetensors)")
    output.add_argument("--resume", action="store_true", help="go on with the training of the file")
    output.add_argument("--overwrite", action="store_true", help="the file may hold an older encoder")
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")
    simclr.set_defaults(run=run)


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"whole numbers such as 32,128,256; not {text!r}") from None


def run(options: argparse.Namespace) -> int:
    from pollux.app.signals import stop_on_signals
    from pollux.lab.pretraining import pretrain_simclr
    from pollux.lab.pretraining.image_arrays import read_images
    from pollux.lab.pretraining.simclr import checkpoint_folder
    from pollux.threads import at_most
    from pollux.training import Checkpoints, ProgressBar

    console = Console(quiet=getattr(options, "quiet", False))
    echo = console.echo
    out = Path(getattr(options, "out", None) or f"{Path(options.data).stem}-simclr.safetensors")
    checkpoints = Checkpoints(checkpoint_folder(out))
    _check(options, out, checkpoints.exist())
    settings = _settings(options, out, checkpoints.exist())
    reading = {name: getattr(options, name, None) for name in ("array", "image_size")}
    images = read_images(options.data, **reading)
    echo(f"{len(images):,} images of {'×'.join(map(str, images.shape[1:]))}")
    shown: Any = ProgressBar(_describe) if sys.stderr.isatty() else EpochLines(len(images))
    callbacks = [] if console.quiet else [shown]
    try:
        with at_most(getattr(options, "threads", 0)), stop_on_signals(checkpoints):
            result = pretrain_simclr(
                images,
                **settings,
                out=out,
                resume=hasattr(options, "resume"),
                checkpoints=checkpoints,
                callbacks=callbacks,
            )
    except KeyboardInterrupt:
        if not checkpoints.exist():
            say("Stopped before the training had begun: nothing was written.")
            return STOPPED
        given = [f"--{name.replace('_', '-')}={value}" for name, value in reading.items() if value is not None]
        again = shlex.join(["pollux", "pretrain", "simclr", options.data, *given, "--out", str(out), "--resume"])
        # Before the end of the first epoch, a file of this name is left from an earlier training.
        usable = f" {out} holds the encoder of the last whole epoch, and can be used as it is."
        say(f"Stopped.{usable if checkpoints.epochs_done() else ''} To go on: {again}")
        return STOPPED
    echo(f"loss {result.history['loss'][-1]:.4f} after {counted(len(result.history['loss']), 'epoch')}")
    echo(f"saved in {out}")
    echo("next, in Python:")
    echo("from pollux.geometry import resolve")
    echo("from pollux.lab.pretraining import load_encoder")
    echo(f'geometry = resolve("linear", encoder=load_encoder({str(out)!r}))')
    return GOOD


def _check(options: argparse.Namespace, out: Path, has_checkpoints: bool) -> None:
    """Raise an InputError for invalid options, before any data is read."""
    from pollux.embedding.image_encoder import check_writable
    from pollux.errors import InputError

    resume, overwrite = hasattr(options, "resume"), hasattr(options, "overwrite")
    if resume and overwrite:
        raise InputError("--resume goes on with the file and --overwrite replaces it: give one of them.")
    if (out.is_file() or has_checkpoints) and not (resume or overwrite):
        found = f"{out} exists" if out.is_file() else f"There are checkpoints of {out}"
        raise InputError(f"{found}: go on with its training (--resume), replace it (--overwrite), or use --out.")
    if getattr(options, "threads", 1) < 1:
        raise InputError(f"--threads must be at least 1, not {options.threads}.")
    check_writable(out)


def _settings(options: argparse.Namespace, out: Path, has_checkpoints: bool) -> dict[str, Any]:
    """Return the arguments of the training: those given, otherwise those of the training that is resumed."""
    from dataclasses import replace

    from pollux.lab.pretraining import Augmentation, stored_settings

    stored = stored_settings(out) if hasattr(options, "resume") and (out.exists() or has_checkpoints) else {}
    views = stored.get("augmentation") or Augmentation(flip=options.data != "mnist")
    changed = {field: getattr(options, name) for name, field in _VIEWS.items() if hasattr(options, name)}
    given = {name: getattr(options, name) for name in _SETTINGS if hasattr(options, name)}
    return {**stored, **given, "augmentation": replace(views, **changed)}


def _describe(epoch: Epoch) -> str:
    return f"loss {-epoch.objective:.4f}  matched {epoch.metrics['matched']:.1%}"


class EpochLines:
    """Prints a line after each epoch: mean loss, share of matched views, speed, remaining time."""

    def __init__(self, n_images: int) -> None:
        self._n_images, self._epochs, self._begun = n_images, 0, time.monotonic()

    def __call__(self, epoch: Epoch) -> None:
        self._epochs += 1
        seconds = max((time.monotonic() - self._begun) / self._epochs, 1e-9)
        left = timedelta(seconds=round((epoch.max_epochs - epoch.number) * seconds))
        speed = f"{self._n_images / seconds:,.0f} images/s"
        # Flush at once, for those who watch the output in a file.
        print(f"epoch {epoch.number}/{epoch.max_epochs}  {_describe(epoch)}  {speed}  {left} left", flush=True)
