"""ARCHITECTURE.md names the files that a transition touches, and no others."""

import re
import sys
from pathlib import Path

import pytest

import priorax
from priorax.training.setup import set_up

SOURCE = Path(priorax.__file__).parent
PARAGRAPH = re.search(
    r"^So a transition of BSP touches twelve files in a scan:(.*?)\n\n",
    (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text(),
    flags=re.MULTILINE | re.DOTALL,
)
ALWAYS, OPTIONS = (set(re.findall(r"`([\w/]+\.py)`", words)) for words in PARAGRAPH[1].split("Options add"))


def touched(backend, actions):
    """Files whose functions run while a backend takes its first actions, which compiles them."""
    names = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: names.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        backend.advance(actions, lambda _: False)
    finally:
        sys.setprofile(before)
    found = {path.relative_to(SOURCE).as_posix() for path in map(Path, names) if path.is_relative_to(SOURCE)}
    return {name.removeprefix("training/") if "/backends/" in name else name for name in found}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "changes", "options"),
    [
        ("cartpole_swingup", {}, set()),
        ("cartpole_swingup", {"priority": 0.6}, {"replay/sum_tree.py"}),
        ("cartpole_swingup", {"hold": 2}, {"envs/jax/held.py"}),
        ("deep_sea", {}, {"beliefs/sparse_rows.py", "priors.py"}),
    ],
    ids=["arrays", "priorities", "held", "states"],
)
def test_a_transition_touches_the_files_that_are_named(env, changes, options):
    small = {
        "num_members": 3,
        "batch_size": 4,
        "capacity": 97,
        "discount": 0.97,
        **changes,
    }  # compiled by no other test
    setup = set_up("bsp", env, size=4, preset="tuned", changes=small)
    world = {"envs/jax/cartpole.py", "envs/jax/deep_sea.py"}
    found = touched(setup.backend, 5)
    assert len(found & world) == 1
    assert found - world == (ALWAYS - {"training/trainer.py"}) | options, "the trainer makes rows of what it is given"


def test_twelve_files_are_named():
    assert len(ALWAYS) + 1 == 12, "and the environment"
    assert {
        "beliefs/sparse_rows.py",
        "priors.py",
        "replay/sum_tree.py",
        "envs/jax/held.py",
        "tests/test_architecture.py",
    } == OPTIONS
    assert all((SOURCE / name).is_file() or (SOURCE / "training" / name).is_file() for name in ALWAYS)
