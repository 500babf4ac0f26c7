"""What Gaussian noise at a site promises: (epsilon, delta) after so many replies, accounted by dp_accounting.

The promise is the site's own and trusts nobody outside: whatever two data sets the site might hold, what it sends in
all its replies is nearly as likely under one as under the other. Two clipped replies are at most 2 clip apart, so noise
of standard deviation noise * clip is a Gaussian mechanism with noise multiplier noise / 2, and k of them, each made in
view of the last, are one with noise multiplier noise / (2 sqrt(k)). Replies count when they leave, averaged or not
(ClientState.releases; a site that loses its disk loses the count and must add it by hand). The control variate needs
no noise of its own: it is computed from what was sent and from what the server said. Not covered: the sums and scalars
that a site sends when it joins, which have no noise.
"""

from __future__ import annotations

import math
from typing import Any

from ... import checks
from ...errors import MissingExtraError

DELTA = 1e-5  # of promises that are shown without being asked for


def privacy_spent(noise: float, releases: int, delta: float) -> float:
    """The epsilon that `releases` noised replies have cost at a given delta.

    noise : standard deviation of the noise as a multiple of the clipping norm (coding.Coding)
    """
    noise = checks.real("noise", noise, above=0)
    releases = checks.integer("releases", releases)
    delta = checks.real("delta", delta, above=0, below=1)
    if releases == 0:
        return 0.0
    return float(_library().get_epsilon_gaussian(noise / (2 * math.sqrt(releases)), delta))


def promise(noise: float, releases: int, delta: float = DELTA) -> str:
    """The promise in words, for the display, or why it cannot be computed here."""
    try:
        spent = privacy_spent(noise, releases, delta)
    except MissingExtraError as error:
        return str(error)
    return (
        f"after {releases} replies with noise {noise:g} times the clipping norm, what this site has sent is "
        f"({spent:.3g}, {delta:g})-differentially private about its whole data set"
    )


def _library() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise MissingExtraError("accounting of privacy needs dp_accounting: pip install 'fedlsa[privacy]'") from None
    return dp_accounting
