"""What reaches the page: the newest question's answers, and nothing of an older one."""

from fedlsa.explore import answers, updates
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import METHODS, PageSettings
from fedlsa.explore.pool import Answer

Q = Question.of(PageSettings(agents=3, rounds=5, local_steps=5))


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
    return updates.OpenPage(pool, "me", "wide")


def test_curves_come_together_before_what_waits_for_calm_and_limits_last(monkeypatch):
    monkeypatch.setattr(updates, "CALM", 0)
    monkeypatch.setattr(updates, "TOGETHER", 3600)  # however slow this machine is now
    page, settled = Page(), []
    pool = Pool(page)
    updates.question(opened(pool), Q, page.wanted, page.put.append, settled.append)
    assert list(page.put[0].by_method) == list(updates.ORDER)
    assert not page.put[0].limits
    assert set(page.put[-1].limits) == set(METHODS)
    assert [set(known.by_method) for known in settled] == [set(METHODS)]
    assert pool.dropped == ["limits"]  # those of an older question


def test_limits_of_a_question_that_is_no_longer_the_pages_are_not_shown(monkeypatch):
    monkeypatch.setattr(updates, "CALM", 0)
    page = Page(after=len(METHODS) + 1)  # a newer one comes while limits are looked for
    updates.question(opened(Pool(page)), Q, page.wanted, page.put.append, lambda known: None)
    assert all(not known.limits for known in page.put)


def test_agents_that_come_too_late_are_not_shown(monkeypatch):
    monkeypatch.setattr(updates, "CALM", 0)
    page = Page(after=1)
    updates.agents(opened(Pool(page)), Q, page.wanted, page.put.append)
    assert page.put == []


def test_plans_of_another_problem_do_not_come_back(monkeypatch):
    monkeypatch.setattr(answers, "plan", lambda q, epsilon, name: f"no plan for {name}")
    page = Page()
    updates.plans(opened(Pool(page)), Q, page.wanted, page.put.append)
    assert set(page.put[-1].failed) == set(METHODS)
    assert page.put[-1].busy == ""
    late = Page(after=2)
    updates.plans(opened(Pool(late)), Q, late.wanted, late.put.append)
    assert len(late.put[-1].failed) == 1
