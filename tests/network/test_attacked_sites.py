"""Honest sites under the default policy, and a coordinator that holds none of their keys but says what it likes.

What it would learn is one site's own answer. Each attack worked before the rule that stops it was there.
"""

import itertools

import msgspec
import numpy as np
import pytest
from hostile import LyingCoordinator, design, gaussian_table
from tables_of_sites import write_table

import fedlsa as fl
from fedlsa.errors import PolicyError
from fedlsa.network.disk import Database
from fedlsa.network.protocol.codec import VERSION, decode, encode
from fedlsa.network.protocol.messages import (
    ORIGIN,
    Answers,
    Describe,
    Finish,
    Measure,
    Standardise,
    Work,
    extend,
)
from fedlsa.network.protocol.ring import STATISTICS, VECTORS, Coding, add, from_share, to_floats
from fedlsa.network.site.facts import view
from fedlsa.network.site.limits import check_change
from fedlsa.network.site.orders import OrderHandler, RunFiles
from fedlsa.network.site.policy import Policy
from fedlsa.network.site.site_data import open_data

ETA, STEPS = 2.0**-11, 2048


class Sites(LyingCoordinator):
    """Three honest sites or more; `ask` sends one of them an order."""

    def __init__(self, root, sites=3, n=60, d=3, task=None, **policy):
        super().__init__(root, sites, task)
        self.rows, self.handlers = {}, {}
        for k, (name, folder) in enumerate(self.folders.items()):
            self.rows[name] = gaussian_table(n, d, seed=k) * (1 + 0.3 * k) + 0.2 * k
            write_table(root / f"{name}.csv", self.rows[name])
            rules = Policy(ledger_copy=str(root / "copies"), **policy)
            data = open_data(root / f"{name}.csv", None, self.task)
            self.handlers[name] = OrderHandler(folder, data, rules, lambda text: None)
        self.victim, self.dim, self.design = self.names[0], d + self.task.intercept, design(d)

    def ask(self, site, message):
        return self.handlers[site].answer(message)

    def standardise(self, name="r", members=None, weights=None):
        return Standardise(name, **self.over(members, weights), design=self.design)

    def measure(self, name="r", members=None, weights=None, **more):
        said = self.coordinates(np.concatenate(list(self.rows.values()))) | {"design": self.design}
        return Measure(name, **self.over(members, weights), **said | more)

    def work(self, name="r", members=None, weights=None, **more):
        said = self.past(members) | {"round": 1, "eta": ETA, "steps": STEPS, "clip": 0.0} | more
        said = {"gain": 1 / (said["eta"] * said["steps"])} | said
        return Work(name, **self.over(members, weights), **said)

    def finish(self, name="r", members=None, **more):
        names = (*(f"x{i}" for i in range(self.dim - 1)), "intercept" if self.task.intercept else "x2")
        return Finish(name, **self.over(members), **self.past(members) | {"names": names} | more)

    def begin(self, name="r", token="t", terms=None, measures=None, **more):
        """The orders before the rounds; terms, measures : what a site is told apart from the others, by name."""
        for site in self.names:
            said = self.told(token, **more | (terms or {}).get(site, {}))
            orders = [Describe(name, said), self.standardise(name)]
            orders.append(self.measure(name, **(measures or {}).get(site, {})))
            for order in orders if self.task.scaled else orders[::2]:
                assert self.ask(site, order).kind != "refusal"

    def moved(self, name="r"):
        """What the victim itself holds, for comparison only."""
        return self.handlers[self.victim].files.state(name).delta


def total(answers, grid=VECTORS):
    assert all(answer.kind != "refusal" for answer in answers), [
        answer.text for answer in answers if answer.kind == "refusal"
    ]
    return np.array(to_floats(from_share(add([answer.share for answer in answers])), grid.unit))


def is_noise(found):
    """Masks are on it: numbers of the size of the whole range."""
    return np.abs(found).max() > 1e10


