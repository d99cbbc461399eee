"""What can be asked for on the command line: a dataclass for each command."""

import typing
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal

import tyro


@dataclass(frozen=True)
class Check:
    """Check the paper's lemmas against theory: a table, one row per measured statement; exit code 1 if one fails."""


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a figure or table of the paper: rows (CSV) and pictures (PNG, SVG)."""

    name: Annotated[str, tyro.conf.Positional]
    """figure1, figure2, figure3, figure4, figure5, figure6, figure8, figure9, figure10, figure11, figure12, figure13,
    table1, curves, novelty, ablation, bsuite, bsuite_swingup, bandits, gymnasium or pixels."""
    preset: Literal["quick", "paper"] = "quick"
    """quick: minutes on two cores; paper: the paper's size."""
    out: Path = field(default_factory=lambda: Path("results"))
    """The folder to write to."""
    draw_only: bool = False
    """Run nothing, draw what rows are there."""


@dataclass(frozen=True)
class Compare:
    """Agents side by side: episodes to learn against size, a table and a picture. Stopped and run again, it goes on.

    priorax compare --agents bsp,noisy,dropout,ucb --sizes 5,10,15,20 --seeds 5
    """

    agents: str = "bsp,eps_greedy"
    """Names, with commas: bsp, bsr, bs, ensemble, eps_greedy, dropout, noisy, bbb, c51, qr, ucb, rlsvi, psrl, ucrl."""
    env: str = "deep_sea"
    """An environment that has sizes: deep_sea or deep_sea_stochastic."""
    sizes: str = "5,10,15,20"
    """Sizes, with commas; an agent goes on to the next one if any of its seeds learned the last."""
    seeds: int = 5
    """How many, from 0."""
    episodes: int = 1000
    """A run that has not learned by then, has not."""
    preset: str = "tuned"
    """Hyperparameters: tuned or paper."""
    out: Path = field(default_factory=lambda: Path("results"))
    """The folder to write to."""


@dataclass(frozen=True)
class Demo:
    """Why priors matter, in under three minutes: figures 13 and 12 of the paper, and DeepSea learned."""

    out: Path = field(default_factory=lambda: Path("demo"))
    """The folder to write to."""


@dataclass(frozen=True)
class Train:
    """Train an agent: rows, TensorBoard events and checkpoints go to a folder. Killed and resumed, a compiled run gives
    the same rows; one on the host (Atari, Gymnasium, bsuite) goes on with what it learned, in new episodes.

    A run goes on with `priorax train --resume DIR`, which needs no other argument.
    """

    agent: str | None = None
    """bsp (default), bsr, bs, ensemble, eps_greedy, dropout, noisy, bbb, c51, qr, ucb, rlsvi, psrl, ucrl or d4pg."""
    env: str | None = None
    """deep_sea (default), deep_sea_stochastic, deep_sea_no_reward, bernoulli_bandit, linear_bandit, gp_bandit,
    cartpole_swingup, cartpole_swingup_wide, cartpole_swingup_smooth, cartpole_balance or bsuite_cartpole_swingup; from
    pixels, in many lanes at once: pixel_deep_sea, or atari with --game; those of others, as gymnasium:CartPole-v1,
    gymnax:CartPole-v1, bsuite:deep_sea/3."""
    game: str | None = None
    """Of --env atari: Freeway, MontezumaRevenge, or any other (extra `atari`)."""
    size: int | None = None
    """N of DeepSea (default 10); a linear bandit's dimension, a GP bandit's arms, bsuite's difficulty plus one."""
    seed: int | None = None
    """Everything random follows from it (default 0)."""
    episodes: int | None = None
    """How many (default 2000, unless --steps says how long)."""
    steps: int | None = None
    """Actions, over all lanes (from pixels, in Gymnasium and bsuite default 100000, unless --episodes says how
    long)."""
    preset: str | None = None
    """Hyperparameters: tuned, swingup, small, gymnasium or finite (default: as the environment is);
    paper, as in its appendix B; apex, those of Ape-X, for larger machines."""
    set: tuple[str, ...] = ()
    """Changes to the preset, as in --set prior_scale=3 num_members=10; prior_scale=auto has one proposed."""
    evaluate_every: int | None = None
    """So many actions apart, try what would be deployed, in episodes of its own (default: never)."""
    evaluation_episodes: int | None = None
    """How many each time (default 10)."""
    deploy: Literal["mean", "vote", "member"] | None = None
    """What is tried: the best action by the mean of all members (default), by their vote, or by one drawn for each
    episode."""
    out: Path | None = None
    """The folder to write to (default runs/AGENT-ENV-SIZE-SEED, or runs/AGENT-ENV-SEED)."""
    resume: Path | None = None
    """The folder of a run to go on with."""
    overwrite: bool = False
    """Replace a run that is in the folder already."""
    force: bool = False
    """With --resume: go on with a run of another version of priorax, where its files have the same format."""
    stop_when_learned: bool = False
    """Stop at the paper's measure: average regret below 0.9."""
    checkpoint_seconds: float = 60.0
    """A checkpoint at least so often."""
    json: bool = False
    """End with one line of JSON on standard output; the bar goes to standard error."""


