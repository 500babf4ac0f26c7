"""What a site really sends of theta_hat - theta: clipped, noised and quantised inside the site, in this order.

The site's control variate is corrected with what the server can read back, never with what the site meant to send: so
sum_c w_c xi_c = 0 stays exact under noise and rounding. A quantised upload is one integer per coordinate and one scale.
Error feedback adds what rounding took from the last averaged reply to the next, so that nothing is lost for good.

What the noise promises, (epsilon, delta) after so many replies, dp_accounting computes.
The promise is the site's own and trusts nobody outside: whatever two data sets the site might hold, what it sends in
all its replies is nearly as likely under one as under the other. Two clipped replies are at most 2 clip apart, so noise
of standard deviation noise * clip is a Gaussian mechanism with noise multiplier noise / 2, and k of them, each made in
view of the last, are one with noise multiplier noise / (2 sqrt(k)). Replies count when they leave, averaged or not
(ClientState.releases; a site that loses its disk loses the count and must add it by hand). The control variate needs
no noise of its own: it is computed from what was sent and from what the server said. Not covered: the sums and scalars
that a site sends when it joins, which have no noise.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError, MessageError, MissingExtraError
from .records import Payload

MAX_ENTRY = 1e100  # of an upload: what exceeds it would overflow an average sooner or later
DELTA = 1e-5  # of promises that are shown without being asked for
DTYPES: dict[int, Any] = {8: np.int8, 16: np.int16}


@dataclass(frozen=True)
class Coding:
    """How a site writes its uploads.

    bits : 8 or 16 for quantised uploads, None for float64
    clip : the longest theta_hat - theta that leaves the site; a longer one is shortened
    noise : standard deviation of the Gaussian noise per coordinate, as a multiple of clip (see above)
    feedback : whether rounding errors are carried into the next reply
    """

    bits: int | None = None
    clip: float | None = None
    noise: float | None = None
    feedback: bool = True

    def __post_init__(self) -> None:
        if self.bits is not None and self.bits not in DTYPES:
            raise ArgumentError(f"bits must be 8, 16 or None; got {checks.show(self.bits)}")
        if self.clip is not None:
            object.__setattr__(self, "clip", checks.real("clip", self.clip, above=0, at_most=MAX_ENTRY))
        if self.noise is not None:
            object.__setattr__(self, "noise", checks.real("noise", self.noise, above=0))
            if self.clip is None:
                raise ArgumentError("noise must come with clip: without a longest upload it promises nothing; got None")
        object.__setattr__(self, "feedback", checks.boolean("feedback", self.feedback))


@dataclass(frozen=True, eq=False)
class Coded:
    """A coded upload: its arrays, the vector (d,) that `decode` reads from them, and what rounding took away (d,)."""

    payload: Payload
    delta: Floats
    residual: Floats


def encode(delta: Floats, residual: Floats, coding: Coding, secret: np.random.Generator | None = None) -> Coded:
    """Write delta (d,); residual : (d,), left over from before; secret : generator of the noise, kept at the site."""
    delta = np.array(delta, np.float64)
    if coding.clip is not None:
        delta = delta * shortening(delta, coding.clip)
    if coding.noise is not None and coding.clip is not None:
        if secret is None:
            raise ArgumentError("secret must be a random generator where noise is asked for; got None")
        delta = delta + secret.normal(0.0, coding.noise * coding.clip, len(delta))
    if coding.bits is None:
        return Coded({"delta": delta}, delta, np.zeros_like(delta))
    wanted = delta + residual if coding.feedback else delta
    levels = 2 ** (coding.bits - 1) - 1
    scale = float(np.abs(wanted).max(initial=0.0)) / levels
    codes = np.zeros(len(wanted)) if scale == 0 else np.clip(np.rint(wanted / scale), -levels, levels)
    payload: Payload = {"codes": codes.astype(DTYPES[coding.bits]), "scale": np.array([scale])}
    sent = decode(payload, len(delta))
    return Coded(payload, sent, wanted - sent if coding.feedback else np.zeros_like(delta))


def shortening(delta: Floats, longest: float) -> float:
    """The factor, at most 1, that shortens a vector to a longest norm."""
    norm = float(np.linalg.norm(delta))
    return 1.0 if norm <= longest else longest / norm


def decode(payload: Payload, dim: int) -> Floats:
    """The vector (dim,) that a payload holds; anything but an honest payload is a MessageError."""
    if payload.keys() == {"delta"}:
        out = payload["delta"]
        if out.dtype != np.float64:
            raise MessageError(f"'delta' must be an array of float64; got {out.dtype}")
        _shape("delta", out, dim)
    elif payload.keys() == {"codes", "scale"}:
        codes, scale = payload["codes"], payload["scale"]
        if codes.dtype not in (np.int8, np.int16) or scale.dtype != np.float64:
            raise MessageError(
                f"'codes' must be int8 or int16 and 'scale' float64; got {codes.dtype} and {scale.dtype}"
            )
        _shape("codes", codes, dim)
        _shape("scale", scale, 1)
        if not np.isfinite(scale[0]) or not 0 <= scale[0] <= MAX_ENTRY:
            raise MessageError("'scale' must be finite, at least 0 and not huge")
        out = codes * scale[0]
    else:
        raise MessageError("the upload must be 'delta', or 'codes' and 'scale'")
    if not np.isfinite(out).all():
        raise MessageError("the upload must hold finite numbers")
    if np.abs(out).max(initial=0.0) > MAX_ENTRY:
        raise MessageError(f"the upload must hold numbers of at most {MAX_ENTRY:g}")
    return np.array(out, np.float64)


def _shape(name: str, value: np.ndarray[Any, Any], length: int) -> None:
    if value.shape != (length,):
        raise MessageError(f"{name!r} must have shape ({length},); got {value.shape}")


def mark(payload: Payload) -> int:
    """A number that tells payloads apart: with it the server says which reply, to the bit, it averaged."""
    digest = hashlib.blake2b(digest_size=6)
    for name in sorted(payload):
        digest.update(name.encode() + payload[name].tobytes())
    return int.from_bytes(digest.digest(), "big")


def privacy_spent(noise: float, releases: int, delta: float) -> float:
    """The epsilon that `releases` noised replies have cost at a given delta.

    noise : standard deviation of the noise as a multiple of the clipping norm (Coding)
    """
    noise = checks.real("noise", noise, above=0)
    releases = checks.integer("releases", releases)
    delta = checks.real("delta", delta, above=0, below=1)
    if releases == 0:
        return 0.0
    return float(_library().get_epsilon_gaussian(noise / (2 * math.sqrt(releases)), delta))


def noise_for(epsilon: float, releases: int, delta: float) -> float:
    """The noise with which `releases` replies cost this epsilon at this delta."""
    epsilon = checks.real("epsilon", epsilon, above=0)
    releases = checks.integer("releases", releases, at_least=1)
    delta = checks.real("delta", delta, above=0, below=1)
    return float(_library().get_sigma_gaussian(epsilon, delta)) * 2 * math.sqrt(releases)


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