def test_the_sum_of_honest_sites_can_be_read_and_no_part_of_it(tmp_path):
    world = Sites(tmp_path)
    world.begin()
    answers = {site: world.ask(site, world.work()) for site in world.names}
    assert not is_noise(total(list(answers.values())))
    for left_out in world.names:
        assert is_noise(total([answers[site] for site in world.names if site != left_out]))


def test_sites_that_are_told_different_terms_have_masks_that_do_not_cancel(tmp_path):
    """With other terms (a clip of 1e-100) the others' answers were 0, and the sum was one site's own."""
    world = Sites(tmp_path)
    small = {site: {"coding": Coding(clip=1e-100)} for site in world.names[1:]}
    world.begin(terms=small)
    answers = [world.ask(site, world.work()) for site in world.names]
    assert [answer.kind for answer in answers] == ["reply", "refusal", "refusal"]  # nothing is cut behind masks
    apart = Sites(tmp_path / "apart")
    apart.begin(terms={site: {"coding": Coding(clip=1e6)} for site in apart.names[1:]})
    assert is_noise(total([apart.ask(site, apart.work()) for site in apart.names]))


def test_sites_that_are_told_different_coordinates_have_masks_that_do_not_cancel(tmp_path):
    world = Sites(tmp_path)
    wide = {site: {"spread": np.full(3, 1e150), "y_spread": 1e150} for site in world.names[1:]}
    world.begin(measures=wide)
    assert is_noise(total([world.ask(site, world.work()) for site in world.names]))


def test_sites_that_are_told_different_pasts_have_masks_that_do_not_cancel(tmp_path):
    """An enormous control variate, told to the others alone, and a clip made their answers known vectors."""
    world = Sites(tmp_path)
    world.begin()
    first = {site: world.ask(site, world.work()) for site in world.names}
    answers = []
    for site in world.names:
        more = {}
        if site != world.victim:
            more = world.averaged(world.work(), first, np.full(world.dim, 1e8))
        answers.append(world.ask(site, world.work(round=2, **more)))
    assert any(answer.kind == "refusal" for answer in answers) or is_noise(total(answers))
    clipped = world.ask(world.victim, world.work(round=3, clip=1e-6))
    assert "'clip' must be that of the run's terms" in clipped.text


# a coordinator that lies about the past: sites whose transcripts differ have masks that do not cancel


def steered(world, pasts):
    """Round 2 over all sites, where each is told its own version of what came of round 1."""
    return {site: world.ask(site, world.work(round=2, **pasts.get(site, {}))) for site in world.names}


def test_a_round_that_one_site_alone_took_part_in_reads_nothing_of_it(tmp_path):
    """Its control variate followed a mean of the coordinator's choosing, and later sums differed by its own part."""
    for k, everybody in enumerate((False, True)):  # whether the others are told of it as well
        world = Sites(tmp_path / str(k))
        world.begin()
        alone = {world.victim: world.ask(world.victim, world.work())}
        mean = np.full(world.dim, 1e3)
        for sites in ([world.victim], world.names):
            past = world.averaged(world.work(), alone, mean, sites)
            answers = steered(world, dict.fromkeys(world.names if everybody else [world.victim], past))
            kinds = {site: answer.kind for site, answer in answers.items()}
            if sites == [world.victim]:
                assert "(least_sites)" in answers[world.victim].text
                assert not everybody or set(kinds.values()) == {"refusal"}  # by whoever sees it
            elif everybody:  # they hold no such answer
                assert [kinds[site] for site in world.names[1:]] == ["refusal"] * 2
                assert {answers[site].reason for site in world.names[1:]} == {"forgot"}
            else:
                assert set(kinds.values()) == {"reply"}
                assert is_noise(total(list(answers.values())))


