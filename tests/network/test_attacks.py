"""A hostile coordinator against one site: every other site is its own invention, so it sees that site's own answers.

Each attack is shown to work where the rule that stops it is not there, as far as that can be shown.
"""

import dataclasses
import json

import numpy as np
import pytest
from hostile import VICTIM, Hostile, design, gaussian_table, statistics
from memory_world import MemoryWorld
from msgspec.structs import replace
from scipy.spatial import cKDTree
from stores import change
from tables_of_sites import write_table

import fedlsa as fl
from fedlsa.errors import ArgumentError, NetworkError, PolicyError
from fedlsa.fitting.rows import Columns, FeatureScale
from fedlsa.fitting.sums import Summary
from fedlsa.network.disk import Database
from fedlsa.network.folder import certificates, setup
from fedlsa.network.folder.config import task_text
from fedlsa.network.protocol.codec import decode, encode
from fedlsa.network.protocol.messages import ORIGIN, Answers, Describe, Measure, Standardise, Work, width
from fedlsa.network.protocol.ring import VECTORS, Coding, add, from_share, to_floats
from fedlsa.network.protocol.run_settings import RunTerms
from fedlsa.network.site.facts import coefficient_names
from fedlsa.network.site.limits import check_coordinates
from fedlsa.network.site.orders import OrderHandler
from fedlsa.network.site.policy import Policy, allow, waiting
from fedlsa.network.site.site_data import open_data, prepare_steps


def standardised(rows):
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def unguarded(folder, table):
    """Local steps on a table as they are, and the coordinates they run in."""
    write_table(folder / "bare.csv", table)
    data = open_data(folder / "bare.csv", None, fl.Regression("y"))
    mean, spread = table.mean(axis=0), table.std(axis=0)
    scale = FeatureScale(mean[:-1], spread[:-1], float(mean[-1]), float(spread[-1]), True)
    return prepare_steps(data, data.task, scale, folder / "prepared")[0], scale


def rows_found(vectors, rows, within=1e-6):
    """How many rows can be read from vectors that may be multiples of y (x, 1), or of u = (x, 1) itself."""
    vectors = np.array([v for v in vectors if v is not None and v[-1] != 0]).reshape(-1, rows.shape[1])
    if not len(vectors):
        return 0
    tree = cKDTree(vectors[:, :-1] / vectors[:, -1:])
    near, _ = tree.query(standardised(rows)[:, :-1])
    return int((near <= within).sum())


def refusal(answer, entry):
    assert answer.kind == "refusal", answer.kind
    assert answer.reason == "policy"
    assert f"({entry})" in answer.text
    return answer.text


# single rows


def test_single_steps_that_once_gave_every_row_give_none(tmp_path):
    table, z = gaussian_table(40), np.zeros(6)
    steps, _ = unguarded(tmp_path, table)
    shown = [steps(z, z, 1.0, 1, step, 0, 0) for step in range(400)]  # what a site answered before it had a policy
    assert rows_found(shown, table) == 40
    refusal(Hostile(tmp_path / "default", table).describe(), "least_rows")
    world = Hostile(tmp_path / "smaller", table, least_rows=40)
    world.begin()
    assert rows_found([world.read(eta=1.0, steps=1) for _ in range(400)], table) == 0  # as many as gave all of them
    assert world.handler.ledger.totals.rounds == 0
    assert world.handler.ledger.refusals < 5  # the same refusal is entered once: it cannot fill the disk


def test_as_few_steps_as_are_allowed_and_differences_of_answers_give_no_row(tmp_path):
    table = gaussian_table(60)
    world = Hostile(tmp_path, table)
    world.begin()
    refusal(world.work(steps=511), "least_local_steps")
    answers = [world.read(steps=512, eta=1e-9) for _ in range(120)]
    assert all(a is not None for a in answers)
    pairs = [a - b for i, a in enumerate(answers) for b in answers[:i]]
    assert rows_found(answers, table, 1e-3) == 0
    assert rows_found(pairs, table, 1e-3) == 0
    assert world.handler.ledger.totals.rounds == 120


