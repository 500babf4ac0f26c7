"""One more method of the family beside the three: its curve, its words, its plan and what is taken along."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tiers import mostly_long

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.explore import answers, take
from fedlsa.explore.answers import Question
from fedlsa.explore.page import about
from fedlsa.explore.page_settings import BESIDE, METHODS, PageSettings
from fedlsa.explore.scene_data import Curves, known_line, verdict

RING = PageSettings(agents=4, noise=0.3, local_steps=12, rounds=9, seeds=3)


def beside(choice, **more):
    return Question.of(replace(RING, beside=choice, **more))


@pytest.mark.parametrize("choice", BESIDE)
def test_its_curve_is_the_exact_one_of_the_method_that_the_words_name(choice):
    q = beside(choice)
    name = q.settings.shown()[-1]
    eta, steps = RING.step_size, RING.local_steps
    method = {
        "slow": fl.UnequalWork(eta, steps, length_factors=(1 / 3, 1, 1, 1)),
        "fednova": fl.FedNova(eta, steps, length_factors=(1 / 3, 1, 1, 1)),
        "dropouts": fl.Dropouts(eta, steps, dropout=0.2),
        "few": fl.Compressed(eta, steps, fl.RandK(1)),
        "bits": fl.Compressed(eta, steps, fl.Rounding(8, 10.0)),
        "late": fl.Delayed(eta, steps, delays=(0.5, 0.3, 0.2)),
        "buffered": fl.Buffered(eta, steps, participants=2),
        "momentum": fl.Momentum(eta, steps, 0.5),
        "svrg": fl.SVRG(eta, steps),
        "fedprox": fl.FedProx(eta, steps, 0.1),
        "fedlin": fl.FedLin(eta, steps),
        "scaffold": fl.Scaffold(eta, steps, participants=2),
        "tracking": fl.GradientTracking(eta, steps),
    }[choice]
    exact = fl.theory.exact(q.problem(), method, rounds=9)
    found = answers.curve(q, name)
    np.testing.assert_array_equal(found.of("mse"), exact.mse)
    np.testing.assert_array_equal(found.of("bytes"), exact["bytes"])
    assert answers.floor(q, name).mse == pytest.approx(fl.theory.stationary(q.problem(), method).mse, rel=1e-12)
    (line,) = verdict(q.page, {name: found}, {})
    assert line.startswith(f"**{name} ({BESIDE[choice][0].removeprefix(f'{name}: ')})** ends at ")


def test_without_one_and_for_the_three_nothing_else_is_asked():
    plain, more = Question.of(RING), beside("late")
    assert answers.order(plain) == answers.ORDER
    assert answers.questions(more)[: len(answers.ORDER)] == answers.questions(plain)  # so the pool knows them
    assert [args[1] for _, args in answers.questions(more)[len(answers.ORDER) :]] == ["Delayed"]
    assert plain.about("FedLSA") is plain
    assert answers.map_question(more) == answers.map_question(plain)
    keys = {topic: answers.key(of(plain)) == answers.key(of(more)) for topic, of in answers.DEPENDS_ON.items()}
    assert keys == {"curves": False, "simulate": False, "map": True, "fit": True, "plans": False}
    assert set(about()["others"]) == {kind.__name__ for _, kind, _ in BESIDE.values()}


def test_the_page_draws_it_after_the_three_and_waits_for_it():
    q = beside("few")
    known = Curves(q, {name: answers.curve(q.about(name), name) for name in METHODS}, agents="none")
    assert (known.waiting, known.complete) == (["Compressed"], False)
    known = known.with_answer("Compressed", answers.curve(q, "Compressed"))
    told = json.loads(known_line(known, Curves(q)))["known"]
    assert [m["name"] for m in told["error"]["methods"]] == [*METHODS, "Compressed"]
    assert told["words"][3].startswith("**Compressed (one random coordinate sent)** ")
    for name in METHODS:
        alone = answers.curve(Question.of(RING), name)
        np.testing.assert_array_equal(known.by_method[name].of("mse"), alone.of("mse"))


def test_too_many_agents_are_one_sentence():
    q = Question.of(replace(PageSettings.start("garnet"), agents=200, beside="buffered"))
    with pytest.raises(ArgumentError, match=r"^agents times what each remembers must be at most \d+ numbers .* got"):
        answers.curve(q, "Buffered")


def test_sites_of_files_say_how_many_are_slow():
    assert RING.methods()[:3] == replace(RING, beside="slow").methods(7)[:3]
    slow = replace(RING, beside="slow").method("UnequalWork", 7)
    assert slow.length_factors == (1 / 3, 1 / 3, 1, 1, 1, 1, 1)
    assert replace(RING, agents=1, beside="slow").method("UnequalWork").length_factors == (1 / 3,)


@pytest.mark.parametrize("choice", mostly_long(BESIDE, ["buffered", "bits"]))
def test_each_is_planned(choice):
    q = beside(choice, epsilon=0.6)
    plan = answers.plan(q, 0.6, q.settings.shown()[-1])
    assert plan.rmse <= 0.6


@pytest.mark.parametrize(
    ("choice", "told", "seeds"), [("slow", "length_factors=(0.3", True), ("bits", "send=fl.Rounding(", False)]
)
def test_the_lines_the_picture_and_the_data_have_it(choice, told, seeds, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    q = beside(choice)
    code = take.script(q, simulated=seeds)
    assert told in code
    exec(code, {})  # the lines that a reader copies
    assert (tmp_path / "error.png").stat().st_size > 1000
    for path, write in take.writers(q, [tmp_path / "error.csv", tmp_path / "again.png"], simulated=seeds).items():
        write(path)
    rows = (tmp_path / "error.csv").read_text().splitlines()
    assert f"beside={choice}" in rows[0]
    assert sum(row.startswith(q.settings.shown()[-1]) for row in rows) == 10


def test_it_is_planned_too():
    q = answers.plan_question(beside("few"))
    found = answers.plan(q, 0.3, "Compressed")
    assert found.algorithm.send == fl.RandK(1)
    assert found.rmse <= 0.3
