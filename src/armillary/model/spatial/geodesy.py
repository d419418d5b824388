"""Lengths and areas on the WGS-84 ellipsoid. Distances use Vincenty's formula; where its iteration does not converge,
near the antipodes, the shortest of the paths through a halfway point. Areas are those of the sphere of equal area, with
great-circle edges: the documented area of a box of 0.2 by 0.3 degrees is reproduced within 1e-10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

Vector: TypeAlias = tuple[float, float, float]
Coordinates: TypeAlias = tuple[float, float]  # longitude and latitude in degrees, or x and y

_RADIUS_M: Final = 6_378_137.0
_FLATTENING: Final = 1 / 298.257223563
POLAR_RADIUS_M: Final = _RADIUS_M * (1 - _FLATTENING)
_ECCENTRICITY_2: Final = _FLATTENING * (2 - _FLATTENING)
_ECCENTRICITY: Final = math.sqrt(_ECCENTRICITY_2)
_QUARTER_M: Final = 10_001_965.7  # from pole to equator
_ROUNDS_MAX: Final = 50
_GOLDEN: Final = (math.sqrt(5) - 1) / 2


# Directions from the centre of the earth.


def direction(place: Coordinates) -> Vector:
    longitude, latitude = math.radians(place[0]), math.radians(place[1])
    central = math.atan2((1 - _ECCENTRICITY_2) * math.sin(latitude), math.cos(latitude))
    across = math.cos(central)
    return across * math.cos(longitude), across * math.sin(longitude), math.sin(central)


def place_of(vector: Vector) -> Coordinates:
    x, y, z = vector
    latitude = math.atan2(z, (1 - _ECCENTRICITY_2) * math.hypot(x, y))
    return math.degrees(math.atan2(y, x)), math.degrees(latitude)


# Distance.


def distance_m(first: Coordinates, second: Coordinates) -> float:
    if first == second:
        return 0.0
    found = _inverse(first, second)
    return found if found is not None else _nearly_antipodal(first, second)


def _reduced(latitude: float) -> tuple[float, float]:
    """Sine and cosine of the latitude on the sphere around the ellipsoid."""
    angle = math.atan2((1 - _FLATTENING) * math.sin(latitude), math.cos(latitude))
    return math.sin(angle), math.cos(angle)


def _inverse(first: Coordinates, second: Coordinates) -> float | None:
    sine_1, cosine_1 = _reduced(math.radians(first[1]))
    sine_2, cosine_2 = _reduced(math.radians(second[1]))
    apart = math.radians(math.remainder(second[0] - first[0], 360))
    longitude = apart
    for _ in range(_ROUNDS_MAX):
        sine, cosine = math.sin(longitude), math.cos(longitude)
        across = math.hypot(cosine_2 * sine, cosine_1 * sine_2 - sine_1 * cosine_2 * cosine)
        along = sine_1 * sine_2 + cosine_1 * cosine_2 * cosine
        if across == 0:
            return 0.0 if along > 0 else None
        angle = math.atan2(across, along)
        sine_azimuth = cosine_1 * cosine_2 * sine / across
        cosine_2_azimuth = 1 - sine_azimuth * sine_azimuth
        middle = along - 2 * sine_1 * sine_2 / cosine_2_azimuth if cosine_2_azimuth > 1e-15 else 0.0
        factor = _FLATTENING / 16 * cosine_2_azimuth * (4 + _FLATTENING * (4 - 3 * cosine_2_azimuth))
        correction = angle + factor * across * (middle + factor * along * (2 * middle * middle - 1))
        before, longitude = longitude, apart + (1 - factor) * _FLATTENING * sine_azimuth * correction
        if abs(longitude) > math.pi:
            return None
        if abs(longitude - before) < 1e-13:
            return _length_m(angle, across, along, middle, cosine_2_azimuth)
    return None


def _series(cosine_2_azimuth: float) -> tuple[float, float]:
    square = cosine_2_azimuth * (_RADIUS_M**2 - POLAR_RADIUS_M**2) / POLAR_RADIUS_M**2
    first = 1 + square / 16384 * (4096 + square * (-768 + square * (320 - 175 * square)))
    second = square / 1024 * (256 + square * (-128 + square * (74 - 47 * square)))
    return first, second


def _correction(factor: float, sine: float, cosine: float, middle: float) -> float:
    inner = cosine * (2 * middle * middle - 1)
    outer = factor / 6 * middle * (4 * sine * sine - 3) * (4 * middle * middle - 3)
    return factor * sine * (middle + factor / 4 * (inner - outer))


def _length_m(angle: float, sine: float, cosine: float, middle: float, cosine_2_azimuth: float) -> float:
    scale, factor = _series(cosine_2_azimuth)
    return POLAR_RADIUS_M * scale * (angle - _correction(factor, sine, cosine, middle))


def _destination(start: Coordinates, azimuth: float, length_m: float) -> Coordinates:
    sine_1, cosine_1 = _reduced(math.radians(start[1]))
    sine_a, cosine_a = math.sin(azimuth), math.cos(azimuth)
    from_equator = math.atan2(sine_1, cosine_1 * cosine_a)
    sine_azimuth = cosine_1 * sine_a
    cosine_2_azimuth = 1 - sine_azimuth * sine_azimuth
    scale, factor = _series(cosine_2_azimuth)
    angle = length_m / (POLAR_RADIUS_M * scale)
    for _ in range(_ROUNDS_MAX):
        middle = math.cos(2 * from_equator + angle)
        corrected = _correction(factor, math.sin(angle), math.cos(angle), middle)
        before, angle = angle, length_m / (POLAR_RADIUS_M * scale) + corrected
        if abs(angle - before) < 1e-13:
            break
    sine, cosine = math.sin(angle), math.cos(angle)
    across = math.hypot(sine_azimuth, sine_1 * sine - cosine_1 * cosine * cosine_a)
    latitude = math.atan2(sine_1 * cosine + cosine_1 * sine * cosine_a, (1 - _FLATTENING) * across)
    turned = math.atan2(sine * sine_a, cosine_1 * cosine - sine_1 * sine * cosine_a)
    middle = math.cos(2 * from_equator + angle)
    share = _FLATTENING / 16 * cosine_2_azimuth * (4 + _FLATTENING * (4 - 3 * cosine_2_azimuth))
    bend = angle + share * sine * (middle + share * cosine * (2 * middle * middle - 1))
    longitude = turned - (1 - share) * _FLATTENING * sine_azimuth * bend
    return start[0] + math.degrees(longitude), math.degrees(latitude)


def _nearly_antipodal(first: Coordinates, second: Coordinates) -> float:
    """A quarter of the circumference in the best direction, then the rest: both parts are far from antipodal."""

    def way_m(azimuth: float) -> float:
        rest = _inverse(_destination(first, azimuth, _QUARTER_M), second)
        return math.inf if rest is None else _QUARTER_M + rest

    steps = 72
    width = 2 * math.pi / steps
    best = min(range(steps), key=lambda step: way_m(step * width))
    return least(way_m, (best - 1) * width, (best + 1) * width)


def least(measure: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a function that falls and then rises, to the precision of doubles."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = measure(left), measure(right)
    for _ in range(_ROUNDS_MAX):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = measure(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = measure(right)
    return min(at_left, at_right)


# Area.


def _authalic(sine: float) -> float:
    inner = sine / (1 - _ECCENTRICITY_2 * sine * sine)
    return (1 - _ECCENTRICITY_2) * (inner + math.atanh(_ECCENTRICITY * sine) / _ECCENTRICITY)


_AUTHALIC_POLE: Final = _authalic(1.0)
AUTHALIC_RADIUS_M: Final = _RADIUS_M * math.sqrt(_AUTHALIC_POLE / 2)


def area_left(ring: Sequence[Coordinates]) -> float:
    """The share of a unit sphere on the left of a closed ring, between 0 and 4 pi."""
    total = turned = 0.0
    halves = [math.tan(math.asin(_clamped(_authalic(math.sin(math.radians(y))) / _AUTHALIC_POLE)) / 2) for _, y in ring]
    for index in range(len(ring) - 1):
        step = math.radians(math.remainder(ring[index + 1][0] - ring[index][0], 360))
        first, second = halves[index], halves[index + 1]
        total += 2 * math.atan2(math.tan(step / 2) * (first + second), 1 + first * second)
        turned += step
    around_pole = 2 * math.pi if abs(turned) > math.pi else 0.0
    # Not made positive by adding turns: a ring of some metres would be lost in the rounding, and with it its direction.
    return (around_pole - total) % (4 * math.pi)


def _clamped(sine: float) -> float:
    return max(-1.0, min(1.0, sine))
