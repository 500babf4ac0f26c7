"""Every term of every theorem, from the problem's tables by the formula as it is written down.

That a bound holds says little about its constants: most of them could be halved and it would still hold. Here they are
computed a second time, from the definitions.
"""

import math

import numpy as np
import pytest
from tables import tiny

import fedlsa as fl

pytestmark = pytest.mark.filterwarnings("ignore::fedlsa.errors.TheoryWarning")
ETA, H, T = 0.03, 4, 6
WEIGHTS = [0.5, 0.2, 0.3]


class Tables:
    """What the theorems ask of a problem, agent by agent, from the definitions."""

    def __init__(self, p):
        self.w, self.agents = p.weights, []
        for c, m in enumerate(p.assignment):
            span = list(p.spans())[m]
            prob, (A, b) = p.prob[span], p.observations.matrices(span)
            mean = np.einsum("k,kij->ij", prob, A)
            noise = A - mean
            own, common = A @ p.theta_star_local[c] - b, A @ p.theta_star - b - p.xi_star[c]
            self.agents.append(
                {
                    "A": mean,
                    "Sigma_A": np.linalg.norm(np.einsum("k,kji,kjl->il", prob, noise, noise), 2),
                    "eps": np.einsum("k,ki,ki->", prob, own, own),
                    "omega": np.einsum("k,ki,ki->", prob, common, common),
                    "Sigma_omega": np.linalg.norm(np.einsum("k,ki,kj->ij", prob, common, common), 2),
                    "gap": np.linalg.norm(p.theta_star_local[c] - p.theta_star),
                    "xi": np.sum(p.xi_star[c] ** 2),
                    "eps_sup": np.linalg.norm(own[prob > 0], axis=1).max(),
                    "step": np.einsum("k,kji,kjl->il", prob, np.eye(p.dim) - ETA * A, np.eye(p.dim) - ETA * A),
                    "second": np.einsum("k,kji,kjl->il", prob, A, A),
                }
            )
        self.a = min((1 - math.sqrt(np.linalg.eigvalsh(g["step"])[-1])) / ETA for g in self.agents)
        power = [np.linalg.matrix_power(np.eye(p.dim) - ETA * g["A"], H) for g in self.agents]
        gaps = p.theta_star_local - p.theta_star
        self.rho = sum(w * (np.eye(p.dim) - G) @ gap for w, G, gap in zip(self.w, power, gaps, strict=True))

    def mean(self, name, power=1):
        """sum_c w_c^power of a number."""
        return sum(w**power * g[name] for w, g in zip(self.w, self.agents, strict=True))

    def most(self, name):
        return max(g[name] for g in self.agents)


def test_fedlsa():
    p = tiny(3, 2, 3, seed=4, weights=WEIGHTS)
    z = Tables(p)
    found = fl.theory.bound(p, fl.FedLSA(ETA, H), T, p.theta_star + np.array([3.0, 4.0])).terms
    heterogeneity = sum(w**2 * g["Sigma_A"] * g["gap"] ** 2 for w, g in zip(z.w, z.agents, strict=True))
    kept = (1 - ETA * z.a) ** H
    assert found == pytest.approx(
        {
            "noise": math.sqrt(ETA * z.mean("eps", 2) / (z.a * (1 - math.exp(-2)))),
            "heterogeneity": math.sqrt(2 * ETA * heterogeneity / z.a),
            "bias fluctuation": math.sqrt(2 * ETA * z.mean("Sigma_A", 2) / z.a) * np.linalg.norm(z.rho) / (1 - kept),
            "transient": 5 * kept**T,
        },
        rel=1e-9,
    )


def test_scafflsa():
    p = tiny(3, 2, 3, seed=4)
    z = Tables(p)
    found = fl.theory.bound(p, fl.SCAFFLSA(ETA, H), T, p.theta_star + np.array([3.0, 4.0]))
    start = 2 * (25 + (ETA * H) ** 2 * z.mean("xi"))
    assert found.terms == pytest.approx(
        {"transient": start * (1 - ETA * z.a * H / 2) ** T, "noise": 36 * 2 * ETA / (3 * z.a) * z.most("Sigma_omega")},
        rel=1e-9,
    )
    C_A = max(np.linalg.norm(g["A"], 2) for g in z.agents)
    longest = z.a / (240 * ETA * (C_A**2 + z.most("Sigma_A")))
    assert (H, pytest.approx(longest, rel=1e-9)) in found.numbers.values()