def test_sites_that_began_a_round_at_different_models_or_were_told_different_means_have_no_sum(tmp_path):
    """One round with two orders, of which each half is told its own; then one with two means."""
    for k, apart in enumerate(("theta", "mean")):
        world = Sites(tmp_path / str(k))
        world.begin()
        theta = np.eye(world.dim)[0] * (apart == "theta")
        order = {site: world.work(theta=theta if site == world.victim else 0 * theta) for site in world.names}
        first = {site: world.ask(site, order[site]) for site in world.names}
        mean = {site: np.eye(world.dim)[0] * (apart == "mean" and site == world.victim) for site in world.names}
        pasts = {site: world.averaged(order[site], first, mean[site]) for site in world.names}
        answers = steered(world, pasts)
        assert {answer.kind for answer in answers.values()} == {"reply"}
        assert is_noise(total(list(answers.values())))
        last = {site: world.ask(site, world.finish(**pasts[site])) for site in world.names}
        assert any(answer.kind == "refusal" for answer in last.values()) or is_noise(total(list(last.values())))


def test_a_past_that_was_told_once_stays_and_a_mean_is_the_one_of_its_entry(tmp_path):
    world = Sites(tmp_path)
    world.begin()
    first = {site: world.ask(site, world.work()) for site in world.names}
    past = world.averaged(world.work(), first, np.zeros(world.dim))
    other = world.averaged(world.work(), first, np.ones(world.dim))
    twice = past | {"entries": np.vstack([past["entries"]] * 2)}
    for lie, words in ((past | {"means": other["means"]}, "'means' must hold that of round 1"), (twice, "come after")):
        assert words in world.ask(world.victim, world.work(round=2, **lie)).text
    assert world.ask(world.victim, world.work(round=2, **past)).kind == "reply"
    for lie in (other, {}, twice, {"base": bytes([1] * 32)}, {"since": 1}):
        answer = world.ask(world.victim, world.work(round=3, **lie))
        assert (answer.kind, answer.reason) == ("refusal", "forgot")
    again = world.work(round=3, since=1, base=extend(ORIGIN, past["entries"][0]))
    assert world.ask(world.victim, again).kind == "reply"  # what it knows need not be told again


def test_sums_are_over_one_group_of_sites_and_every_site_sees_the_groups_without_it(tmp_path):
    """From the sums over four sites and over three of them the fourth's own part follows."""
    world = Sites(tmp_path, sites=4)
    world.begin()
    assert world.ask(world.victim, world.work()).kind == "reply"
    three = world.names[1:]
    for site in three:
        assert "(most_groups)" in world.ask(site, world.work(round=2, members=three)).text
    first = {site: world.ask(site, world.work()) for site in three}
    past = world.averaged(world.work(members=three), first, np.zeros(world.dim), three)
    assert "(most_groups)" in world.ask(world.victim, world.work(round=2, **past)).text
    assert len(world.handlers[world.victim].ledger.groups) == 1


def test_noise_that_the_coordinator_chose_too_small_opens_no_second_group(tmp_path):
    """Runs with any noise had groups without end, also where no policy held the noise to a budget."""
    world = Sites(tmp_path, sites=4)
    world.begin(local="means", coding=Coding(clip=1e6, noise=1e-30))
    whole = total([world.ask(site, world.work(steps=1, eta=0.5)) for site in world.names])
    answers = [
        world.ask(site, world.work(round=2, members=world.names[1:], steps=1, eta=0.5)) for site in world.names[1:]
    ]
    if all(answer.kind == "reply" for answer in answers):  # then the victim's part is no secret
        assert np.abs(4 * (whole - total(answers)) - world.moved()).max() > 1e-3
    assert all("(most_groups)" in answer.text for answer in answers)


def test_the_end_of_a_run_does_not_tell_the_control_variate_of_one_site(tmp_path):
    world = Sites(tmp_path, sites=4)
    world.begin()
    answer = world.ask(world.victim, world.work())
    past = world.averaged(world.work(), {world.victim: answer}, np.zeros(world.dim), sites=[world.victim])
    last = world.finish(**past)
    assert "(least_sites)" in world.ask(world.victim, last).text
    told = [world.ask(site, last if site == world.victim else world.finish()) for site in world.names]
    assert told[0].kind == "refusal"


