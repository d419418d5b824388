"""The settings in force: found on the command line, in the environment, in the configuration file and in the files of
secrets, and checked one by one and together. `examine` finds all problems at once, for `armillary config check`;
`resolve` refuses the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from armillary.errors import Failure, bad_request
from armillary.tools.configuration.secret_files import credential_files, exposure_of, read_secret, secret_of
from armillary.tools.exposure import PUBLIC_KEYS
from armillary.tools.options import CREDENTIAL_PREFIX, ENVIRONMENT_PREFIX, FILE_SUFFIX, Option
from armillary.tools.profiles import PROFILES
from armillary.tools.settings import ACCEPTED, OPTIONS, Settings

_HAS_PASSWORD: Final = re.compile(r"://[^/@]*:[^/@]+@|password\s*=")  # of an address of PostgreSQL


class Given(NamedTuple):
    """A value as given, and its source."""

    source: str  # names the place to the reader: --sql-port, ARMILLARY_SQL_PORT, sql-port in armillary.toml
    origin: str  # command line, environment, file or credentials
    value: object


class Examined(NamedTuple):
    settings: Settings | None  # None: there are problems
    given: Mapping[str, Given]  # by setting, of those that are not defaults
    problems: list[str]


def resolve(command_line: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """The settings in force: command line, then environment, then file, then profile, then default. Refuses what it
    does not know."""
    examined = examine(command_line, environment)
    if examined.settings is None:
        raise bad_request(examined.problems[0])
    return examined.settings


def examine(
    command_line: Mapping[str, object],
    environment: Mapping[str, str],
    images: Mapping[str, Given] | None = None,
    defaults: Mapping[str, Given] | None = None,
) -> Examined:
    """The same with all problems. Settings are compared with each other only if each has a valid value. `images`: what
    variables of the emulator's images say, which come before our own. `defaults`: what takes the place of defaults."""
    problems: list[str] = []
    typed = {name: Given(f"--{name}", "command line", value) for name, value in command_line.items()}
    found = _of_environment(environment, problems) | dict(images or {}) | typed
    if "config" in found:
        try:
            path: Path = _value_of(OPTIONS["config"], found["config"])
            found = _of_file(path, problems) | found
        except Failure as failure:
            problems.append(failure.message)
    found = dict(defaults or {}) | found
    given_names = set(found)
    found, warnings = _with_secrets(found, environment, problems)
    has_secret_files = not given_names >= set(found)
    found = _of_profile(found) | found
    values: dict[str, Any] = {}
    is_complete = True
    for name, given in found.items():
        try:
            values[OPTIONS[name].attribute] = _value_of(OPTIONS[name], given)
        except Failure as failure:
            problems.append(failure.message)
            is_complete = False
    if is_complete:
        sources = {name: given.origin for name, given in found.items()}
        if values.get("data_permissions") == "inherited":  # the operator's platform sets permissions
            warnings = []
        warnings += _listed_secrets(typed)
        settings = Settings(**values, sources=sources, warnings=tuple(warnings), has_secret_files=has_secret_files)
        problems += _conflicts(settings, found)
    return Examined(settings if not problems else None, found, problems)


def _listed_secrets(typed: Mapping[str, Given]) -> Iterator[str]:
    """Warnings of secrets on the command line. Keys that everyone knows are none."""
    for name, given in typed.items():
        if name in OPTIONS and OPTIONS[name].is_secret and given.value not in PUBLIC_KEYS:
            if name == "cluster" and not _HAS_PASSWORD.search(str(given.value)):
                continue
            yield (
                f"the secret of {given.source} is on the command line, which other users of this machine can read "
                f"(ps): give it in a file with {given.source}{FILE_SUFFIX}, or in {OPTIONS[name].variable}"
            )


def check_exposure(settings: Settings) -> None:
    """Refuse to open doors to other machines with the well-known key."""
    for problem in exposures(settings):
        raise bad_request(problem)


def exposures(settings: Settings) -> Iterator[str]:
    """What `armillary serve` would open to other machines and refuses to."""
    if settings.has_exposed_key and not settings.allows_well_known_key:
        yield (
            f"The host {settings.host} can be reached from other machines, and an emulator's well-known key is known "
            "publicly. Set ARMILLARY_KEY to a key of your own (openssl rand -base64 64 makes one), or use "
            "--host 127.0.0.1. In a container whose ports are published to one machine only, "
            "--allow-well-known-key allows it."
        )
    if settings.is_public and settings.mongo_auth == "off":
        yield (
            f"The host {settings.host} can be reached from other machines: with --mongo-auth off they would need "
            "no credentials. Use --host 127.0.0.1, or --mongo-auth on."
        )
    if settings.is_public and settings.portal == "open":
        yield (
            f"The host {settings.host} can be reached from other machines: with --portal open they could change "
            "everything. Use --host 127.0.0.1, or --portal login."
        )


