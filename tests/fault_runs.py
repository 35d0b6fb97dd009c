"""Processes that are killed, interrupted or run out of memory or disk; imported by these processes, so without pytest.

Importing everything takes seconds. These processes are therefore forked from a server that has done so; they still have
their own signals, limits and files.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 300.0
# Audit events that change a folder; they are raised before the change.
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.link", "os.symlink"}


class Ended(NamedTuple):
    """The exit code and the output of a process."""

    code: int
    out: str
    err: str


class Child:
    """A process that runs ``program(*arguments)`` in a folder, or the command line with these arguments."""

    def __init__(self, folder: Path, *words: object, sabotage: Mapping[str, Any] | None = None) -> None:
        # Not in the folder itself, whose disk may be full.
        self._printed = [Path(tempfile.gettempdir()) / f"{os.urandom(9).hex()}.{name}" for name in ("out", "err")]
        self.started = time.monotonic()
        self.process: BaseProcess = server().Process(
            target=_run, args=(str(folder), words, [str(path) for path in self._printed], dict(sabotage or {}))
        )
        self.process.start()

    @property
    def is_running(self) -> bool:
        return self.process.is_alive()

    @property
    def printed(self) -> str:
        """Return the output so far."""
        return self._printed[0].read_text(encoding="utf-8") if self._printed[0].exists() else ""

    def send(self, number: signal.Signals) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)

    def wait_for(self, condition: Callable[[], object]) -> None:
        while not condition():
            assert self.is_running, f"it has ended already: {self.end()}"
            assert time.monotonic() - self.started < PATIENCE, "it takes too long"
            time.sleep(0.005)

    def end(self, after: float = PATIENCE) -> Ended:
        """Wait until it has ended; kill it if it takes too long."""
        self.process.join(after)
        self.seconds = time.monotonic() - self.started
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        texts = [path.read_text(encoding="utf-8") if path.exists() else "" for path in self._printed]
        for path in self._printed:
            path.unlink(missing_ok=True)
        assert self.process.exitcode is not None
        return Ended(self.process.exitcode, *texts)

    def killed_after(self, seconds: float) -> Ended:
        """Kill it after this many seconds, unless it has ended by then."""
        self.process.join(seconds)
        self.send(signal.SIGKILL)
        return self.end()


def server() -> Any:
    """Return the server that forks processes in which everything is imported; there is one for each process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["forked_imports"])
    # Older Pythons do not pass sys.path on to it.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context


def _run(folder: str, words: tuple[Any, ...], printed: list[str], sabotage: dict[str, Any]) -> None:
    from pollux.inspection import structure

    os.chdir(folder)
    for number, path in enumerate(printed, start=1):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    warnings.resetwarnings()
    # A signal that arrives while a file is opened leaves it to the garbage collector to close.
    warnings.simplefilter("ignore", ResourceWarning)
    for name, value in sabotage.items():
        SABOTAGE[name](value)
    # As in tests within this process: fewer folds, and no fsync.
    structure._FOLDS = 2
    os.fsync = os.fstat  # type: ignore[assignment]
    if callable(words[0]):
        words[0](*words[1:])
        code = 0
    else:
        from pollux.app import cli

        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# Sabotage: applied to a process before it begins.


def change_folders(meet: Callable[[str, tuple[Any, ...]], None]) -> None:
    """Call ``meet`` before each change of a file or folder."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if isinstance(flags, int) else False
            if not writes or isinstance(path, int) or "__pycache__" in str(path):
                return
        elif event not in _CHANGES:
            return
        meet(event, arguments)

    sys.addaudithook(hook)


def _half_a_file(meet: Callable[[str], bool]) -> None:
    """Files of tensors are written by a library without audit events: write half of one here."""
    from pollux.io import tensors as checked_tensors

    whole = checked_tensors.save_file

    def save(tensors: Any, path: Any, metadata: Any = None) -> None:
        if meet("half of " + Path(path).name):
            whole(tensors, path, metadata=metadata)
            os.truncate(path, Path(path).stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        whole(tensors, path, metadata=metadata)

    checked_tensors.save_file = save


def kill_at_change(number: int) -> None:
    """Kill this process before change ``number`` of a folder; if negative, only print the changes."""
    count = 0

    def is_it(change: str) -> bool:
        nonlocal count
        count += 1
        if number < 0:
            os.write(2, f"{count} {change}\n".encode())
        return count == number

    def meet(event: str, arguments: tuple[Any, ...]) -> None:
        if is_it(f"{event} {arguments[0]}"):
            os.kill(os.getpid(), signal.SIGKILL)

    change_folders(meet)
    _half_a_file(is_it)


def strike_at_change(strike: Mapping[str, Any]) -> None:
    """Send ``signals`` to this process before, or right after, a given change of a folder."""
    count = 0

    def send(*_: Any) -> None:
        sys.setprofile(None)
        for name in strike["signals"]:
            os.kill(os.getpid(), getattr(signal, name))

    def meet(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        count += 1
        if count == strike["number"]:
            # The change happens after this hook has returned: the next profile event comes after the change.
            sys.setprofile(send) if strike["after"] else send()

    change_folders(meet)


def fill_disk(moments: Mapping[str, Any]) -> None:
    """Limit the size of files to ``size``, from the first change with ``begin`` in its path to one with ``end``."""

    def meet(event: str, arguments: tuple[Any, ...]) -> None:
        path = str(arguments[0])
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if moments.get("end") and moments["end"] in path:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        elif moments["begin"] in path:
            resource.setrlimit(resource.RLIMIT_FSIZE, (moments["size"], hard))

    if moments["begin"]:
        change_folders(meet)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (moments["size"], resource.RLIM_INFINITY))


def limit_memory(megabytes: int) -> None:
    """Limit the memory to this much more than the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + megabytes * 1_000_000
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def slow_steps(seconds: float) -> None:
    """Slow each step down, so that a test cannot miss the right moment."""
    from pollux.training.checkpoints import Checkpoints

    is_due = Checkpoints.is_due

    def slowly(self: Checkpoints, after_epoch: bool) -> bool:
        time.sleep(seconds)
        return is_due(self, after_epoch)

    Checkpoints.is_due = slowly  # type: ignore[method-assign]


