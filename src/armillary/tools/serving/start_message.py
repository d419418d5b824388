"""What people see when the server is ready: the connection string of each API and the portal's address, on standard
error. The line `ready …` on standard output, which programs wait for, is `ports.announce`'s.

A key of the operator's own never appears: standard error is often kept. The message then names the command that shows
the key.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Mapping

from armillary.account.security.connection_strings import (
    KEY_MARK,
    TITLES,
    connection_strings,
    strings_without_key,
)
from armillary.net.listen import Listener
from armillary.portal.policy import PREFIX as PORTAL_PREFIX
from armillary.tools.control_file import local_host
from armillary.tools.exposure import PUBLIC_KEYS
from armillary.tools.serving.ports import in_url
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")


def greet(settings: Settings, listeners: Mapping[str, Listener], primary_key: str, is_shown: bool | None) -> None:
    """`is_shown`: None: if standard error is a terminal; elsewhere one line of the log names the command."""
    command = _command(settings, listeners["sql"].port)
    is_shown = is_shown if is_shown is not None else sys.stderr.isatty()
    if not is_shown or settings.log_format != "text":
        log.info("%s shows what clients connect with", command)
        return
    print(message(settings, listeners, primary_key, command), file=sys.stderr, flush=True)


def message(settings: Settings, listeners: Mapping[str, Listener], primary_key: str, command: str) -> str:
    addresses = {name: settings.client_url(name, each.port) for name, each in listeners.items()}
    if primary_key in PUBLIC_KEYS:
        found = connection_strings(addresses, settings.account, {"primary": primary_key})
        rows = {TITLES[each.door]: each.value for each in found}
        hint = "shows this again"
    else:
        strings = strings_without_key({name: [each] for name, each in addresses.items()}, settings.account)
        rows = {TITLES[door]: string for door, string in strings.items() if string}
        hint = f"shows these with the key in the place of {KEY_MARK}"
    if settings.portal != "off":
        rows["Portal"] = f"{addresses.get('portal', addresses['sql'])}{PORTAL_PREFIX.decode()}/"
    width = max(len(name) for name in rows)
    lines = [f"  {name.ljust(width)}  {value}" for name, value in rows.items()]
    return "\n".join(["", "Connect with", *lines, f"{command} {hint}.", ""])


def _command(settings: Settings, port: int) -> str:
    if settings.is_in_memory:
        url = f"{settings.scheme('sql')}://{in_url(local_host(settings.host))}:{port}"
        is_found = port == Settings().sql_port and "data" not in settings.sources
        place = "" if is_found else f" --url {url}"
    else:
        place = "" if "data" not in settings.sources else f" --data {shlex.quote(str(settings.directory))}"
    return f"`armillary connection-strings{place}`"