def test_scaffnew():
    p = tiny(3, 2, 3, seed=4, weights=WEIGHTS)
    z = Tables(p)
    a = min(np.linalg.eigvalsh((g["A"] + g["A"].T) / 2)[0] for g in z.agents)
    for chance in (0.05, 0.5):  # of which one leaves p^2 below eta a and the other above
        found = fl.theory.bound(p, fl.Scaffnew(ETA, chance), T, p.theta_star + np.array([3.0, 4.0])).terms
        zeta, K = min(ETA * a, chance**2), math.ceil(T / chance - 1e-9)
        transient = (1 - zeta) ** K * (25 + ETA**2 / chance**2 * z.mean("xi"))
        assert found == pytest.approx({"transient": transient, "noise": 2 * ETA**2 / zeta * z.mean("omega")}, rel=1e-9)
    assert 0.05**2 < ETA * a < 0.5**2


def test_trajectories():
    p = fl.problems.garnet(agents=3, states=6, features=2, seed=3, weights=WEIGHTS)
    z, start = Tables(p), p.theta_star + np.array([3.0, 4.0])
    last = fl.theory.bound(p, fl.FedLSA(ETA, H), T, start, sampling=fl.Markov(thin=2)).terms
    expected = {"start": 5, "heterogeneity": 2 * T * z.mean("gap"), "noise": ETA * H * T * z.most("eps_sup")}
    assert last == pytest.approx(expected, rel=1e-9)
    tau = fl.theory.markov_constants(p).tau_mix
    thin = int(3 * tau)
    method = fl.FedLSA(ETA, 2 * thin)
    apart = fl.theory.bound(p, fl.FedLSA(ETA, 2), T, start).mse
    worst = fl.theory.bound(p, method, T, start, sampling=fl.Markov(thin=thin)).mse
    found = fl.theory.markov_bound(p, method, T, thin, start).terms
    delta = min(1.0, 3 * 2 * T * 0.25**3)
    assert found == pytest.approx({"independent": apart, "coupling": math.sqrt(delta) * worst}, rel=1e-9)


def test_claim_on_td():
    p = fl.problems.garnet(agents=3, states=6, features=2, discount=0.6, seed=3)
    claim = fl.theory.td_claim(p)
    noise = 2 * (1 + 0.6) ** 2
    assert (claim.C_A, claim.eta_inf, claim.Sigma_A_norm) == pytest.approx((1.6, 0.1, noise), rel=1e-12)
    assert claim.a == pytest.approx(0.4 * claim.nu / 2, rel=1e-12)
    assert claim.trace_Sigma_omega == pytest.approx(noise * (1 + p.theta_star @ p.theta_star), rel=1e-12)
    assert claim.trace_Sigma_eps == pytest.approx(noise * (1 + (p.theta_star_local**2).sum(axis=1)), rel=1e-12)


def test_constants():
    p = tiny(3, 2, 3, seed=4, weights=WEIGHTS)
    z, found = Tables(p), fl.theory.constants(p)
    heterogeneity = sum(w * g["Sigma_A"] * g["gap"] ** 2 for w, g in zip(z.w, z.agents, strict=True))
    expected = {
        "Sigma_A_mean": z.mean("Sigma_A"), "sigma_eps": z.mean("eps"), "sigma_omega": z.mean("omega"),
        "v_heter": heterogeneity, "Delta": z.mean("xi"), "distance": z.mean("gap"), "eps_sup": z.most("eps_sup"),
        "Sigma_omega_norm": z.most("Sigma_omega"), "Sigma_A_norm": z.most("Sigma_A"),
    }  # fmt: skip
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected, rel=1e-9)
    assert found.stability(ETA) == pytest.approx(z.a, rel=1e-9)
    for g in z.agents:  # E[A^T A] <= L E[(A + A^T) / 2], with equality for some agent
        g["slack"] = np.linalg.eigvalsh(found.L * (g["A"] + g["A"].T) / 2 - g["second"])[0]
    assert min(g["slack"] for g in z.agents) == pytest.approx(0, abs=1e-9)
