"""rlk.integrations with a trainer that is made here: what it says, what it refuses, and that it puts everything back."""
import importlib
import importlib.util
import sys
import textwrap

import pytest
import rlk
import rlk.integrations
from rlk.integrations import _hooks, _served
from rlk.integrations._replace import Replacement, require
from rlk.integrations._source import definitions, digest

LOSS = '''
REGISTRY, CHOICES = {}, {"top"}


def mean(x, power=1):
    """The mean."""
    # of powers
    return sum(v**power for v in x) / len(x)


def top(x):
    return max(x)


REGISTRY["top"] = top


class Loss:
    @staticmethod
    def largest(x):
        return max(x)
'''
USER = '''
from made_trainer.loss import mean


def train(x):
    return mean(x)
'''


def serve_mean(module):
    def serve(original, x, power=1):
        require(power == 1, f"the power {power}")
        return "rlk"
    return serve


def broken(module):
    raise ImportError("made by nobody")


def hooks(*names):
    known = {"mean": _hooks.Hook("made_trainer.loss", "mean", "mean", ("made_trainer/loss.py mean",), serve_mean),
             "top": _hooks.Hook("made_trainer.loss", "REGISTRY[top]", "max", ("made_trainer/loss.py top",),
                                lambda module: lambda original, x: "most"),
             "largest": _hooks.Hook("made_trainer.loss", "Loss.largest", "max", ("made_trainer/loss.py Loss.largest",),
                                    lambda module: lambda original, x: ("rlk", original(x))),
             "new": _hooks.Hook("made_trainer.loss", "REGISTRY[rlk]", "max", ("made_trainer/loss.py top",),
                                lambda module: lambda x: "new", adds=True),
             "choice": _hooks.Hook("made_trainer.loss", "CHOICES[rlk]", "max", ("made_trainer/loss.py top",),
                                   lambda module: None, adds=True),
             "broken": _hooks.Hook("made_trainer.loss", "REGISTRY[top]", "max", ("made_trainer/loss.py top",), broken)}
    return tuple(known[name] for name in names)


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """A function that installs the trainer and makes rlk know it: trainer(hooks) -> its module user."""
    def install(*names, loss=LOSS, version="1.0"):
        package, info = tmp_path / "made_trainer", tmp_path / f"made_trainer-{version}.dist-info"
        for folder in (package, info):
            folder.mkdir()
        (package / "__init__.py").write_text("")
        (package / "loss.py").write_text(textwrap.dedent(loss))
        (package / "user.py").write_text(USER)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: made-trainer\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        return importlib.import_module("made_trainer.user")

    class Made(_hooks.Integration):
        known = {"version": "1.0", "functions": {"made_trainer/loss.py": {
            name: digest(source) for name, source in definitions(LOSS).items()}}}

    chosen = []
    monkeypatch.setattr(rlk.integrations, "integration", lambda name: Made("made-trainer", "made_trainer", hooks(*chosen)))
    monkeypatch.setattr(rlk.integrations, "_active", {})

    def with_hooks(*names, **words):
        chosen[:] = names
        return install(**words)
    yield with_hooks
    for name in [name for name in sys.modules if name.split(".")[0] == "made_trainer"]:
        del sys.modules[name]


def test_enabled_it_says_what_it_replaced_and_serves(trainer):
    user = trainer("mean", "top")
    state = rlk.integrations.enable("made")
    assert [(r.function, r.version, r.operator) for r in state.replaced] == [
        ("made_trainer.loss.mean", "1.0", "mean"), ("made_trainer.loss.REGISTRY[top]", "1.0", "max")]
    assert all(r.file.endswith("made_trainer/loss.py") for r in state.replaced)
    assert "made-trainer 1.0\n  made_trainer.loss.mean (" in str(state)
    assert user.train([1, 3]) == "rlk" and sys.modules["made_trainer.loss"].REGISTRY["top"]([1]) == "most"
    assert rlk.integrations.enabled() == ("made",)