def _conflicts(settings: Settings, found: Mapping[str, Given]) -> Iterator[str]:
    keys = (settings.key, settings.secondary_key, settings.read_only_key, settings.secondary_read_only_key)
    for name, key in (("control-key", settings.control_key), ("control-read-only-key", settings.control_read_only_key)):
        if key is not None and key in keys:
            yield f"--{name} is the same as a key of the account. Set a different one."
    if settings.control_read_only_key is not None and settings.control_read_only_key == settings.control_key:
        yield "--control-read-only-key is the same as --control-key. Set a different one."
    if {settings.key, settings.secondary_key} & {settings.read_only_key, settings.secondary_read_only_key} - {None}:
        yield "A read-only key is the same as a key that allows writes. Set a different one."
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        missing, given = ("key", "certificate") if settings.tls_key is None else ("certificate", "key")
        yield f"{found[f'tls-{given}'].source} needs --tls-{missing} as well. Set both."
    for name in ("data", "durability", "disk-reserve", "storage-statistics"):
        if settings.is_in_memory and name in found and found[name].origin == found["memory"].origin:
            yield (
                f"{found['memory'].source} keeps nothing on disk, so {found[name].source} has no effect. Give "
                "only one of them."
            )
    if settings.partitioned_throughput_min_ru > settings.throughput_max_ru:
        yield (
            f"--partitioned-throughput-min is {settings.partitioned_throughput_min_ru}, more than --throughput-max "
            f"{settings.throughput_max_ru}. No container with a partition key could be created."
        )
    if settings.cluster is None:
        only = ("node", "cluster-port", "cluster-single-postgres", "cluster-log-size", "cluster-log-hours")
        for name in (*only, "cluster-logs", "cluster-silence-seconds"):
            if name in found:
                yield f"{found[name].source} is for nodes of a cluster. Give --cluster too, or leave it out."
    elif settings.is_in_memory:
        yield "A node of a cluster keeps its replica on disk. Give --cluster without --memory."
    elif settings.processes > 1:
        yield "--processes is for single servers: a node of a cluster is one process. Give only one of the two."
    elif settings.has_storage_statistics:
        yield "--storage-statistics is for single servers: a node of a cluster does not count them."
    elif "durability" in found:
        yield (
            f"{found['durability'].source} has no effect in a cluster: writes are acknowledged when PostgreSQL has "
            "them on its standbys. Leave it out."
        )


def _of_environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, Given]:
    by_variable = {option.variable: name for name, option in ACCEPTED.items()}
    found = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable in by_variable:
            found[by_variable[variable]] = Given(variable, "environment", value)
        else:
            problems.append(_unknown(f"The environment variable {variable}", variable, list(by_variable)))
    return found


def _of_file(path: Path, problems: list[str]) -> dict[str, Given]:
    import tomllib  # only when there is a file: it costs 10 ms of the start

    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise bad_request(f"The configuration file {path} cannot be read: {error.strerror}. Check --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise bad_request(
            f"The configuration file {path} is not TOML: {error}. Correct it, or give another with --config."
        ) from None
    names = [name for name in ACCEPTED if name != "config"]
    problems += [_unknown(f"The setting {name} in {path}", name, names) for name in content if name not in names]
    return {name: Given(f"{name} in {path}", "file", value) for name, value in content.items() if name in names}


def _with_secrets(
    found: Mapping[str, Given], environment: Mapping[str, str], problems: list[str]
) -> tuple[dict[str, Given], list[str]]:
    """What was given, with the content of files in the place of the settings that name them; and what is to be warned
    about."""
    files: dict[str, list[tuple[Given, Path]]] = {}
    for name, path in credential_files(environment):
        given = Given(f"the credential {CREDENTIAL_PREFIX}{name}", "credentials", str(path))
        if secret_of(f"{name}{FILE_SUFFIX}") is not None:
            files.setdefault(name, []).append((given, path))
        else:
            known = [each for each, option in OPTIONS.items() if option.is_secret]
            problems.append(_unknown(f"The credential {CREDENTIAL_PREFIX}{name}", name, known))
    for name, given in found.items():
        secret = secret_of(name)
        if secret is not None:
            try:
                files.setdefault(secret, []).append((given, _value_of(ACCEPTED[name], given)))
            except Failure as failure:
                problems.append(failure.message)
    values = {name: given for name, given in found.items() if secret_of(name) is None}
    warnings = []
    for name, sources in files.items():
        rivals = [given.source for given, _ in sources] + ([values[name].source] if name in values else [])
        if len(rivals) > 1:
            problems.append(f"{' and '.join(rivals)} both give the same secret. Give only one of them.")
            continue
        given, path = sources[0]
        try:
            values[name] = Given(f"{given.source} ({path})", given.origin, read_secret(path))
            warnings += [warning for warning in (exposure_of(path),) if warning is not None]
        except (OSError, ValueError) as error:
            problems.append(f"The file {path} of {given.source} cannot be used: {error}.")
    return values, warnings


def _of_profile(found: Mapping[str, Given]) -> dict[str, Given]:
    if "profile" not in found:
        return {}
    try:
        profile: str = _value_of(OPTIONS["profile"], found["profile"])
    except Failure:
        return {}  # named with the other wrong values
    origin = f"profile {profile}"
    return {name: Given(f"{name} of --profile {profile}", origin, value) for name, value in PROFILES[profile].items()}


def _value_of(option: Option, given: Given) -> Any:
    value = given.value
    is_plain_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, bool) and option.is_flag:
        return value
    if isinstance(value, str) or (is_plain_number and option.is_number):
        try:
            return option.parse(str(value))
        except ValueError:
            pass
    shown = "not valid" if option.is_secret else repr(value)
    raise bad_request(f"{given.source} is {shown}; expected {option.expected}.")


def _unknown(what: str, name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}?" if near else "Remove it; docs/settings.md lists the settings."
    return f"{what} is not known. {hint}"