def hold_steps(hold: Mapping[str, Any]) -> None:
    """After a number of steps, write a file to say that the next one waits until the file ``go`` exists."""
    from pollux.training.checkpoints import Checkpoints

    is_due, steps, held = Checkpoints.is_due, 0, Path(hold["file"])

    def late(self: Checkpoints, after_epoch: bool) -> bool:
        nonlocal steps
        steps += not after_epoch
        if steps > hold["after"]:
            held.touch()
            while not held.with_name("go").exists():
                time.sleep(0.005)
        return is_due(self, after_epoch)

    Checkpoints.is_due = late  # type: ignore[method-assign]


def late_reading(path: str) -> None:
    """Delay reading the data until the file exists."""
    from pollux.app import run_data

    open_run_data = run_data.open_run_data

    def late(*arguments: Any) -> Any:
        while not Path(path).exists():
            time.sleep(0.05)
        return open_run_data(*arguments)

    run_data.open_run_data = late


SABOTAGE: dict[str, Callable[[Any], None]] = {
    "kill_at_change": kill_at_change,
    "strike_at_change": strike_at_change,
    "fill_disk": fill_disk,
    "limit_memory": limit_memory,
    "slow_steps": slow_steps,
    "hold_steps": hold_steps,
    "late_reading": late_reading,
}


# Trainings that scripts run


def _save(clustering: Any, path: str) -> None:
    """Save all results of a training, bit by bit."""
    import torch

    from pollux.io.tensors import write

    tensors = {f"module.{name}": tensor for name, tensor in clustering.module_.state_dict().items()}
    description = {"history": clustering.history_, "objective": clustering.objective_, "n": clustering.n_clusters_}
    if clustering.fitted_.given_labels is not None:
        tensors["labels"] = torch.as_tensor(clustering.labels_)
    write(path, "result", "1", tensors, description)


def _samples() -> Any:
    import numpy as np

    return np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)


def networks(shape: Any, n_clusters: int) -> Any:
    """Return a network with running statistics and its own random numbers, so that restarts are trained one by one."""
    from torch import nn

    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, n_clusters))


def three_starts(out: str, model: Any) -> None:
    from pollux import GeminiClustering, Training
    from pollux.training import Checkpoints

    clustering = GeminiClustering(
        3,
        model=model,
        n_init=3,
        max_epochs=6,
        batch_size=20,
        random_state=0,
        training=Training(checkpoint=Checkpoints(f"{out}-checkpoints", every="1 step")),
    )
    _save(clustering.fit(_samples()), out)


def restarts_one_by_one(out: str) -> None:
    three_starts(out, networks)


def own_loader(out: str, n_init: int = 1) -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from pollux import GeminiClustering, Training
    from pollux.training import Checkpoints

    loader: Any = DataLoader(TensorDataset(torch.as_tensor(_samples())), batch_size=13, shuffle=True)
    clustering = GeminiClustering(
        3,
        model=networks if n_init > 1 else "mlp",
        n_init=n_init,
        max_epochs=8,
        random_state=0,
        training=Training(checkpoint=Checkpoints(f"{out}-checkpoints", every="1 step")),
    )
    _save(clustering.fit(loader), out)


def own_loader_and_restarts(out: str) -> None:
    own_loader(out, 3)


def one_of_three_fails(out: str) -> None:
    """The first restart has no finite numbers: the others are still trained."""
    import torch
    from torch import nn

    made: list[nn.Module] = []

    def network(shape: Any, n_clusters: int) -> nn.Module:
        module = networks(shape, n_clusters)
        if not made:
            with torch.no_grad():
                module[0].weight.fill_(float("nan"))
        made.append(module)
        return module  # type: ignore[no-any-return]

    three_starts(out, network)


def run_program(source: str) -> None:
    """Run a short program with warnings as errors, except those of other packages that pyproject.toml ignores."""
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".*invalid escape sequence")
    warnings.filterwarnings("ignore", r"'\w+' (argument is )?deprecated", DeprecationWarning)
    exec(compile(source, "program", "exec"), {"__name__": "__main__"})


def peaks_of_fits(*paths: str) -> None:
    """Print the peak memory of this process so far, in kB, after a fit of each file."""
    from pollux import GeminiClustering

    warnings.simplefilter("ignore")
    for path in paths:
        GeminiClustering(3, model="linear", max_epochs=1, batch_size=2000, random_state=0).fit(path).labels_  # noqa: B018
        lines = Path("/proc/self/status").read_text().splitlines()
        print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


# The results


def contents(path: Path) -> dict[str, Any]:
    """Return the tensors and the checksum of a tensor file; the order of its metadata is random."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found = {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in tensors.items()}
        return {**found, "sha256": file.metadata()["sha256"], "description": file.metadata()["description"]}


def results(run: Path) -> dict[str, Any]:
    """Return all results of a run that must not depend on interruptions."""
    found: dict[str, Any] = {"model": contents(run / "model.safetensors")}
    for name in ("clusters.csv", "clusters.parquet"):
        if (run / name).exists():
            found[name] = (run / name).read_bytes()
    return found


def moments(seed: int) -> random.Random:
    """Return a generator of random moments; the seed can be set to repeat them as far as timing allows."""
    return random.Random(os.environ.get("POLLUX_FAULT_SEED", "0") + f" {seed}")
