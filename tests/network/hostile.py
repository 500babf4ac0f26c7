"""A coordinator that wants to know more than it may: it signs what it likes, and it invented all sites but one."""

import numpy as np
from tables_of_sites import write_table

import fedlsa as fl
from fedlsa.network.folder import setup
from fedlsa.network.folder.config import task_text
from fedlsa.network.protocol.agreed_design import AgreedDesign
from fedlsa.network.protocol.client import SiteRun
from fedlsa.network.protocol.messages import (
    ORIGIN,
    Average,
    Describe,
    Finish,
    Measure,
    Standardise,
    Work,
    digest_of_mean,
    extend,
    mark,
    to_row,
    width,
)
from fedlsa.network.protocol.ring import STATISTICS, VECTORS, Coding, add, from_share, to_floats
from fedlsa.network.protocol.run_settings import RunTerms
from fedlsa.network.site.limits import mask_secrets
from fedlsa.network.site.orders import OrderHandler
from fedlsa.network.site.policy import Policy
from fedlsa.network.site.site_data import open_data

VICTIM = "site-1"
STEPS = 2048  # enough for every table here


def gaussian_table(n=60, d=5, seed=0):
    """Rows (n, d + 1), the target last."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return np.column_stack([X, X @ np.arange(d) + rng.normal(size=n)])


def design(columns):
    """That of x0, x1, ..., as orders have it."""
    return AgreedDesign(tuple(f"x{j}" for j in range(columns)))


class LyingCoordinator:
    """Writes orders over all its sites, of which it replaces what it likes."""

    def __init__(self, root, sites, task):
        self.root, self.task = root, fl.Regression("y") if task is None else task
        self.network = setup.init(root / "net", sites, "127.0.0.1", task=self.task)
        self.names = list(self.network.sites)
        self.folders = {n: setup.enrol(self.network, self.network.bundle(n), root / n) for n in self.names}

    def certificates(self):
        return tuple(self.network.site_certificate(name).read_text() for name in self.network.sites)

    def told(self, token="t", **more):
        """The terms of a run."""
        said = {"task": task_text(self.task), "token": token, "method": "scafflsa", "local": "rows"}
        said |= {"aggregation": "secure", "coding": Coding(), "sites": self.network.sites}
        return RunTerms(**said | {"certificates": self.certificates()} | more)

    def over(self, members=None, weights=None):
        members = self.names if members is None else members
        share = np.full(len(members), 1 / len(self.names)) if weights is None else np.array(weights, float)
        return {"sites": tuple(members), "weights": share}

    def coordinates(self, rows):
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        said = {"centre": mean[:-1], "spread": spread[:-1], "y_centre": float(mean[-1]), "y_spread": float(spread[-1])}
        return said | {"intercept": self.task.intercept}

    def past(self, members=None):
        """What orders of rounds say of the past, by default that nothing was ever averaged."""
        marks = np.zeros(len(self.names if members is None else members), np.int64)
        return {
            "generation": 1, "theta": np.zeros(self.dim), "since": 0, "base": ORIGIN, "marks": marks,
            "entries": np.zeros((0, width(len(self.names))), np.uint8),
            "rounds": np.zeros(0, np.int64), "means": np.zeros((0, self.dim)),
        }  # fmt: skip

    def averaged(self, order, answers, mean, sites=None):
        """What later orders say where this one was averaged to a mean; answers : those that are said to be in it."""
        sites, mean = self.names if sites is None else sites, np.asarray(mean, float)
        entry = Average(order.round, order.label(), digest_of_mean(mean), tuple(sites))
        marks = np.array([mark(answers[site].share) if site in answers else 0 for site in self.names])
        rows = to_row(entry, self.names)[None]
        return {"entries": rows, "marks": marks, "rounds": np.array([order.round]), "means": mean[None]}


class Hostile(LyingCoordinator):
    """A network of which site-1 is real, with `rows`, and the others are the coordinator's own inventions."""

    def __init__(self, root, rows, task=None, sites=3, **policy):
        super().__init__(root, sites, task)
        self.rows = rows
        self.site = self.folders[VICTIM]
        (self.site.folder / "draws.secret").touch(0o600)
        (self.site.folder / "draws.secret").write_bytes(bytes(range(32)))
        self.table = root / "table.csv"
        write_table(self.table, rows)
        self.policy = Policy(**policy)
        self.lines = []
        self.handler = self.opened()
        self.names, self.weights = tuple(self.names), np.full(sites, 1 / sites)
        self.asked = 0
        self.terms = None

    def opened(self, **policy):
        """The site's process, started anew."""
        data = open_data(self.table, None, self.task)
        chosen = Policy(**policy) if policy else self.policy
        return OrderHandler(self.site, data, chosen, self.lines.append)

    def describe(self, token="t", name="trial", **more):
        self.terms = self.told(token, **more)
        return self.answer(Describe(name, self.terms))

    def agreed(self):
        """What orders for sums say before the rounds."""
        return {"sites": self.names, "weights": self.weights, "design": design(self.rows.shape[1] - 1)}

    def standardise(self, name="trial", **more):
        return self.answer(Standardise(name, **self.agreed() | more))

    def measure(self, name="trial", **more):
        said, k = self.agreed() | self.coordinates(self.rows), self.rows.shape[1] - 1
        if not self.task.scaled:
            said |= {"centre": np.zeros(k), "spread": np.ones(k), "y_centre": 0.0, "y_spread": 1.0}
        return self.answer(Measure(name, **said | more))

    def begin(self, token="t", name="trial", **more):
        """The orders before the rounds, all of which must be answered."""
        assert self.describe(token, name, **more).kind == "description"
        if self.task.scaled:
            assert self.standardise(name).kind == "sums"
        assert self.measure(name).kind == "measurement"

    @property
    def dim(self):
        return self.rows.shape[1] - 1 + self.task.intercept

    def common(self, more):
        """What orders of rounds say of sites and of the past."""
        return {"sites": self.names, "weights": self.weights} | self.past(more.get("sites")) | more

    def averaged(self, order, answer, mean, sites=None):
        """What orders say of a past in which this answer was averaged, with all others, to this mean."""
        return super().averaged(order, dict.fromkeys(self.names, answer), mean, sites)

    def order(self, name="trial", **more):
        self.asked += 1
        said = self.common({"round": self.asked, "eta": 1e-9, "steps": STEPS, "clip": 0.0} | more)
        return Work(name, **{"gain": 1 / (said["eta"] * said["steps"])} | said)

    def work(self, name="trial", **more):
        return self.answer(self.order(name, **more))

    def finish(self, name="trial", names=None, **more):
        names = [f"x{j}" for j in range(self.dim - self.task.intercept)] if names is None else names
        names += ["intercept"] * (self.task.intercept and len(names) < self.dim)
        return self.answer(Finish(name, **self.common({"names": tuple(names)} | more)))

    def answer(self, message):
        return self.handler.answer(message)

    def unmasked(self, message, answer, grid=VECTORS):
        """What the victim hid: the invented sites' keys are the coordinator's, so it can take all masks off."""
        known = self.handler.ledger.runs.get(self.terms.token)  # what the coordinator said itself
        context = known.labels["measure"] if isinstance(message, Work | Finish) else known.terms
        if isinstance(message, Measure):
            context += known.labels.get("standardise", "")
        head = ORIGIN if isinstance(message, Work | Finish) else b""
        for row in message.entries if isinstance(message, Work | Finish) else ():
            head = extend(head, row)
        members, label = message.sites, message.label(context, head)
        grid = self.terms.coding.grid if isinstance(message, Work) else grid
        zeros = [0] * len(answer.share)
        shares = [answer.share]
        for name in members:
            if name != VICTIM:
                secrets = mask_secrets(self.terms, self.folders[name])
                run = SiteRun(name, self.names, context, None, secrets=secrets, secure=self.terms.secure)
                shares.append(run.hidden(zeros, grid.limbs, members, label))
        return np.array(to_floats(from_share(add(shares)), grid.unit))

    def read(self, **more):
        """The victim's own change of theta in answer to one order, or None where it refuses."""
        order = self.order(**more)
        answer = self.answer(order)
        if answer.kind == "refusal":
            return None
        found = self.unmasked(order, answer) / order.weight(VICTIM)
        assert np.abs(found).max() < 1e17  # no mask is left on it
        return found


def statistics(world, message, answer):
    """The victim's own sums, with the masks off."""
    return world.unmasked(message, answer, STATISTICS)