def test_a_measure_that_is_refused_leaves_nothing_behind(tmp_path):
    """One that named a site outside the run was refused after its coordinates had been taken over."""
    world = Sites(tmp_path)
    site = world.victim
    world.ask(site, Describe("r", world.told()))
    world.ask(site, world.standardise("r"))
    for members, weights in (([*world.names, "ghost"], [0.25] * 4), ([*world.names[:2], "ghost"], [0.3] * 3)):
        assert world.ask(site, world.measure(members=members, weights=weights)).kind == "refusal"
        assert world.handlers[site].files.note("r")["scale"] is None
        assert world.ask(site, world.work()).kind == "refusal"


@pytest.mark.parametrize("privacy", ["none", "record"])
def test_orders_about_more_numbers_than_a_row_has_are_refused(tmp_path, privacy):
    """theta as long as the whole table made the steps read on into the next rows: all rows followed."""
    task = fl.Regression("y", standardise=False)
    world = Sites(tmp_path, task=task, privacy=privacy, epsilon=5.0)
    coding = Coding(clip=10.0, noise=5.0, unit="record", row_clip=1.0) if privacy == "record" else Coding()
    site, k = world.victim, 3
    assert world.ask(site, Describe("r", world.told(coding=coding))).kind == "description"
    own = {"centre": np.zeros(k), "spread": np.ones(k), "y_centre": 0.0, "y_spread": 1.0}
    assert world.ask(site, world.measure(**own)).kind == "measurement"
    for length in (1, 3, 5, 60 * 4):
        long = {"theta": np.zeros(length), "means": np.zeros((0, length))}
        assert "must have 4 entries" in world.ask(site, world.work(**long)).text
    assert world.handlers[site].ledger.totals.rounds == 0


def test_with_privacy_no_refusal_before_a_run_depends_on_a_row(tmp_path):
    said = []
    for last in (1.0, 1.2):  # two tables that differ in one row, and coordinates between their deviations
        world = Sites(tmp_path / str(last), d=2, n=64, privacy="record", epsilon=1.0)
        rows = world.rows[world.victim]
        rows[:, 0] = np.where(np.arange(64) % 2, 1.0, -1.0)
        rows[-1, 0] *= last
        rows[:, 1] = np.arange(64) < 3 + (last > 1)  # and a small group
        write_table(tmp_path / str(last) / f"{world.victim}.csv", rows)
        coding = Coding(clip=1.0, noise=50.0, unit="record", row_clip=1.0)
        described = world.ask(world.victim, Describe("r", world.told(coding=coding)))
        wide = {"centre": np.zeros(2), "spread": np.array([0.06, 1e9]), "y_centre": 0.0, "y_spread": 1e9}
        said.append((described.kind, world.ask(world.victim, world.measure(**wide)).kind))
    assert said[0] == said[1]


def test_runs_with_other_weights_are_groups_of_their_own(tmp_path):
    """From sums in three proportions each site's own means followed."""
    world = Sites(tmp_path, most_groups=1)
    kinds = []
    for k, weights in enumerate(([0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4])):
        world.ask(world.victim, Describe(f"r{k}", world.told(token=f"t{k}")))
        answer = world.ask(world.victim, world.standardise(f"r{k}", weights=weights))
        kinds.append(getattr(answer, "text", answer.kind))
    assert kinds[0] == "sums"
    assert all("(most_groups)" in text for text in kinds[1:])
    assert Policy().most_groups == 1


def test_a_row_that_is_added_between_two_runs_does_not_show(tmp_path):
    world = Sites(tmp_path)
    site = world.victim

    def sums(name):
        answers = []
        for each in world.names:
            described = world.ask(each, Describe(name, world.told(token=name)))
            if described.kind == "refusal":
                return described.text
            answers.append(world.ask(each, world.standardise(name)))
        return total(answers, STATISTICS)

    before, new = sums("a"), np.array([[1.25, -0.5, 3.75, 42.0]])
    table = np.vstack([world.rows[site], new])
    write_table(tmp_path / f"{site}.csv", table)
    assert "(least_changed_rows)" in sums("b")
    write_table(tmp_path / f"{site}.csv", np.vstack([world.rows[site], np.repeat(new, 5, axis=0)]))
    after = sums("c")  # five rows, as small cells have it: their sum follows, not one of them
    assert after.shape == before.shape
    fives = np.vstack([world.rows[site], np.repeat(new, 5, axis=0)])
    changed = fives.copy()
    changed[0] += 1
    for few in (changed, np.vstack([changed, fives[1:6]]), np.vstack([changed[1:], fives[1:6]]), fives[1:]):
        write_table(tmp_path / f"{site}.csv", few)
        assert "(least_changed_rows)" in sums("d")  # one row is gone, however many are new
    changed[:5] += 1
    write_table(tmp_path / f"{site}.csv", changed[::-1])
    assert sums("e").shape == before.shape  # five are