@dataclass(frozen=True)
class Apex:
    """Train from pixels on Ray: many actors, sharded replay, one learner; here, or on a cluster with --address.

    priorax apex --env atari --game Freeway --actors 2 --steps 100000
    """

    agent: str | None = None
    """bsp (default), or any other that learns Q by gradient."""
    env: str | None = None
    """atari (default) or pixel_deep_sea."""
    game: str | None = None
    """Of --env atari: Freeway, MontezumaRevenge, or any other."""
    size: int | None = None
    """N of pixel_deep_sea (default 10)."""
    seed: int | None = None
    """What actors do follows from it; in which order their data comes does not."""
    steps: int | None = None
    """Actions over all actors and lanes (default 100000)."""
    actors: int | None = None
    """Processes that play, each in as many lanes as the preset says (default 2)."""
    shards: int | None = None
    """Processes that keep replay (default 1)."""
    address: str | None = None
    """Of a Ray cluster, or auto; without it, Ray is started here."""
    preset: str | None = None
    """Hyperparameters: small (default), or apex, those of Ape-X."""
    set: tuple[str, ...] = ()
    """Changes to the preset, as in --set prior_scale=3 num_members=10."""
    out: Path | None = None
    """The folder to write to (default runs/AGENT-GAME-SEED)."""
    resume: Path | None = None
    """The folder of a run to go on with."""
    overwrite: bool = False
    """Replace a run that is in the folder already."""
    force: bool = False
    """With --resume: go on with a run of another version of priorax, where its files have the same format."""
    checkpoint_seconds: float = 60.0
    """A checkpoint at least so often."""
    json: bool = False
    """End with one line of JSON on standard output; the bar goes to standard error."""


@dataclass(frozen=True)
class Scale:
    """Propose a prior's scale for an environment: act there at random for a while, look at returns and observations.

    priorax scale --env gymnasium:CartPole-v1
    """

    env: str
    """As in `priorax train`."""
    agent: str = "bsp"
    """One with prior functions."""
    game: str | None = None
    """Of --env atari."""
    size: int = 10
    """Of DeepSea."""
    seed: int = 0
    """Of the probe."""
    steps: int = 2000
    """Random actions."""
    smallest: float = 1.0
    """Returns of this size are worth looking for, though none was seen."""
    preset: str | None = None
    """Hyperparameters (default: as the environment is)."""
    set: tuple[str, ...] = ()
    """Changes to the preset."""


@dataclass(frozen=True)
class Inspect:
    """Print what a run's checkpoint, a model of `priorax fit` or any file of ours is: how far it was, what is in it;
    checksums."""

    path: Annotated[Path, tyro.conf.Positional]
    """The folder of a run or of a model, or a .safetensors file."""


@dataclass(frozen=True)
class Bsuite:
    """Run bsuite's own environments: results that its analysis reads, and its scores. Run again, it goes on.

    priorax bsuite --agent bsp --sweep exploration --out bsuite_results
    """

    agent: str = "bsp"
    """As in `priorax train`."""
    sweep: str = "exploration"
    """A tag of bsuite (exploration, basic, ...), an experiment (deep_sea), an id (deep_sea/3), or all."""
    episodes: int | None = None
    """Of each id at most (default: bsuite's own number, often 10000)."""
    seed: int = 0
    """Everything random follows from it."""
    preset: str | None = None
    """Hyperparameters (default: tuned for DeepSea, gymnasium for the rest)."""
    set: tuple[str, ...] = ()
    """Changes to the preset."""
    out: Path = field(default_factory=lambda: Path("bsuite_results"))
    """The folder to write to."""


