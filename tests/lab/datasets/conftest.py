"""A folder of data, an empty cache folder, and a publisher on this machine."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pollux.lab.datasets import archives, image_sets


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that POLLUX_DATA names, and a cache folder of our own."""
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("POLLUX_DATA", str(data))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(archives, "cache_folder", lambda: tmp_path / "cache" / "pollux")
    return data


@pytest.fixture
def tabular(folder: Path) -> Path:
    (folder / "tabular").mkdir()
    return folder / "tabular"


class Quiet(SimpleHTTPRequestHandler):
    promised = 0
    """How many bytes more than there are the server announces."""

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def send_header(self, keyword: str, value: str) -> None:
        super().send_header(keyword, str(int(value) + self.promised) if keyword == "Content-Length" else value)


@pytest.fixture
def published(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a server on this machine, and the folder that it serves."""
    folder = tmp_path / "published"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", folder
        server.shutdown()
        thread.join()


@pytest.fixture
def server_promises(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the server announce so many bytes more than there are."""
    return lambda count: monkeypatch.setattr(Quiet, "promised", count)


@pytest.fixture
def publish(published: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Serve these files as a data set, with their checksums unless others are given."""
    base, folder = published

    def publish(name: str, files: dict[str, bytes], **checksums: str) -> None:
        for file, content in files.items():
            (folder / file).write_bytes(content)
        known = {file: hashlib.md5(content).hexdigest() for file, content in files.items()}
        source = image_sets.Source(base, known | checksums, image_sets.SOURCES[name].convert)
        monkeypatch.setitem(image_sets.SOURCES, name, source)

    return publish
