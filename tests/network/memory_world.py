"""A network in memory: folders, enrolled sites with disks of their own, and a transport that meddles on request."""

import numpy as np
from stores import change
from tables_of_sites import site_data, write_table

import fedlsa as fl
from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.folder import setup
from fedlsa.network.protocol.codec import decode, encode
from fedlsa.network.protocol.messages import Answers
from fedlsa.network.protocol.run_settings import StartOptions
from fedlsa.network.site.orders import OrderHandler
from fedlsa.network.site.policy import Policy
from fedlsa.network.site.site_data import open_data

D, ROWS = 8, 60
ETA, H = 0.003, 64


def by_hand(rounds, **more):
    return {"step_size": ETA, "local_steps": H, "rounds": rounds, **more}


class MemoryWorld:
    """`meddle(site, answer)` may spoil an answer, or lose it with None; `absent` are away."""

    def __init__(self, root, task=None, sites=4, **policy):
        self.root, self.data = root, site_data(sites, ROWS, D)
        self.task = fl.Regression("y", intercept=False, standardise=False) if task is None else task
        self.network = setup.init(root / "net", sites, "127.0.0.1", task=self.task)
        self.sites = {}
        for name, (X, y) in zip(self.network.sites, self.data, strict=True):
            write_table(root / f"{name}.csv", np.column_stack([X, y]))
            self.sites[name] = setup.enrol(self.network, self.network.bundle(name), root / name)
        self.policy = Policy(ledger_copy=str(root / "copies"), **{"least_local_steps": 1, **policy})
        self.absent, self.lost, self.meddle = set(), set(), lambda site, answer: answer

    def handler(self, site):
        """What answers a site's orders, as a new process."""
        data = open_data(self.root / f"{site}.csv", None, self.sites[site].task)
        return OrderHandler(self.sites[site], data, self.policy, lambda text: None)

    def folder(self, site):
        return self.sites[site].folder

    def present(self):
        return tuple(s for s in self.network.sites if s not in self.absent)

    def ask(self, orders, deadline):
        for site, order in orders.items():
            if site in self.absent:
                continue
            answer = self.meddle(site, decode(self.handler(site).respond(encode(order)), Answers))
            if answer is not None:
                yield site, answer

    def start(self, **options):
        return RunFolder.create(self.network, StartOptions(**{"deadline": 5, "grace": 0, "name": "trial", **options}))

    def losing(self, site, answer):
        """Once, in round 3, site-2 loses its state and its answer."""
        if site == "site-2" and answer.kind == "reply" and answer.round == 3 and site not in self.lost:
            self.lost.add(site)
            change(self.folder(site), "delete from kept")
            return None
        return answer

    def xi(self, name="trial"):
        return np.stack([self.handler(s).files.state(name).xi for s in self.network.sites])

    def on_means(self, rounds, method=None, seed=0):
        """theta of the simulation on the sites' means, whose local steps draw nothing."""
        means = [([1.0], (X.T @ X / len(X))[None], (X.T @ y / len(X))[None]) for X, y in self.data]
        problem = fl.problems.from_observations(means)
        method = fl.SCAFFLSA(ETA, H) if method is None else method
        return fl.simulate(problem, method, rounds=rounds, seeds=[seed], theta_0=np.zeros(D)).theta.values[0, -1]
