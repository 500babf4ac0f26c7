"""What reaches the page: the newest question's answers, and nothing of an older one."""

from dataclasses import replace

import pytest

from fedlsa.explore import answers, updates
from fedlsa.explore.answers import Question
from fedlsa.explore.open_page import Curves, OpenPage
from fedlsa.explore.page_settings import METHODS, SETTINGS, PageSettings
from fedlsa.explore.pool_worker import Progress

S = PageSettings(agents=3, rounds=5, local_steps=5)
Q = Question.of(S)
EACH = len(METHODS) + 1  # what is asked for one setting: its curves and its agents


class Pool:
    """Answers in this process, by topic, and keeps what it was asked; with its after-th the page asks another."""

    def __init__(self, after=10**6, other=None):
        self.page, self.after, self.other = OpenPage(self, "me"), after, other
        self.heard, self.dropped, self.asked = 0, [], {}

    def drop(self, session, topic):
        self.dropped.append(topic)

    def ask(self, session, topic, questions, lane="quick", pause=None):
        self.asked.setdefault(topic, []).extend(questions)
        for i, (function, arguments) in enumerate(questions):
            self.heard += 1
            if self.heard >= self.after:
                self.page.question = self.other
            yield Progress(i, "done", function(*arguments))


@pytest.fixture
def calm(monkeypatch):
    """Sliders rest at once."""
    monkeypatch.setattr(updates, "CALM", 0)
    monkeypatch.setattr(updates, "REST", 0)


def ask(pool, q=Q):
    """As the cell of the page does it; what is drawn, what is drawn once sliders rest."""
    put, settled = [], []
    asked = updates.begin(pool.page, q)
    put.append(pool.page.first)
    updates.follow(pool.page, pool.page.first, asked, put.append, settled.append)
    return put, settled


def test_curves_come_together_before_what_waits_for_calm_and_limits_last(calm):
    pool = Pool()
    put, settled = ask(pool)
    assert list(put[0].by_method) == list(updates.ORDER)
    assert not put[0].limits
    assert set(put[-1].limits) == set(put[-1].floors) == set(METHODS)
    assert [set(known.by_method) for known in settled] == [set(METHODS)]
    assert pool.dropped == ["ahead", "limits", "fit"]  # those of an older question


def test_curves_that_take_longer_are_drawn_as_they_finish():
    known = {name: answers.curve(Q, name) for name in updates.ORDER}
    pool = Pool()
    at_once = [Progress(1, "done", known["Scaffnew"]), Progress(0, "pause", None)]
    later = [Progress(2, "failed", "why"), Progress(0, "done", known["FedLSA"]), Progress(3, "done", b"{}")]
    pool.ask = lambda *_, **__: iter([*at_once, *later] if not put else [])
    put = []
    asked = updates.begin(pool.page, Q)
    first = pool.page.first
    updates.follow(pool.page, first, asked, put.append, put.append)
    assert [list(state.by_method) for state in (first, *put[:2])] == [["Scaffnew"]] * 2 + [["Scaffnew", "FedLSA"]]
    assert (put[2].failed, put[2].agents) == ({"SCAFFLSA": "why"}, b"{}")


def test_answers_that_were_dropped_are_not_taken_along(calm):
    page, put = Pool().page, []
    page.question = Q
    updates.follow(page, Curves(Q), iter([Progress(0, "failed", "why")]), lambda state: None, put.append)
    assert put == []


def test_limits_of_a_question_that_is_no_longer_the_pages_are_not_shown(calm):
    put, _ = ask(Pool(after=3 * EACH + len(METHODS) + 1))  # a newer one comes while limits are looked for
    assert put[-1].floors
    assert all(not known.limits for known in put)


def test_nothing_long_begins_for_a_question_that_was_replaced_while_sliders_rested(calm):
    pool = Pool(after=3 * EACH + len(METHODS))  # curves and agents, floors, and those of the next steps
    ask(pool)
    assert pool.heard == 3 * EACH + len(METHODS)


@pytest.mark.parametrize(
    ("before", "name", "values"),
    [
        (None, "local_steps", [7, 3]),
        ({"local_steps": 7}, "local_steps", [3, 7]),
        ({"local_steps": 3}, "local_steps", [7, 3]),
        ({"agents": 4}, "agents", [2, 4]),
        ({"agents": 4, "local_steps": 10}, "local_steps", [3, 7]),
        ({"x": "samples"}, "local_steps", [7, 3]),
    ],
)
def test_the_next_steps_are_those_of_the_slider_that_was_moved_last(before, name, values):
    old = None if before is None else Question.of(replace(S, **before))
    asked = updates.next_steps(Q, old)
    assert asked == [Question.of(replace(S, **{name: value})) for value in values]


def test_at_the_end_of_a_slider_there_is_one_step_back():
    last = SETTINGS["local_steps"].metadata["offers"][-1]
    assert [q.settings.local_steps for q in updates.next_steps(Question.of(replace(S, local_steps=last)), None)] == [
        SETTINGS["local_steps"].metadata["offers"][-2]
    ]


def test_what_the_next_step_asks_has_been_answered_before(calm):
    pool = Pool()
    for steps in (5, 3):
        ask(pool, Question.of(replace(S, local_steps=steps)))
    assert set(pool.asked["curves"][EACH:]) <= set(pool.asked["ahead"][: 2 * EACH])


def test_a_thread_that_begins_late_drops_nothing_of_a_newer_question(calm):
    pool, put = Pool(), []
    asked = updates.begin(pool.page, Q)
    newer = pool.page.question = Question.of(replace(S, agents=4))
    pool.dropped.clear()
    updates.follow(pool.page, Curves(Q), asked, put.append, put.append)
    assert (pool.dropped, put, pool.heard) == ([], [], EACH)
    assert pool.page.question is newer


def test_answers_of_an_older_question_are_not_shown_however_late_they_are_put():
    page = Pool().page
    updates.begin(page, Q)
    late = Curves(Question.of(S))  # equal, but asked before
    assert page.newest(late) is page.first
    assert page.newest(replace(page.first, agents="why")).agents == "why"


def test_where_there_is_nothing_to_ask_the_page_says_so_and_goes_on(calm):
    pool, settled = Pool(), []
    asked = updates.begin(pool.page, Q, trouble="no such column")
    updates.follow(pool.page, pool.page.first, asked, settled.append, settled.append)
    assert (list(pool.page.first.failed), pool.heard, len(settled)) == (list(METHODS), 0, 1)


def test_a_method_is_called_unstable_by_its_limit_and_until_that_is_known_by_its_curve():
    q = Question.of(PageSettings(agents=3, rounds=5, local_steps=5, step_size=1.0))
    known = Curves(q, {name: answers.curve(q, name) for name in METHODS})
    assert known.unstable == [name for name in METHODS if known.by_method[name].blown_up is not None] != []
    assert replace(known, limits=dict.fromkeys(METHODS, 2.0)).unstable == []
    assert replace(known, limits={"SCAFFLSA": 0.5, "FedLSA": 2.0, "Scaffnew": 2.0}).unstable == ["SCAFFLSA"]


def test_plans_of_another_problem_do_not_come_back(monkeypatch):
    monkeypatch.setattr(answers, "plan", lambda q, epsilon, name: f"no plan for {name}")
    same, other = Question.of(replace(S, step_size=0.2, local_steps=7)), Question.of(replace(S, agents=4))
    for after, now, shown in ((0, same, 3), (2, other, 1)):
        pool, put = Pool(after, now), []
        pool.page.question = Q
        updates.plans(pool.page, Q, put.append)
        assert len(put[-1].failed) == shown
    assert put[-1].busy
