"""Do the sites agree? Each site's own solution beside the shared one, Cochran's Q, and the answer without each site."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checks import Floats
from ...errors import ArgumentError
from ...formatting import Displayed, counted
from ...frozen import ReadOnly
from ...small_pictures import Strip, strips
from .cochran import (
    CochranQ,
    Mask,
    apart_from_the_others,
    cochran,
    compared_sites,
    determined,
    not_known,
    pooled_cochran,
    precisions,
    squared_length,
)

if TYPE_CHECKING:
    import pandas as pd

LEAST_FREEDOM, PER_ROOT = 15, 5  # for each coefficient of a site, or per root of the number of sites: else it is small
NORMAL_FOURTH = 3  # E x^4 of a normal column: a sum of x^2 e^2 varies as one of so many times fewer squares
SIGNIFICANT = 0.05  # of all sites together: a site stands out below it


@dataclass(frozen=True, eq=False, repr=False)
class Heterogeneity(Displayed, ReadOnly):
    """Whether N sites agree, in d coefficients. What a site's rows leave open is NaN, and left out of tests.

    names : of the coefficients; sites : names of the sites; rows : (N,) of each site
    theta : (N, d) the sites' own solutions; covariance : (N, d, d) of each
    degrees_of_freedom : (N,) of each covariance
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

    def _picture(self) -> str:
        rows = [Strip(n, float(v), None, own) for n, v, own in zip(self.names, self.shared, self.theta.T, strict=True)]
        return strips(rows, "bars: the shared estimate; dots: the sites' own; each row on its own scale")

    @property
    def standard_error(self) -> Floats:
        """(N, d): of the sites' own solutions."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sites whose rows leave a coefficient, or its error, open; so do fewer than 3 rows for each coefficient."""
        known = determined(self.theta, self.covariance, self.degrees_of_freedom)
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
        each: dict[str, Floats] = {"rows": self.rows, "distance": self.distance, "own_distance": self.own_distance}
        each |= {"p_value": self.p_values}
        both = {"estimate": self.theta, "standard_error": self.standard_error, "without": self.without}
        both |= {"change": self.change}
        columns = {name: v.ravel() for name, v in both.items()}
        return pd.DataFrame(columns | {k: np.repeat(v, len(self.names)) for k, v in each.items()}, index=index)

    def plot(self, coefficient: str, **options: Any) -> Any:
        """The forest plot of a coefficient; options : as for fl.figures.forest."""
        from ...figures import forest  # which loads matplotlib

        return forest(self, coefficient, **options)


def compare_sites(fit: Any) -> Heterogeneity:
    """How the sites of a fit stand to each other, from the reports that it has of each."""
    sites = fit.per_site
    if len(sites) < 2:
        raise ArgumentError("heterogeneity is between sites, of which there must be at least 2; got 1")
    theta, covariance = np.stack([s.theta for s in sites]), np.stack([s.covariance for s in sites])
    df = np.array([s.degrees_of_freedom for s in sites])
    known, shared = determined(theta, covariance, df), np.asarray(fit.theta, np.float64)
    rows = np.array([float(s.rows) for s in sites])
    W, (pooled, note) = precisions(covariance, known), _sizes(df, known, fit.covariance_kind)
    own = [np.sqrt(squared_length(t - shared, w, k) / max(k.sum(), 1)) for t, w, k in zip(theta, W, known, strict=True)]

    def test(j: slice) -> CochranQ:
        if pooled is None:
            return not_known(compared_sites(known[:, j]))
        if pooled:
            return pooled_cochran(theta[:, j], covariance[:, j, j], rows, df, known[:, j])
        return cochran(theta[:, j], precisions(covariance[:, j, j], known[:, j]), df, known[:, j])

    robust = not fit.covariance_kind.startswith(("classical", "HAC"))
    p_values, apart = apart_from_the_others(theta, covariance, df / NORMAL_FOURTH if robust else df, known, SIGNIFICANT)
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


def _sizes(df: Floats, known: Mask, kind: str) -> tuple[bool | None, str]:
    """Whether sites are too small to have weights from their own covariances, None where they are too small for any
    test, and what to say then. On sites that are alike, at the limit, p < 5% came in 3 to 9% of 300 data sets
    (11% for skew errors at 200 sites): 3 to 200 sites, HC3 with their own weights, and HC1 with pooled ones."""
    compared = known.any(axis=1)
    each = df[compared] / known[compared].sum(axis=1)
    least = math.ceil(max(LEAST_FREEDOM, PER_ROOT * math.sqrt(int(compared.sum()))))
    few = int((each < least).sum())
    which = f"{few:,} of {counted(len(df), 'site')} with fewer than {least} degrees of freedom for each coefficient"
    if few and kind.startswith(("HC0", "HC1", "CR0", "CR1")):
        return None, f"{which}, where {kind.partition(',')[0]} is too small: no test is right; covariance='HC3' has one"
    note = f"{which}: covariances are pooled for Q, and it may miss small differences" if few else ""
    return few > 0 or kind.startswith(("HC0", "HC1", "HC2", "CR0", "CR1")), note
