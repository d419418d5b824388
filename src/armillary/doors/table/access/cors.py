"""Cross-origin requests of browsers, by the rules of the service's properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.doors.table.errors import refused
from armillary.errors import Failure, Kind
from armillary.net.charged_requests import HeaderList

Rules = Sequence[Mapping[str, str]]


def preflight(headers: Mapping[bytes, bytes], rules: Rules) -> HeaderList:
    """What is answered to OPTIONS; a failure if no rule allows what is to come."""
    origin = headers.get(b"origin", b"").decode("latin-1")
    method = headers.get(b"access-control-request-method", b"").decode("latin-1").upper()
    if not origin or not method:
        raise refused(
            "InvalidHeaderValue",
            "A required CORS header is not present: a preflight has Origin and Access-Control-Request-Method.",
        )
    asked = _listed(headers.get(b"access-control-request-headers", b"").decode("latin-1").lower())
    for rule in rules:
        if _allows(rule, origin, method) and all(
            _matches(_listed(rule["AllowedHeaders"].lower()), each) for each in asked
        ):
            answer = _granted(rule, origin)
            answer.append((b"access-control-allow-methods", method.encode("latin-1")))
            answer.append((b"access-control-max-age", (rule["MaxAgeInSeconds"] or "0").encode("ascii")))
            if asked:
                answer.append((b"access-control-allow-headers", ",".join(asked).encode("latin-1")))
            return answer
    raise _not_enabled()


def added_headers(headers: Mapping[bytes, bytes], method: str, rules: Rules) -> HeaderList:
    """What the answer to a request of a page of another origin says beside the rest."""
    origin = headers[b"origin"].decode("latin-1")
    for rule in rules:
        if _allows(rule, origin, method):
            answer = _granted(rule, origin)
            if rule["ExposedHeaders"]:
                answer.append((b"access-control-expose-headers", rule["ExposedHeaders"].encode("latin-1", "replace")))
            return answer
    return []


def allows(headers: Mapping[bytes, bytes], method: str, rules: Rules) -> bool:
    origin = headers[b"origin"].decode("latin-1")
    return any(_allows(rule, origin, method) for rule in rules)


def _allows(rule: Mapping[str, str], origin: str, method: str) -> bool:
    return _matches(_listed(rule["AllowedOrigins"]), origin) and method in _listed(rule["AllowedMethods"].upper())


def _granted(rule: Mapping[str, str], origin: str) -> HeaderList:
    if _listed(rule["AllowedOrigins"]) == ["*"]:
        return [(b"access-control-allow-origin", b"*")]
    return [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]


def _matches(patterns: Sequence[str], text: str) -> bool:
    """A star stands for any end."""
    return any(text.startswith(each[:-1]) if each.endswith("*") else text == each for each in patterns)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _not_enabled() -> Failure:
    return refused(
        "CorsPreflightFailure", "CORS not enabled or no matching rule found for this request.", Kind.FORBIDDEN
    )