def test_a_row_of_a_new_level_does_not_make_all_rows_new(tmp_path):
    rng = np.random.default_rng(0)

    def write(name, levels):
        lines = [f"{x},{g},{y}" for x, g, y in zip(rng.normal(size=60), levels, rng.normal(size=60), strict=True)]
        (tmp_path / name).write_text("\n".join(["x,g,y", *lines]))
        task = fl.Regression("y ~ x + g")
        return view(open_data(tmp_path / name, None, task).opened, task)

    seen = [write("a.csv", ["p", "q"] * 30), write("b.csv", ["p", "q"] * 29 + ["p", "r"])]
    files = RunFiles(None, Database(tmp_path), print)
    files.keep_rows(seen[0])
    assert files.changed_rows(seen[0]) == (0, 0)
    assert files.changed_rows(seen[1]) is None  # columns are others: numbers of rows decide
    last = seen[0].summary.n, seen[0].digest
    with pytest.raises(PolicyError, match="least_changed_rows"):
        check_change(Policy(), seen[1].summary.n, seen[1].digest, last, files.changed_rows(seen[1]))


def test_hashes_of_rows_tell_whole_numbers_apart_and_need_the_key(tmp_path):
    write_table(tmp_path / "t.csv", np.array([[a, b, c] for a in range(40) for b in range(40) for c in (0, 1)], float))
    task = fl.Regression("y")
    table = open_data(tmp_path / "t.csv", None, task).opened
    one, other = (view(table, task, key=key).rows for key in (1, 2))
    assert len(np.unique(one)) == 3200
    assert not np.isin(one, other).any()


def test_a_table_that_changes_during_a_run_ends_it(tmp_path):
    world = Sites(tmp_path)
    world.begin(local="means")
    assert world.ask(world.victim, world.work(steps=1, eta=0.5)).kind == "reply"
    write_table(tmp_path / f"{world.victim}.csv", world.rows[world.victim][::-1])  # the same rows in another order
    assert world.ask(world.victim, world.work(steps=1, eta=0.5)).kind == "reply"
    write_table(tmp_path / f"{world.victim}.csv", np.vstack([world.rows[world.victim], np.ones((9, 4))]))
    assert "has changed since the run began" in world.ask(world.victim, world.work(round=2, steps=1, eta=0.5)).text
    write_table(tmp_path / f"{world.victim}.csv", world.rows[world.victim])
    assert "no more orders" in world.ask(world.victim, world.work(round=2, steps=1, eta=0.5)).text


def test_a_table_that_changes_between_the_first_orders_of_a_run_ends_it(tmp_path):
    world = Sites(tmp_path)
    assert world.ask(world.victim, Describe("r", world.told())).kind == "description"
    write_table(tmp_path / f"{world.victim}.csv", np.vstack([world.rows[world.victim], np.ones((1, 4))]))
    answer = world.ask(world.victim, world.standardise("r"))
    assert "has changed since the run began" in answer.text


