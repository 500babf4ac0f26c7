"""Do the sites agree? Each site's own solution beside the shared one, Cochran's Q, and the answer without each site.

Cochran's test is of whether independent estimates of d coefficients have one mean, with their covariances estimated.
With t_c the own solution of site c, V_c its covariance and W_c = V_c^-1, the best mean is m = W^-1 sum_c W_c t_c with
W = sum_c W_c. Where all sites have the same coefficients,

    Q = sum_c (t_c - m)^T W_c (t_c - m)

is chi-squared with f = sum_c d_c - d degrees of freedom, if the V_c are known; d_c are the coefficients that site c
determines, and W_c is 0 in the others. They are estimated, so that p-values are by

    Q / (f + 2 a - 6 a / (f + 2)) ~ F(f, f (f + 2) / (3 a)),   a = sum_c (tr P_c^2 + (tr P_c)^2) / (2 nu_c),

with P_c = I - W^-1 W_c on those d_c and nu_c the degrees of freedom of V_c (Welch, 1951, for one coefficient; Johansen,
1980, for several). Of 200 small sites that are alike p < 5% still came in a quarter of all data sets (HC3). So small
sites get weights that do not rest on their own covariances: W_c = n_c B^-1 with B the mean of n_c V_c over sites. For
any such weights (DerSimonian and Kacker, 2007), with M_c = W_c - W_c W^-1 W_c,

    E Q = e = sum_c tr(M_c V_c),   Var Q = 2 tr (P V)^2,   P = diag(W_c) - (W_c W^-1 W_b)_cb,

so that Q / e ~ F(2 e^2 / Var Q, nu), where V enters in sums over sites only: nu = e^2 / sum_c tr(M_c V_c)^2 / nu_c,
less d - 1 for the inverse of B, which makes Q larger by nu / (nu - d - 1). Of 400 data sets of 3 to 200 sites that are
alike, with 10 to 30 rows and 2 to 6 coefficients, p < 5% came in at most 8% (classical) and 3% (HC3), whatever the law
of the errors; with HC1, which is too small there, in up to 97%.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, fdtrc

from ..checks import Floats
from ..errors import ArgumentError
from ..value_objects import Displayed, ReadOnly, counted, spread_table
from .sums import sums_of_others

if TYPE_CHECKING:
    import pandas as pd

Mask = NDArray[np.bool_]
NO_SPREAD = 1e-12  # of a coefficient: a standard error of rounding errors, as of data without noise
SINGULAR = 1e-12  # of the largest eigenvalue of a correlation matrix
LEAST_FREEDOM = 2  # degrees of freedom of a covariance for each coefficient: with fewer it is next to unknown
OWN_WEIGHTS, PER_ROOT = 15, 5  # for each coefficient of a site, or per root of the number of sites: else it is small
NORMAL_FOURTH = 3  # E x^4 of a normal column: a sum of x^2 e^2 varies as one of so many times fewer squares
SIGNIFICANT = 0.05  # of all sites together: a site stands out below it


@dataclass(frozen=True, eq=False, repr=False)
class SiteReport(Displayed, ReadOnly):
    """How one site stands to the shared answer.

    Lengths are in standard errors of the shared answer (error_sources.py), whatever the units of the columns.

    name : of the site; rows : of its data; weight : with which it counts
    theta : (d,) its own solution, on the original scale; NaN in what its data leave open
    distance : of its own solution from the shared one, NaN where its data leave something open
    influence : how far it draws the shared answer its way, ||w_c A^-1 xi_star_c||, which is what drift is made of
    noise : root mean squared error that its draws put into the run, at most
    finite_data : root mean squared error that its finite data put into theta
    window : rows over which its scores were taken to be correlated
    dropped : rows that were left out because they lack a value
    covariance : (d, d) of its own solution, of the fit's kind, from its rows alone; NaN where they do not tell
    degrees_of_freedom : of that covariance; for rows correlated over some lags, n over as many as they count for
    without : (d,) the shared estimate without this site; NaN where the others leave it open
    episodes : of its log, and how many of them terminated; 0 for a regression
    effective_rows : (sum of importance weights)^2 / (sum of their squares); rows where there are none
    """

    name: str
    rows: int
    weight: float
    theta: Floats
    distance: float
    influence: float
    noise: float
    finite_data: float
    window: int
    covariance: Floats
    degrees_of_freedom: float
    without: Floats
    dropped: int = 0
    episodes: int = 0
    terminated: int = 0
    effective_rows: float = math.nan


@dataclass(frozen=True, eq=False, repr=False)
class CochranQ(Displayed, ReadOnly):
    """Cochran's test of whether sites have the same coefficients; NaN where fewer than two sites can be compared.

    q : sum of squared distances from the mean of the sites, each in the site's own covariance; df : of its law
    pooled : whether sites are too small for that: then covariances are pooled, and q is scaled to have mean df
    p_value : by the F law that knows how few rows covariances come from; chi2_p_value : by chi-squared, as in
    meta-analyses, NaN where pooled
    i_squared : max(0, 1 - df / q), the share of the spread between sites that chance does not explain
    tau : of one coefficient, the standard deviation between sites beyond chance (DerSimonian and Laird)
    sites : that could be compared
    """

    q: float = math.nan
    df: int = 0
    p_value: float = math.nan
    chi2_p_value: float = math.nan
    i_squared: float = math.nan
    tau: float = math.nan
    sites: int = 0
    pooled: bool = False

    def line(self) -> str:
        """Q, its p-value and I^2 in a few words."""
        if self.sites < 2:
            return "Q is not known, for fewer than two sites have estimates of their own"
        if np.isnan(self.p_value):
            return "Q is not known, for sites are too small"
        how = ", pooled covariances" if self.pooled else ""
        return f"Q = {self.q:.4g}, df = {self.df}, p = {self.p_value:.2g}, I² = {100 * self.i_squared:.0f}%{how}"


@dataclass(frozen=True, eq=False, repr=False)
class Heterogeneity(Displayed, ReadOnly):
    """Whether N sites agree, in d coefficients. What a site's rows leave open is NaN, and left out of tests.

    names : of the coefficients; sites : names of the sites; rows : (N,) of each site
    theta : (N, d) the sites' own solutions; covariance : (N, d, d) of each; degrees_of_freedom : (N,) of that
    shared : (d,) the shared estimate; shared_covariance : (d, d); shared_degrees_of_freedom : of its intervals
    distance, own_distance : (N,) of a site's solution from the shared one, sqrt(delta^T V^-1 delta / d), with V the
    covariance of the shared estimate, or of the site's own
    p_values : (N,) of each site against the mean of the others that are alike, not corrected for how many there are
    stands_out : names of the sites that are not alike, at 5% for all together (Holm's correction, step by step); less
    than half of the sites
    without : (N, d) the shared estimate without each site
    coefficients : Cochran's Q of each coefficient, by name; together : of all coefficients
    note : what to know of the tests; empty where every site has rows enough

    >>> x = np.linspace(-1, 1, 40).reshape(40, 1)
    >>> sites = [(x, (2 + (c == 2)) * x[:, 0] + np.cos(40 * x[:, 0] + c)) for c in range(3)]
    >>> found = fl.fit(sites, fl.Regression("y"), local="means").heterogeneity()
    >>> found.coefficients["x0"].df, found.stands_out
    (2, ('site 2',))
    """

    names: tuple[str, ...]
    sites: tuple[str, ...]
    rows: Floats
    theta: Floats
    covariance: Floats
    degrees_of_freedom: Floats
    shared: Floats
    shared_covariance: Floats
    shared_degrees_of_freedom: float
    distance: Floats
    own_distance: Floats
    p_values: Floats
    stands_out: tuple[str, ...]
    without: Floats
    coefficients: dict[str, CochranQ]
    together: CochranQ
    note: str = ""

    def _display(self) -> tuple[str, list[tuple[str, Any]]]:
        title = f"Heterogeneity of {counted(len(self.sites), 'site')} in {counted(len(self.names), 'coefficient')}"
        return title, [
            ("all together", self.together.line()),
            *((name, q.line()) for name, q in list(self.coefficients.items())[:20]),
            ("stand out", self.stands_out),
            ("leave a coefficient open", self.left_out),
            *((("note", self.note),) if self.note else ()),
        ]

    def _further_html(self) -> str:
        return spread_table("The shared estimate, and the sites' own:", self.names, self.shared, self.theta)

    @property
    def standard_error(self) -> Floats:
        """(N, d): of the sites' own solutions."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sites whose rows leave a coefficient, or its error, open; so do fewer than 3 rows for each coefficient."""
        known = find_determined(self.theta, self.covariance, self.degrees_of_freedom)
        return tuple(name for name, own in zip(self.sites, known, strict=True) if not own.all())

    @property
    def change(self) -> Floats:
        """(N, d): what the shared estimate loses with each site, in standard errors: (without - shared) / error."""
        return (self.without - self.shared) / np.sqrt(np.diag(self.shared_covariance))

    def line(self) -> str:
        """One line for a summary: Q, p and I^2 of all coefficients together, and who stands out."""
        out = self.stands_out
        names = ", ".join(out[:3]) + (", ..." if len(out) > 3 else "")
        verb = "stands" if len(out) == 1 else "stand"
        none = "they differ, none more than the others" if self.together.p_value < SIGNIFICANT else "no site stands out"
        apart = f"; {names} {verb} out" if out else f"; {none}" if self.together.p_value >= 0 else ""
        return f"Sites: {self.together.line()}{apart}"

    def to_frame(self) -> pd.DataFrame:
        """A row for each coefficient, and one for all together: Cochran's Q and what follows from it."""
        import pandas as pd

        rows = {**self.coefficients, "all together": self.together}
        return pd.DataFrame([asdict(q) for q in rows.values()], index=pd.Index(list(rows), name="coefficient"))

    def site_frame(self) -> pd.DataFrame:
        """A row for each site and coefficient: own estimate and error, and the shared estimate without the site."""
        import pandas as pd

        index = pd.MultiIndex.from_product([self.sites, self.names], names=["site", "coefficient"])
        columns = {"estimate": self.theta, "standard_error": self.standard_error, "without": self.without}
        columns |= {"change": self.change}
        sites = {"rows": self.rows, "distance": self.distance, "own_distance": self.own_distance}
        repeated = {k: np.repeat(v, len(self.names)) for k, v in (sites | {"p_value": self.p_values}).items()}
        return pd.DataFrame({name: v.ravel() for name, v in columns.items()} | repeated, index=index)

    def plot(self, coefficient: str, **options: Any) -> Any:
        """The forest plot of a coefficient; options : as for fl.figures.forest."""
        from ..figures import forest  # which loads matplotlib

        return forest(self, coefficient, **options)


def compare_sites(fit: Any) -> Heterogeneity:
    """How the sites of a fit stand to each other, from the reports that it has of each."""
    sites = fit.per_site
    if len(sites) < 2:
        raise ArgumentError("heterogeneity is between sites, of which there must be at least 2; got 1")
    theta, covariance = np.stack([s.theta for s in sites]), np.stack([s.covariance for s in sites])
    rows, df = np.array([float(s.rows) for s in sites]), np.array([s.degrees_of_freedom for s in sites])
    known, shared, kind = find_determined(theta, covariance, df), np.asarray(fit.theta, np.float64), fit.covariance_kind
    own = np.sqrt(_squared_lengths(theta - shared, precisions(covariance, known), known) / np.maximum(known.sum(1), 1))
    pooled, note = _whether_pooled(df, known, kind)

    def test(j: slice) -> CochranQ:
        if pooled is None:
            return CochranQ(sites=count_compared(known[:, j]))
        if pooled:
            return pooled_cochran(theta[:, j], covariance[:, j, j], rows, df, known[:, j])
        return cochran(theta[:, j], precisions(covariance[:, j, j], known[:, j]), df, known[:, j])

    fewer = 1 if kind.startswith(("classical", "HAC")) else NORMAL_FOURTH
    p_values, apart = find_outlying_sites(theta, covariance, df / fewer, known, SIGNIFICANT)
    if pooled is None:
        p_values, apart = np.full_like(p_values, np.nan), np.zeros_like(apart)
    return Heterogeneity(
        names=tuple(fit.names),
        sites=tuple(s.name for s in sites),
        rows=rows,
        theta=theta,
        covariance=covariance,
        degrees_of_freedom=df,
        shared=shared,
        shared_covariance=np.asarray(fit.covariance, np.float64),
        shared_degrees_of_freedom=float(fit.degrees_of_freedom),
        distance=np.array([s.distance for s in sites]),
        own_distance=np.where(known.any(axis=1), own, np.nan),
        p_values=p_values,
        stands_out=tuple(s.name for s, out in zip(sites, apart, strict=True) if out),
        without=np.stack([s.without for s in sites]),
        coefficients={name: test(slice(j, j + 1)) for j, name in enumerate(fit.names)},
        together=test(slice(None)),
        note=note,
    )


def _whether_pooled(df: Floats, known: Mask, kind: str) -> tuple[bool | None, str]:
    """Whether sites are too small to have weights from their own covariances, None where they are too small for any
    test, and what to say then. On sites that are alike, at the limit, p < 5% came in 3 to 9% of 300 data sets
    (11% for skew errors at 200 sites): 3 to 200 sites, HC3 with their own weights, and HC1 with pooled ones."""
    compared = known.any(axis=1)
    least = math.ceil(max(OWN_WEIGHTS, PER_ROOT * math.sqrt(int(compared.sum()))))
    few = int((df[compared] / known[compared].sum(axis=1) < least).sum())
    which = f"{few:,} of {counted(len(df), 'site')} with fewer than {least} degrees of freedom for each coefficient"
    if few and kind.startswith(("HC0", "HC1", "CR0", "CR1")):
        return None, f"{which}, where {kind.partition(',')[0]} is too small: no test is right; covariance='HC3' has one"
    note = f"{which}: covariances are pooled for Q, and it may miss small differences" if few else ""
    return few > 0 or kind.startswith(("HC0", "HC1", "HC2", "CR0", "CR1")), note


def cochran(theta: Floats, W: Floats, df: Floats, known: Mask) -> CochranQ:
    """Cochran's Q of N estimates theta : (N, d) with precisions W : (N, d, d); those that are not known : (N, d) are 0
    in W. df : (N,) of the covariances."""
    compared, used, f = _comparable(known)
    if f < 1:
        return CochranQ(sites=compared)
    theta, W, known = np.where(known, theta, 0.0)[:, used], W[:, used][:, :, used], known[:, used]
    q, R = _spread(theta, W, known)
    trace, squares = np.einsum("nii->n", R @ W), np.einsum("nij,nji->n", R @ W, R @ W)
    sizes = known.sum(axis=1)
    a = float(np.sum((sizes - 2 * trace + squares + (sizes - trace) ** 2) / (2 * np.where(sizes > 0, df, 1.0))))
    i_squared = max(0.0, 1 - f / q) if q > 0 else 0.0
    return CochranQ(q, f, float(_p_value(q, f, a)), float(chdtrc(f, q)), i_squared, _tau(q - f, W), compared)


def pooled_cochran(theta: Floats, covariance: Floats, rows: Floats, df: Floats, known: Mask) -> CochranQ:
    """Cochran's Q of small sites, by weights from all sites' covariances : (N, d, d); rows : (N,) of each."""
    compared, used, f = _comparable(known)
    if f < 1:
        return CochranQ(sites=compared)
    theta, known = np.where(known, theta, 0.0)[:, used], known[:, used]
    V = np.where(known[:, :, None] & known[:, None, :], covariance[:, used][:, :, used], 0.0)
    B = np.einsum("n,nij->ij", rows, V) / np.maximum(np.einsum("ni,nj->ij", known, known.astype(float)), 1.0)
    scale = np.sqrt(np.diag(B))
    if np.linalg.eigvalsh(B / np.outer(scale, scale))[0] <= SINGULAR:  # of pairs of coefficients from different sites
        B = np.diag(np.diag(B))
    W = precisions(B / rows[:, None, None], known)
    q, R = _spread(theta, W, known)
    WV = W @ V
    G, parts = R @ np.einsum("nij,njk->ik", WV, W), np.einsum("nii->n", WV - W @ R @ WV)
    spread = np.einsum("nij,nji->", WV, WV) - 2 * np.einsum("nij,nji->", WV @ W, R @ WV) + np.trace(G @ G)
    mean, d = float(parts.sum()), len(R)
    nu = mean**2 / float(np.sum(parts**2 / np.where(known.any(axis=1), df, 1.0)))
    if nu < d + 2:
        return CochranQ(sites=compared)
    freedom, mean = mean**2 / spread, mean * nu / (nu - d - 1)
    p_value, i_squared = float(fdtrc(freedom, nu - d + 1, q / mean)), max(0.0, 1 - mean / q) if q > 0 else 0.0
    return CochranQ(q * f / mean, f, p_value, np.nan, i_squared, _tau(q - mean, W), compared, True)


def count_compared(known: Mask) -> int:
    """Sites that have a coefficient in common with another."""
    return int((known[:, known.sum(axis=0) > 1].any(axis=1)).sum())


def _comparable(known: Mask) -> tuple[int, Mask, int]:
    """How many sites can be compared, which coefficients some site determines, and Q's degrees of freedom."""
    used = np.asarray(known.any(axis=0), np.bool_)
    return count_compared(known), used, int(known.sum() - used.sum())


def _spread(theta: Floats, W: Floats, known: Mask) -> tuple[float, Floats]:
    """Q, and the inverse of the sum of the weights."""
    R = _inverses(W.sum(axis=0))
    return float(_squared_lengths(theta - R @ np.einsum("nij,nj->i", W, theta), W, known).sum()), R


def _tau(beyond: float, W: Floats) -> float:
    """The standard deviation between sites, where Q is larger than its mean by so much."""
    w = W[:, 0, 0]
    return float(np.sqrt(max(0.0, beyond) / (w.sum() - w @ w / w.sum()))) if W.shape[1] == 1 else np.nan


def _p_value(q: ArrayLike, f: ArrayLike, a: ArrayLike) -> Floats:
    """By the law of Q with f degrees of freedom; a : as above, 0 where covariances are known."""
    f, few = np.asarray(f, np.float64), np.maximum(a, 1e-12)  # where it is the chi-squared law, to rounding
    return np.asarray(fdtrc(f, f * (f + 2) / (3 * few), np.asarray(q) / (f + 2 * few - 6 * few / (f + 2))), np.float64)


def precisions(covariance: Floats, known: Mask) -> Floats:
    """(N, d, d): the inverses of the sites' covariances, of what is known : (N, d); 0 elsewhere."""
    return _inverses(_with_identity(covariance, known)) * known[:, :, None]


def _inverses(M: Floats) -> Floats:
    """Of positive definite matrices (..., d, d), scaled so that units play no part."""
    size = np.sqrt(np.diagonal(M, axis1=-2, axis2=-1))
    scale = size[..., :, None] * size[..., None, :]
    return np.asarray(np.linalg.inv(M / scale) / scale, np.float64)


def find_determined(theta: Floats, covariance: Floats, df: Floats) -> Mask:
    """(N, d): whether the rows of a site determine a coefficient and its error. A covariance of which some combination
    of coefficients has no error, or that rests on next to no rows, is none."""
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    spread = np.sqrt(np.where(variance > 0, variance, 0.0))
    known = np.isfinite(theta) & (spread > 0)
    exact = (np.isfinite(theta) & (spread <= NO_SPREAD * np.abs(theta))).any(axis=1)  # rows without noise
    known &= (~exact & (df >= np.maximum(LEAST_FREEDOM * np.isfinite(theta).sum(axis=1), 1)))[:, None]
    scale = np.where(known, spread, 1.0)
    values = np.linalg.eigvalsh(_with_identity(covariance / (scale[:, :, None] * scale[:, None, :]), known))
    return np.asarray(known & (values[:, :1] > SINGULAR * values[:, -1:]), np.bool_)


def find_outlying_sites(
    theta: Floats, covariance: Floats, df: Floats, known: Mask, level: float
) -> tuple[Floats, Mask]:
    """p-values of each site against the mean of the others that are alike : (N,), and which are not alike : (N,).

    One site far away moves the mean of the others, so that those look far away too. So the site with the smallest
    p-value is taken from the mean first, if it is below level / (sites left), as in Holm's correction; then all are
    compared again, and so on, until less than half of the sites would be left. Of many sites, 2% at a time.
    """
    N, compared = len(theta), np.asarray(known.any(axis=1))
    alike = compared.copy()
    p = _p_values_against_mean(theta, covariance, df, known, alike)
    most, at_once = (int(compared.sum()) - 1) // 2, max(1, N // 50)
    while (taken := int(compared.sum() - alike.sum())) < most:
        order = np.argsort(np.where(alike & np.isfinite(p), p, np.inf))[: min(at_once, most - taken)]
        out = order[p[order] <= level / alike.sum()]
        if not len(out):
            break
        alike[out] = False
        p = _p_values_against_mean(theta, covariance, df, known, alike)
    return p, compared & ~alike


def _p_values_against_mean(theta: Floats, covariance: Floats, df: Floats, known: Mask, alike: Mask) -> Floats:
    """(N,): p-values of Cochran's Q of two, a site and the mean of the others that are alike; NaN where nothing can be
    compared. All sites at once: coefficients that are not compared have variance 1 and difference 0."""
    known_alike = known & alike[:, None]
    W = precisions(covariance, known_alike)
    weighted = np.einsum("nij,nj->ni", W, np.where(known_alike, theta, 0.0))
    weight, product = sums_of_others(W), sums_of_others(weighted)
    freedom, rest = sums_of_others(np.where(alike, df, 0.0)), sums_of_others(known_alike) > 0
    V = _inverses(_with_identity(weight, rest))
    both = known & rest
    gap = theta - np.einsum("nij,nj->ni", V, product)
    own, other = _inverses(_with_identity(covariance, both)), _inverses(_with_identity(V, both))
    share = np.linalg.solve(own + other, own)  # of the site in the mean of the two
    others = np.eye(theta.shape[1]) - share
    q, sizes, a = _squared_lengths(gap, own @ others, both), both.sum(axis=1), np.zeros(len(theta))
    for P, nu in ((others, df), (share, freedom)):
        inside = P * both[:, :, None] * both[:, None, :]
        squares, trace = np.einsum("nij,nji->n", inside, inside), np.einsum("nii->n", inside)
        a += (squares + trace**2) / (2 * np.where(sizes > 0, nu, 1.0))
    return np.where(sizes > 0, _p_value(q, np.maximum(sizes, 1), a), np.nan)


def _squared_lengths(gap: Floats, W: Floats, known: Mask) -> Floats:
    """(N,): gap^T W gap of differences : (N, d), of what is known."""
    gap = np.where(known, gap, 0.0)
    return np.asarray(np.einsum("ni,nij,nj->n", gap, W, gap), np.float64)


def _with_identity(matrices: Floats, kept: Mask) -> Floats:
    """(N, d, d): with the rows and columns of the identity for what is not kept : (N, d)."""
    inside = kept[:, :, None] & kept[:, None, :]
    return np.where(inside, matrices, np.eye(kept.shape[1]) * ~kept[:, :, None])
