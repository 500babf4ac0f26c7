"""What reaches the page: the newest question's answers, and nothing of an older one."""

from dataclasses import replace

import pytest

from fedlsa.explore import answers, updates
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import METHODS, SETTINGS, PageSettings
from fedlsa.explore.pool_worker import Answer

Q = Question.of(PageSettings(agents=3, rounds=5, local_steps=5))
EACH = len(METHODS) + 1  # what is asked for one setting: its curves and its agents


class Page:
    """What is put, as long as nobody asks something newer; `after` answers it is no longer wanted."""

    def __init__(self, after=10**6):
        self.put, self.heard, self.after = [], 0, after

    def wanted(self):
        return self.heard < self.after


class Pool:
    """Answers in this process, and counts them for the page."""

    def __init__(self, page):
        self.page, self.dropped = page, []

    def drop(self, session, topic):
        self.dropped.append(topic)

    def ask(self, session, topic, questions, lane="quick", pause=None):
        for i, (function, arguments) in enumerate(questions):
            self.page.heard += 1
            yield Answer(i, "done", function(*arguments))


def opened(pool):
    return updates.OpenPage(pool, "me")


def ask(page, q, wanted, put, *rest):
    """As the cell of the page does it."""
    asked = updates.ask_curves(page, q)
    put(first := updates.at_once(q, asked))
    updates.question(page, first, asked, wanted, put, *rest)


def test_curves_come_together_before_what_waits_for_calm_and_limits_last(monkeypatch):
    monkeypatch.setattr(updates, "CALM", 0)
    monkeypatch.setattr(updates, "REST", 0)
    page, settled = Page(), []
    pool = Pool(page)
    ask(opened(pool), Q, page.wanted, page.put.append, settled.append)
    assert list(page.put[0].by_method) == list(updates.ORDER)
    assert not page.put[0].limits
    assert set(page.put[-1].limits) == set(page.put[-1].floors) == set(METHODS)
    assert [set(known.by_method) for known in settled] == [set(METHODS)]
    assert pool.dropped == ["ahead", "limits", "fit"]  # those of an older question


def test_curves_that_take_longer_are_drawn_as_they_finish():
    known = {name: answers.curve(Q, name) for name in updates.ORDER}
    replies = [Answer(1, "done", known["Scaffnew"]), Answer(0, "pause", None)]
    later = Answer(2, "failed", "why"), Answer(0, "done", known["FedLSA"]), Answer(3, "done", b"{}")
    asked = iter([*replies, *later])
    first, put = updates.at_once(Q, asked), []
    last = updates.curves(first, asked, put.append)
    assert [list(state.by_method) for state in (first, *put[:2])] == [["Scaffnew"]] * 2 + [["Scaffnew", "FedLSA"]]
    assert last is put[-1]
    assert (last.failed, last.agents) == ({"SCAFFLSA": "why"}, b"{}")
    assert updates.curves(first, iter(()), put.append) is None  # dropped: a newer question has come


def test_limits_of_a_question_that_is_no_longer_the_pages_are_not_shown(monkeypatch):
    monkeypatch.setattr(updates, "CALM", 0)
    monkeypatch.setattr(updates, "REST", 0)
    page = Page(after=3 * EACH + len(METHODS) + 1)  # a newer one comes while limits are looked for
    ask(opened(Pool(page)), Q, page.wanted, page.put.append, lambda known: None)
    assert all(not known.limits for known in page.put)


def test_nothing_long_begins_for_a_question_that_was_replaced_while_sliders_rested(monkeypatch):
    monkeypatch.setattr(updates, "CALM", 0)
    monkeypatch.setattr(updates, "REST", 0)
    page = Page(after=3 * EACH + len(METHODS))  # curves and agents, floors, and those of the next steps
    ask(opened(Pool(page)), Q, page.wanted, page.put.append, lambda known: None)
    assert page.heard == 3 * EACH + len(METHODS)


S = PageSettings(agents=3, rounds=5, local_steps=5)


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
    asked = updates.next_steps(Question.of(S), old)
    assert asked == [Question.of(replace(S, **{name: value})) for value in values]


def test_at_the_end_of_a_slider_there_is_one_step_back():
    last = SETTINGS["local_steps"].metadata["offers"][-1]
    assert [q.settings.local_steps for q in updates.next_steps(Question.of(replace(S, local_steps=last)), None)] == [
        SETTINGS["local_steps"].metadata["offers"][-2]
    ]


def test_what_the_next_step_asks_has_been_answered_before(monkeypatch):
    monkeypatch.setattr(updates, "CALM", 0)
    monkeypatch.setattr(updates, "REST", 0)
    asked = {}

    class Remembering(Pool):
        def ask(self, session, topic, questions, **how):
            asked.setdefault(topic, []).extend(questions)
            return super().ask(session, topic, questions, **how)

    page = Page()
    for steps in (5, 3):
        q = Question.of(replace(S, local_steps=steps))
        ask(opened(Remembering(page)), q, page.wanted, page.put.append, lambda known: None)
    assert set(asked["curves"][EACH:]) <= set(asked["ahead"][: 2 * EACH])


def test_a_thread_that_begins_late_drops_nothing_of_a_newer_question():
    page = Page(after=0)  # a newer question is there before this one's thread begins
    pool = Pool(page)
    asked = updates.ask_curves(opened(pool), Q)
    pool.dropped.clear()
    updates.question(opened(pool), updates.Curves(Q), iter(()), page.wanted, page.put.append, page.put.append)
    assert (pool.dropped, page.put, page.heard) == ([], [], 0)
    assert [a.index for a in asked] == [0, 1, 2, 3]


def test_a_method_is_called_unstable_by_its_limit_and_until_that_is_known_by_its_curve():
    q = Question.of(PageSettings(agents=3, rounds=5, local_steps=5, step_size=1.0))
    known = updates.Curves(q, {name: answers.curve(q, name) for name in METHODS})
    assert known.unstable == [name for name in METHODS if known.by_method[name].blown_up is not None] != []
    assert replace(known, limits=dict.fromkeys(METHODS, 2.0)).unstable == []
    assert replace(known, limits={"SCAFFLSA": 0.5, "FedLSA": 2.0, "Scaffnew": 2.0}).unstable == ["SCAFFLSA"]


def test_plans_of_another_problem_do_not_come_back(monkeypatch):
    monkeypatch.setattr(answers, "plan", lambda q, epsilon, name: f"no plan for {name}")
    page = Page()
    updates.plans(opened(Pool(page)), Q, page.wanted, page.put.append)
    assert set(page.put[-1].failed) == set(METHODS)
    assert page.put[-1].busy == ""
    late = Page(after=2)
    updates.plans(opened(Pool(late)), Q, late.wanted, late.put.append)
    assert len(late.put[-1].failed) == 1
