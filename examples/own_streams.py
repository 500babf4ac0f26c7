"""A stream of one's own: linear regression on Gaussian features that are drawn when they are needed, not listed.

Site c sees x ~ N(0, S_c) and y = x . theta_c + noise, so that A_bar_c = S_c and b_bar_c = S_c theta_c. Isserlis'
theorem gives the covariances of A(z) = x x^T and b(z) = y x, too, so theory is exact. Run it with
`python examples/own_streams.py`; docs/extending.md explains it.
"""

import numpy as np

import fedlsa as fl


def gaussian_regression(S, theta, noise=0.5):
    """S : (N, d, d) covariances of features; theta : (N, d); noise : standard deviation of what theta leaves."""
    root, d = np.linalg.cholesky(S), theta.shape[1]

    def draw(agent, uniforms, u, v):
        fl.problems.to_normals(uniforms)
        y = noise * uniforms[d]
        for i in range(d):
            for j in range(i + 1):
                u[i] += root[agent, i, j] * uniforms[j]
            v[i] = u[i]
            y += theta[agent, i] * u[i]
        return y

    W = np.concatenate([root, theta[:, None] @ root], 1)
    G = W @ W.swapaxes(1, 2)  # E[w w^T] of w = (x, y), all but the noise
    G[:, d, d] += noise**2
    i, k = np.divmod(np.arange(d * d), d)
    i, k = np.append(i, range(d))[:, None], np.append(k, [d] * d)[:, None]  # A(z) and then b(z) hold w_i w_k
    covariance = G[:, i, i.T] * G[:, k, k.T] + G[:, i, k.T] * G[:, k, i.T]
    return fl.problems.stream(S, G[:, :d, d], draw, uniforms=d + 1, covariance=covariance)


def example(sites: int = 5, d: int = 3):
    rng = np.random.default_rng(0)
    half = rng.normal(size=(sites, d, d)) / 2
    return gaussian_regression(half @ half.swapaxes(1, 2) + np.eye(d) / 2, rng.normal(size=(sites, d)))


def main(rounds: int = 200, seeds: int = 50) -> None:
    problem = example()
    for method in (fl.FedLSA(0.02, 20), fl.SCAFFLSA(0.02, 20), fl.Scaffnew(0.02, 0.05)):
        run = fl.simulate(problem, method, rounds=rounds, seeds=seeds, record=[rounds])
        exact = fl.theory.exact(problem, method, rounds=rounds, record=[rounds])
        found = run["squared_error"].values.mean()
        print(f"{method!r:48} mean squared error {found:.5f}, exactly {exact['mse'].values[-1]:.5f}")


if __name__ == "__main__":
    main()
