"""Turning the text of a setting into its value.

Each function raises ValueError and says no more: naming the setting and what was expected is left to `settings.py`.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
from collections.abc import Callable
from pathlib import Path

from armillary.cluster_limits import PROCESSES_MAX
from armillary.limits import ACCOUNT_KEY_BYTES_MIN, GB, KB, MB

_UNITS = {"": 1, "B": 1, "KB": KB, "MB": MB, "GB": GB, "TB": 1024 * GB}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]?B)?", re.IGNORECASE | re.ASCII)
_ACCOUNT = re.compile(r"[a-z0-9][a-z0-9-]{1,42}[a-z0-9]")
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_REGION = re.compile(r"[ !#-&(-\[\]-~]{1,64}")
_HOST = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*", re.IGNORECASE | re.ASCII
)
_TRUTHS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def choice(*words: str) -> Callable[[str], str]:
    by_lower = {word.lower(): word for word in words}

    def parse(text: str) -> str:
        if text.lower() not in by_lower:
            raise ValueError(text)
        return by_lower[text.lower()]

    return parse


def whole_number(low: int, high: int, step: int = 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,15}", text):  # int() alone would take "1_000" and " 7"
            raise ValueError(text)
        if not low <= int(text) <= high or int(text) % step:
            raise ValueError(text)
        return int(text)

    return parse


def process_count(text: str) -> int:
    """auto: one for each core that this process may use."""
    if text == "auto":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(cores, PROCESSES_MAX)
    return whole_number(1, PROCESSES_MAX)(text)


def size_bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    number, unit = match.group(1), (match.group(2) or "").upper()
    if "." in number and _UNITS[unit] == 1:
        raise ValueError(text)
    size = int(float(number) * _UNITS[unit]) if "." in number else int(number) * _UNITS[unit]
    if size < KB:
        raise ValueError(text)
    return size


def size_or_zero(text: str) -> int:
    """A size, or 0 for none."""
    return 0 if text.strip() == "0" else size_bytes(text)


def truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ValueError(text)
    return _TRUTHS[text.lower()]


def path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(text)
    return Path(text).expanduser()


def account_name(text: str) -> str:
    if not _ACCOUNT.fullmatch(text):
        raise ValueError(text)
    return text


def region(text: str) -> str:
    if not _REGION.fullmatch(text) or text != text.strip():
        raise ValueError(text)
    return text


def key(text: str) -> str:
    if len(base64.b64decode(text, validate=True)) < ACCOUNT_KEY_BYTES_MIN:
        raise ValueError("too short")
    return text


def host(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Digits and dots that are no address would be taken for a name, and looked up.
        if not _HOST.fullmatch(text) or re.fullmatch(r"[0-9.]+", text):
            raise
    return text


def host_and_port(text: str) -> str:
    """HOST or HOST:PORT. An IPv6 address with a port stands in brackets."""
    name, port = split_port(text)
    if port:
        whole_number(1, 65535)(port)
    elif text.endswith(":"):
        raise ValueError(text)
    host(name)
    return text


def split_port(text: str) -> tuple[str, str]:
    """Host and port of HOST[:PORT]; no port is an empty one."""
    if text.startswith("["):
        name, closing, rest = text[1:].partition("]")
        if not closing or (rest and not rest.startswith(":")):
            raise ValueError(text)
        return name, rest[1:]
    if text.count(":") > 1:  # an IPv6 address alone
        return text, ""
    name, _, port = text.partition(":")
    return name, port


def key_path_or_none(text: str) -> str:
    """A partition key of one property, or the word for none."""
    if text != "none" and not re.fullmatch(r"/[^/\s\"']{1,100}", text):
        raise ValueError(text)
    return text


def is_unspecified(host: str) -> bool:
    """0.0.0.0 and its like: all addresses of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """A name other than localhost counts as public: what it stands for may change after we looked."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def postgres_url(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")) or not text.isprintable():
        raise ValueError(text)
    return text


def node_name(text: str) -> str:
    if not _NODE_NAME.fullmatch(text):
        raise ValueError(text)
    return text


def share(text: str) -> float:
    """A number from 0 to 1."""
    number = float(text)
    if not 0 <= number <= 1:  # also refuses NaN
        raise ValueError(text)
    return number


def off_errors_share_or_all(text: str) -> str:
    """Which requests are logged."""
    if text not in ("off", "errors", "all"):
        share(text)
    return text


def http_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise ValueError(text)
    return text