def test_enabled_it_says_what_rlk_serves_on_each_device(trainer, monkeypatch):
    units = {"cpu": ["mean", "mean_backward", "max", "topk"], "cuda-x": ["max", "topk"], "gone": []}
    plugins = [{"id": name, "backend": name.partition("-")[0], "devices": [{}] if name != "cpu" else [],
                "ops": {"verified": len(names)}} for name, names in units.items()]
    verified = lambda name: [{"op": op, "verdict": "verified"} for op in units[name]] + [{"op": "mean", "verdict": "declined"}]
    monkeypatch.setattr(_served, "_ask", lambda *words: (
        {"plugins": plugins} if words == ("list",) else {"units": verified(words[1])}))
    _served.by_backend.cache_clear()
    try:
        trainer("mean", "top")
        text = str(rlk.integrations.enable("made")).splitlines()
        assert text[-2:] == ["  on cuda: rlk serves REGISTRY[top]; the original serves mean: nothing here has mean for it",
                             "  on cpu: rlk serves mean, REGISTRY[top]"]
        units["cuda-x"].append("mean")  # its forward alone
        _served.by_backend.cache_clear()
        assert "mean only without gradients: nothing here has mean_backward for it" in str(rlk.integrations.enable("made"))

        def broken(*words):
            raise FileNotFoundError("no rlk-plugins")
        monkeypatch.setattr(_served, "_ask", broken)
        _served.by_backend.cache_clear()
        assert "not known here" in str(rlk.integrations.enable("made")).splitlines()[-1]
    finally:
        _served.by_backend.cache_clear()


def test_disabled_every_binding_is_the_trainers_again(trainer):
    user = trainer("mean", "top", "new")
    loss = sys.modules["made_trainer.loss"]
    before = {**vars(loss)}, dict(loss.REGISTRY), user.mean
    rlk.integrations.enable("made")
    assert "rlk" in loss.REGISTRY
    user.later = loss.mean  # bound while enabled
    rlk.integrations.disable("made")
    assert ({**vars(loss)}, dict(loss.REGISTRY), user.mean) == before and user.later is before[2]
    assert user.train([1, 3]) == 2 and rlk.integrations.enabled() == ()
    rlk.integrations.disable("made")  # once more does nothing


def test_a_name_that_a_script_has_kept_is_the_original_again(trainer):
    trainer("mean")
    loss = sys.modules["made_trainer.loss"]
    before = loss.mean
    with rlk.integrations.enable("made") as state:
        kept = loss.mean  # as a script's `from made_trainer.loss import mean` does
        assert (before([1, 3]), kept([1, 3])) == (2, "rlk")
    assert kept([1, 3]) == 2 and state.calls() == {"mean": {"rlk": 1}}
    with rlk.integrations.enable("made"):
        assert loss.mean([1, 3]) == "rlk" and kept([1, 3]) == 2


def test_a_static_method_stays_one(trainer):
    trainer("largest")
    Loss = sys.modules["made_trainer.loss"].Loss
    before = vars(Loss)["largest"]
    with rlk.integrations.enable("made"):
        assert Loss.largest([1, 3]) == Loss().largest([1, 3]) == ("rlk", 3)
    assert vars(Loss)["largest"] is before and Loss().largest([1, 3]) == 3


def test_a_choice_of_a_set_is_there_while_it_is_enabled(trainer):
    trainer("choice")
    choices = sys.modules["made_trainer.loss"].CHOICES
    with rlk.integrations.enable("made"):
        assert choices == {"top", "rlk"}
    assert choices == {"top"}
    choices.add("rlk")
    with pytest.raises(rlk.Unsupported, match=r"CHOICES\[rlk\] is taken already"):
        rlk.integrations.enable("made")


def test_a_with_ends_what_it_began_and_nothing_else(trainer):
    user = trainer("mean")
    with rlk.integrations.enable("made") as outer:
        with rlk.integrations.enable("made") as inner:
            assert inner.replaced == outer.replaced
        assert user.train([1, 3]) == "rlk"
    assert user.train([1, 3]) == 2 and not outer.active
    with pytest.raises(KeyError), rlk.integrations.enable("made"):
        raise KeyError
    assert user.train([1, 3]) == 2


def test_what_cannot_be_served_goes_to_the_original_and_is_said_once_and_counted(trainer, caplog):
    user = trainer("mean")
    with rlk.integrations.enable("made") as state:
        assert [user.mean([1, 3], power=2), user.mean([1, 3], 2), user.mean([1, 3])] == [5, 5, "rlk"]
        assert state.calls() == {"mean": {"the power 2": 2, "rlk": 1}}
    assert [r.message for r in caplog.records] == ["made_trainer.loss.mean: the original serves calls with the power 2"]


@pytest.mark.parametrize("loss, seen", [
    (LOSS.replace("/ len(x)", "/ (len(x) - 1)"), "the digest"),
    (LOSS.replace("def mean", "def average"), "no such function"),
])
def test_another_function_is_refused_and_nothing_is_replaced(trainer, loss, seen):
    user = trainer("top", "mean", loss=loss + ("mean = average\n" if "average" in loss else ""),
                   version="1.1")
    before = dict(sys.modules["made_trainer.loss"].REGISTRY)
    with pytest.raises(rlk.Unsupported, match=rf"mean in .*loss.py of made-trainer 1.1 is not the function that rlk knows: "
                                              rf"{seen}.*expected .*made-trainer 1.0.*Nothing was replaced. Install"):
        rlk.integrations.enable("made")
    assert dict(sys.modules["made_trainer.loss"].REGISTRY) == before and user.train([1, 3]) != "rlk"
    assert rlk.integrations.enabled() == ()