def test_no_two_orders_draw_the_same_rows_even_if_nothing_is_ever_acknowledged(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    theta = np.ones(6)
    first, second = (world.read(theta=theta, steps=512) for _ in range(2))  # nothing was averaged, both times
    assert np.abs(first - second).max() > 1e-3 * np.abs(first).max()
    order = world.order(theta=theta)
    assert np.array_equal(*(world.answer(order).share for _ in range(2)))  # the same order, the same answer


def test_the_rows_of_a_small_group_do_not_show_in_a_column_that_is_zero_elsewhere(tmp_path):
    table = gaussian_table(80)
    table[:, 2] = np.arange(80) < 5
    steps, scale = unguarded(tmp_path, table)

    def target_of_the_group(change, eta):
        """Sum of y over the draws in the group: column and intercept tell it apart from all other rows."""
        return (change[2] * scale.spread[2] + change[-1] * scale.centre[2]) / eta

    def single_targets(sums):
        y = standardised(table)[:5, -1]
        return sum(np.abs(np.array(sums) - target).min() < 1e-5 for target in y)

    z = np.zeros(6)
    shown = [target_of_the_group(steps(z, z, 1e-9, 20, 0, seed, 0), 1e-9) for seed in range(200)]
    assert single_targets(shown) == 5  # twenty steps on all rows: often just one of them is of the group
    world = Hostile(tmp_path / "site", table)
    world.begin()
    refusal(world.work(steps=256), "least_local_steps")
    assert single_targets([target_of_the_group(world.read(steps=512), 1e-9) for _ in range(100)]) == 0
    table[4, 2] = 0.0
    refusal(Hostile(tmp_path / "four", table).describe(), "least_rows_off_common_value")


def test_a_step_size_at_which_the_last_row_decides_is_refused(tmp_path):
    table, z = gaussian_table(60), np.zeros(6)
    steps, _ = unguarded(tmp_path, table)
    shown = [steps(z, z, 1e8, 20, 0, seed, 0) for seed in range(300)]
    assert rows_found(shown, table) >= 50
    world = Hostile(tmp_path / "site", table)
    world.begin()
    for eta in (1e8, 1.0, 1 / 32, 1 / 1279):
        text = refusal(world.work(eta=eta), "largest_step")
    assert "at most 0.000781" in text  # 1 / (20 * 64): a power of two, from averages; it does not tell the largest row
    answers = [world.read(eta=1 / 1280, steps=512) for _ in range(60)]
    assert rows_found(answers, table, 1e-2) == 0


def test_at_the_largest_step_size_the_last_row_of_a_group_does_not_stand_for_it(tmp_path):
    table, z = gaussian_table(80), np.zeros(6)
    table[:, 2] = np.arange(80) < 5
    steps, _ = unguarded(tmp_path, table)

    def largest_share(eta, count):
        """Of one of the five in what all of them together do to an answer, over many draws."""
        shares = []
        for seed in range(200):
            bare = steps(z, z, eta, count, 0, seed, 0)
            one, group = np.array(steps.y), np.array(steps.y)
            one[0] += 1
            group[:5] += 1
            changed = [dataclasses.replace(steps, y=y) for y in (one, group)]
            moved = [np.linalg.norm(other(z, z, eta, count, 0, seed, 0) - bare) for other in changed]
            shares.append(moved[0] / moved[1])
        return max(shares)

    assert largest_share(1 / 32, 512) > 0.9  # steps of this size forget all but the last ones drawn
    world = Hostile(tmp_path / "site", table)
    world.begin()
    refusal(world.work(eta=1 / 32), "largest_step")
    largest = world.measure().largest_eta
    assert world.work(eta=largest, steps=1024).kind == "reply"
    assert largest_share(largest, 1024) < 0.5  # a fifth on average


def test_huge_theta_and_huge_corrections_make_no_row_stand_out(tmp_path):
    table = gaussian_table(60)
    world = Hostile(tmp_path, table)
    world.begin()
    how = {"steps": 512, "eta": 1 / 1280}
    rng, answers = np.random.default_rng(1), []
    for _ in range(50):
        answers.append(world.read(theta=2e8 * rng.normal(size=6), **how))
    order = world.order(**how)
    answer = world.answer(order)
    past = world.averaged(order, answer, 2e8 * rng.normal(size=6))
    answers += [world.read(**how, **past) for _ in range(25)]
    assert np.abs(answers[-1]).max() > 1e7  # the control variate is enormous now
    assert rows_found(answers, table, 1e-3) == 0
    assert "must have entries of at most" in world.work(theta=np.full(6, 1e12), **how, **past).text


def test_a_control_variate_that_would_drown_the_rows_closes_the_run(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    order = world.order(eta=1e-12)
    past = world.averaged(order, world.answer(order), np.full(6, 1e9))
    refused = world.work(eta=1e-12, **past)
    assert "out of proportion" in refused.text
    assert "no more orders" in world.work(eta=1e-12).text  # it told a bit of the data, and no second one
    world.handler = world.opened()
    assert "no more orders" in world.work(eta=1e-12).text


def test_step_size_and_gain_are_those_of_the_method_and_stay(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    assert "'gain' must be that of scafflsa" in world.work(gain=1.0).text
    assert world.work().kind == "reply"
    assert "must stay" in world.work(eta=2e-9).text


def test_orders_about_more_columns_than_there_are_read_no_memory_beyond_the_rows(tmp_path):
    """With theta as long as the whole table, local steps read on into the next rows: all of them followed."""
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    for length in (5, 7, 12, 360):
        long = {"theta": np.zeros(length), "means": np.zeros((0, length))}
        assert "must have 6 entries" in world.work(**long).text
        assert world.finish(**long).kind == "refusal"
    steps, _ = unguarded(tmp_path, gaussian_table(60))
    with pytest.raises(ArgumentError):
        steps(np.zeros(12), np.zeros(12), 1e-9, 20, 0, 0, 0)


def test_a_site_does_not_compute_for_ever_at_one_order(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    refusal(world.work(steps=2**62), "most_local_steps")


def test_clipped_rows_whose_kinks_would_tell_where_they_are_need_noise(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    refusal(world.describe(coding=Coding(row_clip=1.0)), "privacy")
    refusal(world.describe(token="u", local="means", coding=Coding(row_clip=1.0)), "privacy")


# coordinates, sums, weights


def test_absurd_coordinates_are_refused(tmp_path):
    table = gaussian_table(60)
    world = Hostile(tmp_path, table)
    spread, centre = table.std(axis=0)[:-1].copy(), table.mean(axis=0)[:-1].copy()
    spread[1] = 1e-6
    centre[2] = 1e9
    for token, absurd in enumerate(({"spread": spread}, {"centre": centre}, {"y_spread": 1e-300})):
        world.describe(token=f"t{token}", name=f"run{token}")
        world.standardise(f"run{token}")
        refusal(world.measure(f"run{token}", **absurd), "largest_deviation")
        assert "no more orders" in world.measure(f"run{token}").text  # a bit of the data told: the run is over
    world.begin()


def test_one_set_of_coordinates_and_one_set_of_sums_in_a_run(tmp_path):
    """Many measurements in many coordinates gave the covariances of all columns, without a single round."""
    table = gaussian_table(60)
    world = Hostile(tmp_path, table)
    world.begin()
    answered = 0
    for factor in np.linspace(1.1, 3.0, 40):
        answer = world.measure(spread=table.std(axis=0)[:-1] * factor)
        answered += answer.kind != "refusal"
    assert answered == 0
    assert np.array_equal(*(world.measure().share for _ in range(2)))  # the one that was answered, again
    other = np.array([0.3, 0.3, 0.4])
    assert world.standardise(weights=other).kind == "refusal"
    change(world.site.folder, "delete from kept")
    assert world.describe().kind == "description"
    assert world.measure(spread=table.std(axis=0)[:-1] * 2).kind == "refusal"  # nor after its state was lost
    assert world.measure().kind == "measurement"


def test_nothing_of_one_person_leaves_before_a_run_and_sums_are_those_of_all_rows(tmp_path):
    table = gaussian_table(60)
    world = Hostile(tmp_path, table)
    described = world.describe()
    assert not any(isinstance(getattr(described, name), np.ndarray) for name in described.__struct_fields__)
    order = Standardise("trial", **world.agreed())
    sums = statistics(world, order, world.answer(order)) * 3
    np.testing.assert_allclose(sums, [1, *table.mean(axis=0), *(table**2).mean(axis=0)], rtol=0, atol=1e-7)  # blurred
    again = Hostile(tmp_path / "again", table)
    again.describe()
    order = Standardise("trial", **again.agreed())
    other = statistics(again, order, again.answer(order)) * 3
    assert (other[1:] != sums[1:]).all()  # in their last bits exact sums tell nothing
    measured = world.measure()
    assert measured.A is measured.b is measured.noise_map is None  # no moments, whatever is asked


def test_a_row_that_is_added_between_two_answers_does_not_show_in_their_difference(tmp_path):
    table = gaussian_table(60)
    world = Hostile(tmp_path, table)
    world.describe()
    order = Standardise("trial", **world.agreed())
    first = world.answer(order)
    write_table(world.table, np.vstack([table, table[:1] + 1]))
    assert world.answer(order).kind == "refusal"  # the same masks would cancel, and leave the row's part
    world.handler = world.opened()
    assert world.answer(order).kind == "refusal"
    assert first.kind == "sums"


@pytest.mark.parametrize(
    ("members", "weights", "entry"),
    [
        ([VICTIM], [1.0], "least_sites"),
        ([VICTIM, "site-2"], [0.5, 0.5], "least_sites"),
        ([VICTIM, "site-2", "site-3"], [1.0, 1e-300, 1e-300], "least_sites"),
        ([VICTIM, "site-2", "site-3"], [0.7, 0.2, 0.1], "largest_weight"),
    ],
)
def test_sums_that_do_not_hide_the_site_are_refused(tmp_path, members, weights, entry):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    refusal(world.work(sites=tuple(members), weights=np.array(weights)), entry)
    refusal(world.finish(sites=tuple(members), weights=np.array(weights)), entry)
    fresh = Hostile(tmp_path / "fresh", gaussian_table(60))
    fresh.describe()
    refusal(fresh.standardise(sites=tuple(members), weights=np.array(weights)), entry)


def test_lists_of_sites_that_lie_are_refused(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    for members in (["site-2", "site-3", "site-4"], [VICTIM, "site-2", "site-9"], [VICTIM, "site-2"]):
        answer = world.work(sites=tuple(members), weights=np.full(len(members), 1 / 3))
        assert answer.kind == "refusal"
    # other proportions of the same sites: from sums in many proportions each site's part would follow
    for weights in (np.array([0.3, 0.4, 0.3]), world.weights / 2, world.weights * (1 + 1e-12)):
        assert "'weights' must be those" in world.work(weights=weights).text
    assert world.work().kind == "reply"


def test_single_answers_and_too_few_sites_are_refused_when_the_run_begins(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    refusal(world.describe(aggregation="plain", certificates=()), "least_sites")
    pair = {"sites": world.network.sites[:2], "certificates": world.certificates()[:2]}
    refusal(world.describe(**pair), "least_sites")
    refusal(world.describe(rounds=2001), "most_rounds")
    world.handler = world.opened(least_sites=1)  # by the site's own hand
    assert world.describe(aggregation="plain", certificates=()).kind == "description"


def test_the_end_of_a_run_is_told_once(tmp_path):
    """Told twice with different pasts, the difference of the answers was the site's own change."""
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    order = world.order(theta=np.ones(6))
    answer = world.answer(order)
    first = world.finish()
    assert first.kind == "finished"
    assert np.array_equal(world.finish().share, first.share)
    assert "no more orders" in world.finish(**world.averaged(order, answer, np.ones(6))).text


def test_the_end_of_a_run_in_which_few_took_part_tells_no_control_variate(tmp_path):
    """Where one site alone is said to have been averaged, the sum of all control variates would be its own."""
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    order = world.order()
    past = world.averaged(order, world.answer(order), np.zeros(6), sites=world.names[:1])
    assert "(least_sites)" in world.finish(**past).text
    other = world.averaged(order, world.answer(order), np.ones(6) * 2)
    other["marks"] = other["marks"] + 1
    assert "another answer of this site" in world.finish(**other).text  # another past: no part in the sum


def test_the_same_round_with_another_theta_is_refused_also_after_the_state_was_lost(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    order = world.order(theta=np.ones(6))
    answer = world.answer(order)
    assert world.answer(replace(order, theta=np.zeros(6))).reason == "forgot"
    assert np.array_equal(world.answer(order).share, answer.share)
    change(world.site.folder, "delete from kept")
    assert world.answer(order).kind == "refusal"  # it does not know the run
    assert world.describe().kind == "description"
    assert world.measure().kind == "measurement"
    assert np.array_equal(world.answer(order).share, answer.share)  # drawn again, from its secret
    (world.site.folder / "draws.secret").unlink()
    change(world.site.folder, "delete from kept")
    world.handler = world.opened()
    world.describe()
    world.measure()
    said = world.answer(order)
    assert said.kind == "refusal"
    assert said.reason in ("forgot", "policy")  # other answers under the same masks never leave


def read_by_difference(world):
    """Work over all four sites and over three of them, at one theta on averages: the sums differ by the fourth's."""
    sites, d = list(world.network.sites), 8
    pems = tuple(world.network.site_certificate(name).read_text() for name in sites)
    terms = RunTerms(
        task=task_text(world.task), token="t", method="scafflsa", local="means", aggregation="secure", coding=Coding(),
        sites=tuple(sites), certificates=pems,
    )  # fmt: skip
    handlers = {name: world.handler(name) for name in sites}
    group = {"sites": tuple(sites), "weights": np.full(4, 0.25)}
    own = {"centre": np.zeros(d), "spread": np.ones(d), "y_centre": 0.0, "y_spread": 1.0, "intercept": False}
    orders = [Describe("trial", terms), Measure("trial", **group, **own, design=design(d))]
    for order in orders:
        for handler in handlers.values():
            assert handler.answer(order).kind != "refusal"
    z, sums, entries = np.zeros(d), [], np.zeros((0, width(4)), np.uint8)
    for round_, members in ((1, sites), (2, sites[:3])):
        m = len(members)
        past = 0, ORIGIN, entries, np.zeros(m, np.int64), np.zeros(0, np.int64), np.zeros((0, d))
        work = Work("trial", tuple(members), np.full(m, 0.25), 1, z, *past, round_, 2.0**-6, 1, 2.0**6, 0.0)
        answers = [handlers[name].answer(work) for name in members]
        if any(answer.kind == "refusal" for answer in answers):
            return answers
        total = from_share(add([answer.share for answer in answers]))
        sums.append(np.array(to_floats(total, VECTORS.unit)))
    return 4 * (sums[0] - sums[1])


def test_a_site_can_be_read_by_the_difference_of_two_groups_and_the_policy_counts_groups(tmp_path):
    """What a coordinator does that pretends a drop-out; with most_groups = 1 there are no two sums to compare."""
    X, y = (world := MemoryWorld(tmp_path / "five", most_groups=3)).data[3]
    np.testing.assert_allclose(64 * read_by_difference(world), X.T @ y / len(y), atol=1e-11)
    answers = read_by_difference(MemoryWorld(tmp_path / "one"))
    assert all("(most_groups)" in answer.text for answer in answers)


# who the others are


def test_keys_that_change_after_the_first_run_are_refused_and_peers_that_nobody_compared(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    place = tmp_path / "again"
    site = setup.enrol_site(world.network.bundle("site-2"), place)
    found, _ = setup.read_certificate(world.network, site.certificate)
    setup.approve(world.network.folder, site.certificate, found.fingerprint, renew=True)  # another key now
    text = refusal(world.describe(token="u", name="second"), "peers")
    assert "site-2 comes with another key than before" in text
    assert found.fingerprint in text
    other = certificates.fingerprint(world.certificates()[2].encode())
    world.handler = world.opened(peers=(other,))  # what a person enters counts, not what was seen before
    refusal(world.describe(token="u", name="second"), "peers")
    world.handler = world.opened(peers=(found.fingerprint,))  # site-3 has the key that it had
    assert "site-3 comes with a key that nobody here has compared" in refusal(
        world.describe(token="u", name="second"), "peers"
    )
    world.handler = world.opened(peers=(found.fingerprint, other))  # a person has asked site-2
    assert world.describe(token="u", name="second").kind == "description"
    careful = Hostile(tmp_path / "careful", gaussian_table(60), peers=(found.fingerprint,))
    assert "nobody here has compared" in refusal(careful.describe(), "peers")
    prints = tuple(certificates.fingerprint(pem.encode()) for pem in careful.certificates()[1:])
    careful.handler = careful.opened(peers=prints)
    assert careful.describe().kind == "description"


def test_invented_sites_are_not_told_from_real_ones_in_a_first_run(tmp_path):
    """What fingerprints are for: without them a coordinator that invents all others reads a site's own answers."""
    table = gaussian_table(60)
    world = Hostile(tmp_path, table)
    world.begin(local="means")
    change = world.read(eta=1.0, steps=1)
    u = np.column_stack([standardised(table)[:, :-1], np.ones(60)])
    np.testing.assert_allclose(change, u.T @ standardised(table)[:, -1] / 60, atol=1e-12)  # an average over all rows


def test_two_sites_with_one_key_are_refused(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    twice = (world.certificates()[0], world.certificates()[1], world.certificates()[1])
    assert world.describe(certificates=twice).kind == "refusal"
    assert world.describe(certificates=("", "", "")).kind == "refusal"


# runs


def test_a_run_that_is_over_is_not_answered_again(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    assert world.work().kind == "reply"
    assert world.finish().kind == "finished"
    assert world.finish().kind == "finished"  # the coordinator may have been killed: the same answer
    for handler in (world.handler, world.opened(privacy="site", noiseless_sums=True)):
        world.handler = handler
        for answer in (world.work(), world.describe(), world.standardise(), world.measure()):
            assert answer.kind == "refusal"
    assert "it is over" in world.work().text


def test_a_run_keeps_the_terms_it_began_with(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    assert "terms" in world.describe(local="means").text
    assert "terms" in world.describe(name="other").text
    assert world.describe().kind == "description"
    assert world.describe(receipts=((VICTIM, "nonsense"),), program="9.9").kind == "description"


def test_counts_go_on_over_runs_names_restarts_and_lost_state(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60), most_runs=3, most_rounds=4, most_answers=30)
    for token in ("a", "b", "c"):
        world.begin(token=token)  # the same name each time
        for _ in range(4):
            assert world.work().kind == "reply"
        refusal(world.work(), "most_rounds")
        change(world.site.folder, "delete from kept")
        world.handler = world.opened(most_runs=3, most_rounds=4, most_answers=30)
    refusal(world.describe(token="d"), "most_runs")
    assert world.handler.ledger.totals.answers == 21
    while world.describe(token="c").kind == "description":
        pass
    refusal(world.describe(token="c"), "most_answers")
    assert world.handler.ledger.totals.answers == 30


def test_names_of_columns_cannot_write_to_a_terminal(tmp_path):
    table = gaussian_table(60, 2)
    world = Hostile(tmp_path, table)
    text = world.table.read_text().replace("x0", "\x1b]0;owned\x07\x1b[2Jall agree", 1)
    world.table.write_text(text)
    said = world.describe().design
    columns = Columns(said.columns, (), "y")
    assert all(name.isprintable() for name in coefficient_names(world.task, columns))
    world.standardise(design=said)
    world.measure(design=said)
    names = list(coefficient_names(world.task, columns))
    for bad in (["\x1b[31mred", "b", "c"], ["a"], names[::-1], [*names, "d"]):
        assert "'names' must be those of the coefficients" in world.finish(names=bad).text
    assert world.finish(names=names).kind == "finished"
    told = json.loads((world.site.results / "trial.json").read_text())
    assert all(name.isprintable() for name in told["names"])


def test_a_name_that_is_a_path_and_records_that_are_no_orders_are_refused(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    for name in ("../../etc/x", "a/b", "", "x" * 100, "\x1b[2J"):
        answer = world.describe(name=name)
        assert answer.kind == "refusal"
        assert answer.experiment.isprintable()
    reply = Hostile(tmp_path / "b", gaussian_table(60))
    reply.begin()
    for body in (b"", b"nonsense", encode(reply.work())):
        assert decode(world.handler.respond(body), Answers).kind == "refusal"


def test_a_person_must_allow_a_run_where_the_policy_says_so(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60), approve_runs=True)
    first = world.describe(rounds=50)
    assert first.reason == "approval"
    assert list(waiting(world.site.folder)) == ["trial"]
    with pytest.raises(NetworkError, match="does not wait for anybody"):
        allow(world.site.folder, "other")
    words = allow(world.site.folder, "trial")
    assert "at most 50 rounds" in " ".join(words)
    assert world.describe(rounds=2000).reason == "approval"  # other terms than were allowed
    assert world.describe(rounds=50).kind == "description"
    assert world.standardise().kind == "sums"


@pytest.mark.parametrize("kind", ["standardise", "measure", "work", "finish"])
def test_orders_of_runs_that_the_site_does_not_know_are_refused(tmp_path, kind):
    world = Hostile(tmp_path, gaussian_table(60))
    assert getattr(world, kind)().reason == "data"


def test_every_answer_has_an_entry_and_nothing_leaves_when_the_disk_is_full(tmp_path, monkeypatch):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    world.work()
    kinds = [entry["asked"] for entry in world.handler.ledger.store.entries()]
    assert kinds == ["describe", "standardise", "measure", "work"]

    def full(store, entry, after):
        raise NetworkError("cannot write to the log: no space left on device")

    monkeypatch.setattr(Database, "append", full)
    for answer in (world.work(), world.finish(), world.describe()):
        assert answer.kind == "refusal"
        assert "no space left" in answer.text
    monkeypatch.undo()
    assert world.work().kind == "reply"


def test_the_handler_reads_the_policy_of_the_folder(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    handler = OrderHandler(world.site, open_data(world.table, None, world.task))
    assert handler.policy.least_rows == 50
    assert handler.policy.tasks == ("regression",)


# what refusals and lengths would tell, one bit at a time


def test_step_sizes_that_leave_every_range_are_refused_before_anything_is_computed(tmp_path):
    """On means too: what was too long was cut to a vector that all know, and the one site that was not cut was read."""
    world = Hostile(tmp_path, gaussian_table(60))
    for token, more in enumerate(({"eta": 1e300}, {"eta": 1e18, "steps": 50}, {"theta": np.full(6, 1e9), "eta": 1e12})):
        world.begin(token=f"t{token}", name=f"run{token}", local="means")
        refusal(world.work(f"run{token}", **{"steps": 1, **more}), "largest_step")
    assert world.handler.ledger.totals.rounds == 0


def test_a_control_variate_beyond_the_range_of_sums_is_no_reason_to_refuse_the_end(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60))
    world.begin()
    order = world.order()
    past = world.averaged(order, world.answer(order), np.full(6, 1e30))
    assert world.finish(**past).kind == "finished"
    for mean in (1e25, 1.0):
        assert world.finish(**past | {"means": np.full((1, 6), mean)}).kind == "refusal"


def test_refused_coordinates_tell_mean_and_deviation_no_finer_than_a_power_of_two():
    table = gaussian_table(60)
    task = fl.Regression("y")

    def told(rows, factor, j):
        own = Summary(60, rows.mean(axis=0), 60 * rows.var(axis=0), np.abs(rows).max(axis=0))
        spread = table.std(axis=0)
        spread[j] *= factor
        scale = FeatureScale(table.mean(axis=0)[:-1], spread[:-1], table[:, -1].mean(), spread[-1], True)
        try:
            check_coordinates(Policy(), scale, own, task)
        except PolicyError as error:
            return str(error)
        return ""

    other = table * [1.02, 0.98, 1.01, 0.99, 1.03, 1.0] + 0.01 * table.std(axis=0)
    for factor in np.geomspace(1e-3, 0.5, 200):
        for j in range(6):
            assert told(table, factor, j) == told(other, factor, j)
    assert {bool(told(table, factor, 0)) for factor in (1e-3, 0.5)} == {True, False}


def test_what_is_wrong_with_a_table_stays_in_the_sites_log(tmp_path):
    table = gaussian_table(60)
    world = Hostile(tmp_path, table)
    world.table.write_text(world.table.read_text().replace(f"{table[7, 2]:.17g}", "carcinoma", 1))
    said = world.describe()
    assert said.reason == "data"
    assert said.text == "this site cannot read its data or its files; its own log says why"
    assert any("carcinoma" in line or "x2" in line for line in world.lines)


def test_with_privacy_no_scale_makes_a_site_refuse_by_what_its_rows_are(tmp_path):
    """Where squares of rows overflow, refusals once told the largest value of a column, at no cost."""
    coding = Coding(clip=1.0, noise=50.0, unit="record", row_clip=1.0)
    for size in (1.0, 1e3):  # two tables; refusals that told them apart would tell the rest
        world = Hostile(tmp_path / f"{size:g}", gaussian_table(60) * size, privacy="record", epsilon=1.0)
        assert world.describe(coding=coding).kind == "description"
        spread = np.full(len(world.rows[0]) - 1, 1e-78)
        assert world.measure(spread=spread, y_spread=1e200).kind == "measurement"


def test_weights_that_differ_in_their_last_bits_read_no_site(tmp_path):
    """Exact sums with weights 1/4 (1 + 2^-52) had one site's own means below the last bit of the others'."""
    table = gaussian_table(60)
    world = Hostile(tmp_path, table)
    world.describe()
    order = Standardise("trial", **world.agreed() | {"weights": np.array([0.25 * (1 + 2.0**-52), 0.25, 0.25])})
    found = statistics(world, order, world.answer(order))
    assert np.abs(found[1:7] * 4 - table.mean(axis=0)).max() > 1e-14  # blurred far above 2^-52
