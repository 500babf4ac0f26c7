"""How the command is called: as a module, without extras, by a shell that completes, and with several values."""

import subprocess
import sys

import pytest
import shellingham
from refusals import refused

import fedlsa as fl
from fedlsa.algorithms import FAMILY
from fedlsa.cli import main
from fedlsa.experiments import EXPERIMENTS
from fedlsa.problems import FAMILIES

RING = ["--problem", "ring", "--rounds", "4"]
WITHOUT_EXTRAS = """
import sys
for name in ("typer", "click", "rich", "matplotlib", "pyarrow"):
    sys.modules[name] = None
sys.argv = ["fedlsa", *sys.argv[1:]]
import runpy
runpy.run_module("fedlsa", run_name="__main__")
"""


def test_the_module_tells_its_version_where_no_extra_is_installed():
    ran = [
        subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS, word], capture_output=True, text=True, timeout=60)
        for word in ("--version", "--help")
    ]
    assert (ran[0].returncode, ran[0].stdout, ran[0].stderr) == (0, f"fedlsa {fl.__version__}\n", "")
    assert (ran[1].returncode, ran[1].stdout) == (2, "")
    assert ran[1].stderr == "fedlsa: this needs typer, which is not installed: pip install 'fedlsa[cli]'\n"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_the_command_tells_its_version_where_no_extra_is_installed(fedlsa, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert fedlsa("--version") == (0, f"fedlsa {fl.__version__}\n", "")


@pytest.fixture(params=["bash", "zsh", "fish"])
def completed(request, monkeypatch, capsys):
    """What a shell offers for the last word of a line."""

    def complete(line):
        monkeypatch.setenv("_FEDLSA_COMPLETE", f"complete_{request.param}")
        monkeypatch.setenv("COMP_WORDS" if request.param == "bash" else "_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        assert main([]) == 0
        out = capsys.readouterr().out
        words = [part.split('":"')[0].split("\t")[0].strip("\"()'") for part in out.split("((")[-1].splitlines()]
        return {word for word in words if word}

    return complete


def test_shells_complete_commands_and_the_names_that_options_take(completed):
    assert completed("fedlsa si") == {"simulate"}
    assert completed("fedlsa network sta") == {"status"}
    assert "--problem" in completed("fedlsa plan --pro")
    assert completed("fedlsa theory --problem ") == set(FAMILIES)
    assert completed("fedlsa simulate --method sca") == {name for name in FAMILY if name.startswith("sca")}
    assert completed("fedlsa reproduce fig") == {name for name in EXPERIMENTS if name.startswith("fig")}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_and_installed_for_the_shell_in_use(fedlsa, monkeypatch, tmp_path, shell):
    monkeypatch.setattr(shellingham, "detect_shell", lambda *_: (shell, f"/bin/{shell}"))
    monkeypatch.setenv("HOME", str(tmp_path))
    code, out, err = fedlsa("--show-completion")
    assert (code, err) == (0, "")
    assert "_FEDLSA_COMPLETE=complete_" in out
    code, out, _ = fedlsa("--install-completion")
    assert code == 0
    assert f"{shell} completion installed in {tmp_path}" in out.replace("\n", "")


def test_help_lists_families_with_their_options_and_methods(fedlsa, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    for command in ("simulate", "theory", "plan"):
        _, out, _ = fedlsa(command, "--help")
        assert "ring (--agents, --spread, --noise, --problem-seed, --ideal/--no-ideal)" in out
        assert all(name in out for name in (*FAMILIES, *FAMILY))
    _, out, _ = fedlsa("reproduce", "--help")
    assert all(name in out for name in EXPERIMENTS)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_a_problem_of_the_command_line(fedlsa, family):
    pytest.importorskip("gymnasium")
    more = {"ring": ["--spread", "2"], "garnet": ["--states", "10"], "lakes": ["--low", "0.5"]}.get(family, [])
    more += ["--steps", "50"] * (family == "cartpoles")
    code, out, _ = fedlsa("theory", "--problem", family, "--agents", "2", "--rounds", "3", "--method", "fedlsa", *more)
    assert code == 0
    assert "N = 2" in out


@pytest.mark.parametrize("method", ["unequalwork(length_factors=(1,2,3))", "fednova(step_factors=(1,1,0.5))", "svrg"])
def test_methods_that_look_at_single_agents_have_their_theory(fedlsa, method):
    code, out, err = fedlsa("theory", *RING, "--agents", "3", "--method", method)
    assert (code, err) == (0, "")
    assert "mean-square" in out


def test_values_with_commas_and_repeated_ones_are_compared(fedlsa):
    more = ["--seeds", "2", "--engine", "reference"]
    _, commas, _ = fedlsa("simulate", *RING, *more, "--step-size", "0.05,0.1", "--local-steps", "2,4")
    repeated = ["--step-size", ".05", "--step-size", ".1", "--local-steps", "2", "--local-steps", "4"]
    assert fedlsa("simulate", *RING, *more, *repeated)[1] == commas
    for method in ("FedLSA", "SCAFFLSA"):
        for eta in (0.05, 0.1):
            for H in (2, 4):
                assert f"{method}, η = {eta}, H = {H} " in commas
    _, out, _ = fedlsa("theory", *RING, "--method", "scaffnew", "--probability", "0.1,0.2")
    assert "Scaffnew, p = 0.1 " in out
    assert "Scaffnew, p = 0.2 " in out


def test_a_sweep_is_saved_as_one_dataset_that_can_be_drawn_and_run_again(fedlsa):
    lists = ["--step-size", "0.05,0.1", "--local-steps", "2,4"]
    more = [*RING, "--seeds", "2", "--engine", "reference", "--participants", "2"]
    code, out, err = fedlsa("simulate", *more, *lists, "--out", "s.nc")
    assert (code, err) == (0, "")
    assert "fedlsa plot s.nc" in out
    swept = fl.results.load("s.nc")
    assert [swept.sizes[k] for k in ("algorithm", "step_size", "local_steps", "seed", "rounds")] == [2, 2, 2, 2, 5]
    alone = fl.simulate(fl.problems.ring(), fl.SCAFFLSA(0.05, 4, participants=2), rounds=4, seeds=2, engine="reference")
    place = swept.sel(algorithm="SCAFFLSA", step_size=0.05, local_steps=4)
    assert place["squared_error"].equals(alone["squared_error"].assign_coords(place["squared_error"].coords))
    assert fl.sweep(**fl.results.arguments(swept)).identical(swept)
    assert fedlsa("plot", "s.nc", "--out", "s.svg") == (0, "saved s.svg\n", "")


def test_a_sweep_of_one_method_has_no_dimension_of_methods(fedlsa):
    line = ["simulate", *RING, "--seeds", "1", "--engine", "reference", "--method", "scaffnew"]
    assert fedlsa(*line, "--probability", "0.5,0.25", "--out", "deep", "--quiet") == (0, "", "")
    swept = fl.results.load("deep/sweep.nc")
    assert swept["probability"].values.tolist() == [0.5, 0.25]
    assert "algorithm" not in swept.dims
    code, _, err = fedlsa(*line, "--method", "fedlsa", "--probability", "0.5,0.25", "--out", "r.nc")
    assert code == 2
    assert "--probability must stand with scaffnew alone where --out saves a sweep; got scaffnew, fedlsa" in err


def test_methods_have_settings_of_their_own_in_brackets(fedlsa):
    line = ["simulate", *RING, "--seeds", "2", "--engine", "reference", "--quiet", "--out", "r.nc"]
    for word, method in (
        ("svrg", fl.SVRG(0.1, 10)),
        ("fedprox(pull=0.5)", fl.FedProx(0.1, 10, pull=0.5)),
        ("compressed(send=RandK(1))", fl.Compressed(0.1, 10, send=fl.RandK(1))),
    ):
        assert fedlsa(*line, "--force", "--method", word) == (0, "", "")
        made = fl.simulate(fl.problems.ring(), method, rounds=4, seeds=2, engine="reference")
        assert fl.results.load("r.nc")["theta"].identical(made["theta"])
    swept = [*line, "--force", "--step-size", "0.1,0.2", "--method", "fedprox(pull=0.5)"]
    assert fedlsa(*swept)[0] == 0
    result = fl.results.load("r.nc")
    assert fl.sweep(**fl.results.arguments(result)).identical(result)
    assert "several methods; got those of fedprox" in fedlsa(*swept, "--method", "svrg")[2]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("fedprx", "did you mean 'fedprox'?"),
        ("fedprox(pull=1, pull=2)", "--method must be a method, alone or with its settings, such as"),
        ("fedprox(**{'pull': 1})", "--method must be a method, alone or with its settings, such as"),
        (f"fedprox(pull={5000 * '-'}1)", "--method must be a method, alone or with its settings, such as"),
        ("fedlin(participants=2)", "--method fedlin must stand without settings in brackets; got participants"),
        ("fedprox(pul=1)", "what is set of --method fedprox must be one of 'corrected', 'pull'; got 'pul'"),
        ("fedprox(0.1)", "got 'step_size'"),
        ("fedprox(pull=-1)", "pull must be a finite number at least 0; got -1"),
        ("fedprox(pull=", "--method must be a method, alone or with its settings"),
        ("fedprox(pull=open('x'))", "a call in --method must be one of 'PowerStep'"),
    ],
)
def test_a_method_that_cannot_be_is_said_in_one_line(fedlsa, word, said):
    refused(fedlsa("theory", *RING, "--method", word), said)


def test_the_command_of_a_plan_names_the_settings_of_its_method(fedlsa):
    _, out, _ = fedlsa("plan", *RING[:2], "--epsilon", "0.3", "--method", "momentum(momentum=0.3)")
    assert "--method 'momentum(momentum=0.3)' --step-size" in out