def test_what_is_only_added_depends_on_no_source_unless_asked_to(trainer, caplog):
    user = trainer("new", loss=LOSS.replace("return max(x)", "return sorted(x)[-1]", 1), version="1.1")
    with pytest.raises(rlk.Unsupported, match="top in .* is not the function that rlk knows"):
        rlk.integrations.enable("made", strict=True)
    with rlk.integrations.enable("made"):
        assert sys.modules["made_trainer.loss"].REGISTRY["rlk"]([1]) == "new" and user.train([1, 3]) == 2
    assert "REGISTRY[rlk]: added to made-trainer 1.1, whose functions beside it" in caplog.text


def test_another_version_with_the_same_functions_is_taken(trainer):
    other = LOSS.replace('"""The mean."""', '"""Of numbers."""').replace("# of powers", "# for x")
    user = trainer("mean", loss=other, version="1.2")
    with rlk.integrations.enable("made") as state:
        assert user.train([1, 3]) == "rlk" and state.replaced[0].version == "1.2"


def test_what_somebody_else_has_replaced_is_refused(trainer):
    user = trainer("top", "mean")
    loss = sys.modules["made_trainer.loss"]
    loss.mean = lambda x: "theirs"
    with pytest.raises(rlk.Unsupported, match="made_trainer.loss.mean is <function .*another library put there.*Nothing was"):
        rlk.integrations.enable("made")
    assert loss.REGISTRY["top"]([1, 3]) == 3 and user.train([1, 3]) == 2


def test_what_fails_on_the_way_leaves_nothing_replaced(trainer, monkeypatch):
    user = trainer("mean", "top", "new", "choice")
    loss = sys.modules["made_trainer.loss"]
    before = {**vars(loss)}, dict(loss.REGISTRY), user.mean
    place_of = _hooks.place_of

    def failing(module, name):
        if name == "CHOICES[rlk]" and user.mean is not before[2]:
            raise KeyboardInterrupt
        return place_of(module, name)

    monkeypatch.setattr(_hooks, "place_of", failing)
    with pytest.raises(KeyboardInterrupt):
        rlk.integrations.enable("made")
    assert ({**vars(loss)}, dict(loss.REGISTRY), user.mean) == before and rlk.integrations.enabled() == ()
    monkeypatch.setattr(_hooks, "place_of", place_of)
    with rlk.integrations.enable("made"):
        assert user.train([1, 3]) == "rlk"


def test_a_function_that_cannot_be_made_leaves_nothing_replaced(trainer, monkeypatch):
    user = trainer("mean", "broken")
    with pytest.raises(ImportError, match="made by nobody"):
        rlk.integrations.enable("made")
    assert user.train([1, 3]) == 2 and rlk.integrations.enabled() == ()


def test_a_replacement_is_no_original(trainer):
    user = trainer("mean")
    loss = sys.modules["made_trainer.loss"]
    own = loss.mean
    loss.mean = Replacement("mean", own, lambda original, x: "theirs")
    with pytest.raises(rlk.Unsupported, match="mean is .*, which another library put there"):
        rlk.integrations.enable("made")
    assert loss.mean([1, 3]) == "theirs" and user.mean is own


def test_a_name_that_is_taken_is_refused(trainer):
    trainer("new")
    loss = sys.modules["made_trainer.loss"]
    loss.REGISTRY["rlk"] = "theirs"
    with pytest.raises(rlk.Unsupported, match=r"REGISTRY\[rlk\] is taken already"):
        rlk.integrations.enable("made")
    assert loss.REGISTRY["rlk"] == "theirs"


def test_a_trainer_that_is_not_here_says_how_to_install_it(trainer, monkeypatch):
    with pytest.raises(rlk.NotFound, match="made-trainer is not installed in .*Run: pip install made-trainer==1.0"):
        rlk.integrations.enable("made")


def test_of_a_package_that_no_index_has_the_source_is_named():
    if importlib.util.find_spec("slime") is not None:
        pytest.skip("slime is installed here")
    with pytest.raises(rlk.NotFound, match="slime is not installed in .*No package index has it: install it from https://"):
        rlk.integrations.enable("slime")


def test_an_unknown_name_lists_those_that_there_are():
    with pytest.raises(rlk.NotFound, match="knows no 'trll'; there are .*trl"):
        rlk.integrations.enable("trll")


def test_errors_of_rlk_are_the_callers():
    def serve(original):
        raise rlk.DataError("row 2 has the id 99")
    with pytest.raises(rlk.DataError):
        Replacement("f", lambda: 1, serve)()