@dataclass(frozen=True)
class Completion:
    """Print completions for a shell.

    priorax completion bash > ~/.local/share/bash-completion/completions/priorax
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional] = "bash"
    """Which one."""


@dataclass(frozen=True)
class Watch:
    """See an agent: how it explores a DeepSea, as a page with a player; or an episode of what a run has learned, as a
    GIF (of a cartpole of ours, or of an environment of Gymnasium that draws itself).

    priorax watch --agent bsp,eps_greedy --size 20 --out exploration.html

    priorax watch runs/bsp-cartpole_swingup_wide-10-0 --out episode.gif
    """

    run: Annotated[Path | None, tyro.conf.Positional] = None
    """The folder of a run; without it, agents are trained in --env and their exploration is shown."""
    agent: str = "bsp,eps_greedy"
    """Without a run: one agent, or two side by side."""
    env: Literal["deep_sea"] = "deep_sea"
    """Without a run: where they explore."""
    size: int = 20
    """N of DeepSea."""
    episodes: int = 320
    """How many are shown."""
    out: Path | None = None
    """The file to write (default RUN/episode.gif, or exploration.html)."""
    seed: int = 0
    """Everything random follows from it."""
    mujoco: bool = False
    """Of a run: play and draw it in MuJoCo instead, through dm_control (extra `control`; needs a headless renderer)."""


@dataclass(frozen=True)
class Report:
    """Runs on one page: learning curves, times to learn, hyperparameters, commands to repeat them; no network needed.

    priorax report runs --out report.html
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, or folders that hold some, up to two levels down."""
    out: Path = field(default_factory=lambda: Path("report.html"))
    """The file to write."""


@dataclass(frozen=True)
class Playground:
    """A page on which data points are dragged and an ensemble with priors answers: one HTML file, no network needed."""

    out: Path = field(default_factory=lambda: Path("playground.html"))
    """The file to write."""


@dataclass(frozen=True)
class Fit:
    """Fit a model to a CSV file and measure how far it can be trusted; no code needed.

    priorax fit data.csv --target y --out model
    """

    data: Annotated[Path, tyro.conf.Positional]
    """A CSV file, gzipped or not, whose first line names the columns; words and empty cells are fine."""
    target: str
    """The column to predict."""
    out: Path
    """The folder to write to."""
    kind: Literal["auto", "number", "class"] = "auto"
    """What the target is: a number (regression) or a class. auto: words are classes, numbers are numbers; of two
    different numbers, as 0 and 1, you are asked, or told to say it."""
    id: str | None = None
    """A column that tells rows apart: it is not learned from, and kept in predictions (default: none)."""
    drop: tuple[str, ...] = ()
    """Columns to leave out."""
    held_out: float = 0.2
    """The share of rows kept apart to measure calibration; 0 measures nothing."""
    seed: int = 0
    """Everything random follows from it."""
    prior_scale: float | None = None
    """Size of the prior functions (default 1)."""
    num_members: int = 20
    """How many members."""
    steps: int | None = None
    """Of training (default: found out)."""
    encoding: str | None = None
    """Of the file's text, as latin-1 (default: found out)."""
    overwrite: bool = False
    """Replace a model that is in the folder already."""


@dataclass(frozen=True)
class Predict:
    """Predict every row of a CSV file with a model that `priorax fit` wrote."""

    model: Annotated[Path, tyro.conf.Positional]
    """The folder of a model."""
    data: Annotated[Path, tyro.conf.Positional]
    """A CSV file with the columns of the fit; others are ignored."""
    out: Path = field(default_factory=lambda: Path("predictions.csv"))
    """The file to write; one that ends in .gz is gzipped."""
    id: str | None = None
    """A column that tells rows apart, kept before the predictions (default: the one of the fit)."""
    encoding: str | None = None
    """Of the file's text, as latin-1 (default: found out)."""


@dataclass(frozen=True)
class Doctor:
    """What is installed, what it runs on, and what is amiss; exit code 1 if something is."""


def _without_nothing(command: type) -> None:
    """Where a value may be left out, let help show the values it takes, and no default of None: its words say what
    happens then."""
    for each in fields(command):
        if each.default is not None and each.default != ():
            continue
        kind, metavar, marks = command.__annotations__[each.name], None, list[Any]()
        if typing.get_origin(kind) is Annotated:
            kind, *marks = typing.get_args(kind)
        if isinstance(kind, UnionType) or typing.get_origin(kind) is typing.Union:
            (kind,) = (part for part in typing.get_args(kind) if part is not type(None))
            choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
            metavar = f"{{{','.join(choices)}}}" if choices else KINDS[kind]
            kind = kind | None
        hint = tyro.conf.arg(metavar=metavar, help_behavior_hint="")
        command.__annotations__[each.name] = Annotated[(kind, hint, *marks)]


KINDS: dict[Any, str] = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
for _command in (Train, Apex, Scale, Bsuite, Watch, Fit, Predict):
    _without_nothing(_command)

Command = (
    Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Apex, tyro.conf.subcommand("apex")]
    | Annotated[Watch, tyro.conf.subcommand("watch")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Playground, tyro.conf.subcommand("playground")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Scale, tyro.conf.subcommand("scale")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Bsuite, tyro.conf.subcommand("bsuite")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Completion, tyro.conf.subcommand("completion")]
)
