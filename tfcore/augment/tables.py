"""Distributions as tables of quantiles, which a draw of some bits picks from; NumPy only.

    NORMAL = normal_quantiles()                  # float32 [65536]
    beta_quantiles(0.2)                          # float32 [65536], of max(x, 1 - x) with x ~ Beta(0.2, 0.2)
    hue_matrices(0.05)                           # float32 [1024, 3, 3]

A logarithm or a cosine computed in the graph has another last bit in a vector's middle than at its end, and so would
make a row's pixels depend on where in a batch it stands. A table is the same everywhere.
"""

from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

LEVELS = 1 << 16
ANGLES = 1 << 10
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


@lru_cache(maxsize=1)
def normal_quantiles() -> NDArray[np.float32]:
    """The midpoints of LEVELS equally likely parts of the standard normal distribution; symmetric."""
    normal = NormalDist()
    upper = np.array([normal.inv_cdf(0.5 + (i + 0.5) / LEVELS) for i in range(LEVELS // 2)])
    return np.concatenate([-upper[::-1], upper]).astype(np.float32)


@lru_cache(maxsize=4)
def beta_quantiles(alpha: float) -> NDArray[np.float32]:
    """Quantiles of max(x, 1 - x) for x ~ Beta(alpha, alpha): a row's share in its mix, at least a half."""
    # with x = 1 / (1 + exp(-t)) the density in t, (x (1 - x))**alpha, is smooth for every alpha
    t = np.linspace(0.0, 40.0 / min(alpha, 1.0), 400_001)
    density = np.exp(-alpha * (t + 2.0 * np.log1p(np.exp(-t))))
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    at = np.interp((np.arange(LEVELS) + 0.5) / LEVELS, mass / mass[-1], t)
    return (1.0 / (1.0 + np.exp(-at))).astype(np.float32)


@lru_cache(maxsize=4)
def hue_matrices(share: float) -> NDArray[np.float32]:
    """Rotations of the colour plane by -share to share of a turn that keep the brightness (Y of YIQ)."""
    matrices = []
    for angle in np.linspace(-share, share, ANGLES) * 2 * np.pi:
        turn = np.array([[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]])
        matrices.append(np.linalg.inv(_TO_YIQ) @ turn @ _TO_YIQ)
    return np.stack(matrices).astype(np.float32)