def odd_orders(world):
    """Orders, or the bytes of some, that nobody honest writes."""
    one = np.ones
    yield from (world.measure(centre=one(k), spread=one(k)) for k in (0, 1, 2))
    yield from (world.measure(spread=x * one(3)) for x in (0.0, -1.0, 1e-308, 1e308))
    yield world.measure(y_spread=-1.0)
    yield world.measure(intercept=False)
    yield from (world.work(eta=eta, gain=0.0) for eta in (1e308, 5e-324))
    yield world.work(gain=1e308)
    yield from (world.work(weights=[w] * 3) for w in (1e-320, 1e-300))
    yield world.work(theta=np.zeros(0), means=np.zeros((0, 0)))
    yield world.work(entries=np.zeros((3, 5), np.uint8))
    yield world.work(since=7)
    yield world.work(base=bytes(range(32)))
    fields = msgspec.msgpack.decode(encode(Describe("r2", world.told("u")))[1:])
    for said in ({"a": 1}, [], None, {"coding": {}}, "text", [[[[]]]]):
        yield bytes([VERSION]) + msgspec.msgpack.encode(fields | {"terms": said})
    for name, bad in (
        ("rounds", -1), ("rounds", 2**64 - 1), ("sites", []), ("sites", "abc"), ("sites", [1]), ("certificates", 5),
        ("receipts", {"a": 1}), ("receipts", [["site-1", "x" * 10]]), ("coding", {"clip": float("nan")}),
        ("coding", []), ("method", []), ("method", {}), ("local", None), ("certificates", ["x"] * 3), ("token", ""),
    ):  # fmt: skip
        yield bytes([VERSION]) + msgspec.msgpack.encode(fields | {"terms": fields["terms"] | {name: bad}})


def test_no_odd_order_is_more_than_refused(tmp_path):
    world = Sites(tmp_path)
    world.ask(world.victim, Describe("r", world.told()))
    for order in odd_orders(world):
        body = order if isinstance(order, bytes) else encode(order)
        answer = decode(world.handlers[world.victim].respond(body), Answers)
        assert answer.kind in ("refusal", "description")
    world.handlers[world.victim].files.remember("r", {})
    assert world.ask(world.victim, world.work()).kind == "refusal"  # nor does a damaged note end the process


# what exact sums tell by themselves, where no order is a lie


def rounds_of(world, lengths):
    """Sums of rounds of these lengths from 0 and from each unit vector, none of them averaged: (h, d + 1, d)."""
    starts, rounds = np.vstack([np.zeros(world.dim), np.eye(world.dim)]), itertools.count(1)
    orders = [[world.work(round=next(rounds), theta=x, steps=h, eta=0.5) for x in starts] for h in lengths]
    found = [[total([world.ask(site, order) for site in world.names]) for order in row] for row in orders]
    return np.array(found) + starts


def parts_of_sums(found, sites):
    """Each site's L_c = I - eta A_c, from S_h = sum_c w_c L_c^h for h = 0, 1, ..., the impulses of a linear system."""
    d, p = found.shape[2], (len(found) + 1) // 2
    S = [np.eye(d), *np.swapaxes(found[:, 1:] - found[:, :1], 1, 2)]
    now, later = (np.block([[S[i + j + k] for j in range(p)] for i in range(p)]) for k in (0, 1))
    U, size, V = np.linalg.svd(now)
    U, V, root = U[:, : sites * d], V[: sites * d], np.sqrt(size[: sites * d])
    values, X = np.linalg.eig((U / root).T @ later @ (V.T / root))
    outer = np.einsum("ik,kj->kij", (U * root)[:d] @ X, np.linalg.inv(X) @ (root[:, None] * V)[:, :d]).real
    directions = np.array([np.linalg.svd(part)[0][:, 0] for part in outer])
    groups = [np.argsort(np.abs(directions @ v) * (directions != v).any(axis=1)) for v in directions]
    groups = [[k, *(j for j in order if j != k)][:d] for k, order in enumerate(groups)]  # of one site: orthogonal
    return [sum(values[k].real * np.outer(directions[k], directions[k]) for k in group) for group in groups]


def test_long_rounds_on_means_tell_each_sites_own_system_through_the_masks(tmp_path):
    """Sums of powers tell what they are powers of: 15 over three sites, to whom nobody lies. Noise is the defence."""
    world = Sites(tmp_path, d=1, n=200)
    world.begin(local="means")
    parts = parts_of_sums(rounds_of(world, range(1, 6)), len(world.names))
    for handler in world.handlers.values():
        own = np.eye(2) - 0.5 * next(iter(handler.table.prepared.values()))[0].A
        assert min(np.abs(part - own).max() for part in parts) < 1e-4
