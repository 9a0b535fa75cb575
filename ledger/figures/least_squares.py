"""Pure. Weighted least squares of a few columns, and Student's t; for estimates, so in floats."""

import math
from collections.abc import Sequence
from typing import NamedTuple

PRIOR_FREEDOM = 2
"""Degrees of freedom that the scatter of an even distribution counts for."""
EVEN = 1 / 12
"""The variance of an even distribution of width 1."""

type Point = tuple[float, float, list[float]]
"""Weight, percent, value by column."""


def student90(freedom: int) -> float:
    """The 95 % quantile of Student's t; Cornish and Fisher's expansion from 4 on."""
    if freedom < 4:
        return (6.3138, 2.9200, 2.3534)[max(freedom, 1) - 1]
    z, n = 1.6448536, freedom
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + (z**3 + z) / (4 * n) + second / n**2


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    """The scalar product."""
    return sum(a * b for a, b in zip(left, right, strict=True))


class Solution(NamedTuple):
    """Rates that fit best: percent for a USD by column."""

    rates: list[float]
    covariance: list[list[float]]
    freedom: int

    def error(self, weights: Sequence[float]) -> float:
        """The standard error of a weighted sum of the rates."""
        return math.sqrt(max(0.0, dot(weights, [dot(row, weights) for row in self.covariance])))


def solution(points: Sequence[Point], freedom: int, common: float) -> Solution | None:
    """Weighted least squares through the origin; None: the points do not say. Where there are
    several columns, a hundredth of a point holds each near the `common` rate."""
    if not points or freedom < len(points[0][2]):
        return None
    size = len(points[0][2])
    matrix = [
        [sum(w * x[i] * x[j] for w, _, x in points) for j in range(size)] for i in range(size)
    ]
    vector = [sum(w * x[i] * y for w, y, x in points) for i in range(size)]
    if size > 1 and common > 0:
        for at in range(size):
            matrix[at][at] += EVEN / common**2
            vector[at] += EVEN / common
    inverse = _inverse(matrix)
    if inverse is None:
        return None
    rates = [dot(row, vector) for row in inverse]
    squares = sum(w * (y - dot(rates, x)) ** 2 for w, y, x in points)
    freedom += PRIOR_FREEDOM - size
    scatter = (squares + PRIOR_FREEDOM * EVEN) / freedom
    return Solution(rates, [[scatter * value for value in row] for row in inverse], freedom)


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """Of a small symmetric matrix (Gauss and Jordan); None: it has none."""
    size = len(matrix)
    work = [[*row, *(float(at == other) for other in range(size))] for at, row in enumerate(matrix)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(work[row][at]))
        if not abs(work[pivot][at]) > 1e-9 * abs(matrix[at][at]):
            return None
        work[at], work[pivot] = work[pivot], work[at]
        work[at] = [value / work[at][at] for value in work[at]]
        for other in range(size):
            if other != at:
                factor = work[other][at]
                work[other] = [a - factor * b for a, b in zip(work[other], work[at], strict=True)]
    return [row[size:] for row in work]
