"""``pollux pretrain``: learn features of images without labels."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from pollux.app.console import GOOD, STOPPED, counted, nothing, say

# Written out, because the data sets bring numpy; a test compares them.
DATA_SETS = "mnist, fashion_mnist, cifar10"
_VIEWS = {"view_size": "size", "flip": "flip"}
_LIBRARY = ("epochs", "batch_size", "temperature", "learning_rate", "weight_decay", "widths", "blocks", "random_state")


def add(commands: Any) -> None:
    pretrain = commands.add_parser(
        "pretrain",
        allow_abbrev=False,
        description="Learn features of images without labels, to cluster the images by.",
    )
    methods = pretrain.add_subparsers(dest="method", metavar="METHOD", required=True)
    simclr = methods.add_parser(
        "simclr",
        allow_abbrev=False,
        help="features that random views of an image share",
        description=f"Learn an encoder from the images of DATA, which is {DATA_SETS} or an .npy file, an .npz file or "
        "a folder of images: two random views of an image are to have like features, unlike those of other images. "
        "The file is written after each epoch; a training that was stopped goes on with --resume.",
        argument_default=argparse.SUPPRESS,
    )
    simclr.add_argument("data", metavar="DATA", help="the data set, file or folder")
    _add_training(simclr.add_argument_group("training"))
    _add_views(simclr.add_argument_group("views"))
    reading = simclr.add_argument_group("reading")
    reading.add_argument("--array", metavar="NAME", help="which array of an .npz file holds the images")
    reading.add_argument("--image-size", metavar="N", type=int, help="scale the images of a folder to N × N")
    output = simclr.add_argument_group("output")
    output.add_argument("--out", metavar="FILE", help="the encoder's file (default: NAME-simclr.safetensors)")
    output.add_argument("--resume", action="store_true", help="go on with the training in the file")
    output.add_argument("--overwrite", action="store_true", help="the file may hold an older encoder")
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")
    simclr.set_defaults(run=run)


def _add_training(group: Any) -> None:
    group.add_argument("--epochs", metavar="N", type=int, help="passes over the images (default: 100)")
    group.add_argument("--batch-size", metavar="N", type=int, help="images of a step (default: 256)")
    group.add_argument("--temperature", metavar="X", type=float, help="of the loss (default: 0.5)")
    group.add_argument("--learning-rate", metavar="X", type=float, help="its peak (default: 0.002)")
    group.add_argument("--weight-decay", metavar="X", type=float, help="default: 0.0001")
    group.add_argument("--widths", metavar="N,N", type=_numbers, help="channels of each stage (default: 32,128,256)")
    group.add_argument("--blocks", metavar="N,N", type=_numbers, help="blocks of each stage (default: 1,1,1)")
    group.add_argument("--seed", metavar="N", type=int, dest="random_state", help="of all randomness (default: 0)")
    group.add_argument("--threads", metavar="N", type=int, help="most threads of the training (default: one a core)")


def _add_views(group: Any) -> None:
    group.add_argument(
        "--view-size", metavar="N", type=int, help="side of the views: smaller ones are faster (default: as the images)"
    )
    group.add_argument(
        "--flip",
        action=argparse.BooleanOptionalAction,
        help="mirror half of the views, unless left and right mean something (default: yes, but not for mnist)",
    )


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"whole numbers such as 32,128,256; not {text!r}") from None


def run(options: argparse.Namespace) -> int:
    tell = nothing if getattr(options, "quiet", False) else print
    out = Path(getattr(options, "out", None) or f"{Path(options.data).stem}-simclr.safetensors")
    _check(options, out)
    settings = _settings(options, out)
    from pollux.lab.pretraining import pretrain_simclr
    from pollux.lab.pretraining.reading import read_images
    from pollux.threads import at_most

    reading = {name: getattr(options, name, None) for name in ("array", "image_size")}
    images = read_images(options.data, **reading)
    tell(f"{len(images):,} images of {'×'.join(map(str, images.shape[1:]))}")
    resume, before = hasattr(options, "resume"), _written(out)
    try:
        with ExitStack() as stack:
            stack.enter_context(at_most(getattr(options, "threads", 0)))
            shows = [] if tell is nothing else [stack.enter_context(_progress())]
            result = pretrain_simclr(images, **settings, checkpoint=out, resume=resume, callbacks=shows)
    except KeyboardInterrupt:
        # An older encoder that was to be replaced is none of this training.
        return _stopped(options.data, reading, out, out.exists() and (resume or _written(out) != before))
    tell(f"loss {result.history['loss'][-1]:.4f} after {counted(len(result.history['loss']), 'epoch')}")
    tell(f"saved in {out}")
    tell("next, in Python:")
    tell("from pollux.geometry import resolve")
    tell("from pollux.lab.pretraining import load_encoder")
    tell(f'geometry = resolve("linear", encoder=load_encoder({str(out)!r}))')
    return GOOD


def _check(options: argparse.Namespace, out: Path) -> None:
    """Complain of what is wrong before anything is read."""
    from pollux.errors import InputError

    resume, overwrite = hasattr(options, "resume"), hasattr(options, "overwrite")
    if resume and overwrite:
        raise InputError("--resume goes on with the file and --overwrite replaces it: give one of them.")
    if out.is_file() and not (resume or overwrite):
        raise InputError(f"{out} exists: go on with its training (--resume), replace it (--overwrite), or use --out.")
    if getattr(options, "threads", 1) < 1:
        raise InputError(f"--threads must be at least 1, not {options.threads}.")
    from pollux.lab.pretraining.files import check_place

    check_place(out)


def _settings(options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Arguments of the training: those given, and else those of the training that goes on."""
    from dataclasses import replace

    from pollux.lab.pretraining import Augmentation, stored_settings

    stored = stored_settings(out) if hasattr(options, "resume") and out.exists() else {}
    views = stored.get("augmentation") or Augmentation(flip=options.data != "mnist")
    changed = {field: getattr(options, name) for name, field in _VIEWS.items() if hasattr(options, name)}
    given = {name: getattr(options, name) for name in _LIBRARY if hasattr(options, name)}
    return {**stored, **given, "augmentation": replace(views, **changed)}


def _written(out: Path) -> tuple[int, int] | None:
    """Tells a file from one that takes its place."""
    return (out.stat().st_ino, out.stat().st_mtime_ns) if out.exists() else None


def _progress() -> Any:
    """A live line on a terminal, else a line per epoch."""
    from pollux.lab.pretraining.progress import EpochLines, ProgressBar

    return ProgressBar() if sys.stderr.isatty() else nullcontext(EpochLines())


def _stopped(data: str, reading: dict[str, Any], out: Path, learned: bool) -> int:
    if not learned:
        say("Stopped before the first epoch had ended: nothing was written.")
        return STOPPED
    words = [data, *(f"--{name.replace('_', '-')}={value}" for name, value in reading.items() if value is not None)]
    again = shlex.join(["pollux", "pretrain", "simclr", *words, "--out", str(out), "--resume"])
    say(f"Stopped. {out} holds what whole epochs had learned, and can be used as it is. To go on: {again}")
    return STOPPED
