"""Secrets that come from files, so that they are in no list of processes: each secret setting NAME has a setting
NAME-file beside it, and systemd may hand it over as the credential `armillary.NAME`. Here the files are found and read;
the values are checked by `resolve.py` like any others.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from armillary import limits
from armillary.storage.private import OTHERS
from armillary.tools.options import CREDENTIAL_PREFIX, FILE_SUFFIX
from armillary.tools.settings import OPTIONS

CREDENTIALS_VARIABLE: Final = "CREDENTIALS_DIRECTORY"  # set by systemd for services with LoadCredential= and the like


def secret_of(name: str) -> str | None:
    """The secret setting whose file a setting names; None: it is another setting."""
    secret = name.removesuffix(FILE_SUFFIX)
    return secret if name != secret and secret in OPTIONS and OPTIONS[secret].is_secret else None


def credential_files(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """The names of our credentials of systemd, without the prefix, and their files."""
    directory = environment.get(CREDENTIALS_VARIABLE)
    try:
        names = sorted(os.listdir(directory)) if directory else []
    except OSError:
        names = []  # of another service, or gone
    for name in names:
        if name.startswith(CREDENTIAL_PREFIX):
            yield name.removeprefix(CREDENTIAL_PREFIX), Path(directory or "", name)


def read_secret(path: Path) -> str:
    """The text of a file, without the line end after it. Raises ValueError with the reason."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # a pipe would block
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is not a plain file")
            content = file.read(limits.SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(error.strerror or "unknown reason") from None
    if len(content) > limits.SECRET_FILE_BYTES_MAX:
        raise ValueError(f"it has more than {limits.SECRET_FILE_BYTES_MAX} bytes")
    try:
        text = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
    if not text:
        raise ValueError("it is empty")
    return text


def exposure_of(path: Path) -> str | None:
    """What is wrong with the permissions of a secret's file, as a sentence for the log. Such a file is used all the
    same: secrets of container platforms are readable by everyone in the container."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & OTHERS:
        return None
    return f"the secret in {path} is open to other users of this machine (mode {mode:04o}): chmod 600 closes it"
