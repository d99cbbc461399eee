"""Commands of the command line, one dataclass each."""

import typing
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal

import tyro

from priorax import names


@dataclass(frozen=True)
class Check:
    """Check the paper's lemmas numerically: a table with one row per claim; exit code 1 if one fails."""


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a figure or table of the paper: data (CSV) and images (PNG, SVG)."""

    name: Annotated[str, tyro.conf.Positional]
    """Name of the figure or table; `priorax reproduce --help` lists them."""
    budget: Literal["quick", "full"] = "quick"
    """Size of the experiment. quick: minutes on two cores; full: the paper's size, or as near as two cores allow."""
    out: Path = field(default_factory=lambda: Path("results"))
    """Output folder."""
    draw_only: bool = False
    """Plot existing data without running anything."""


@dataclass(frozen=True)
class Benchmark:
    """Compare our estimators, with default settings, with others on tables of data: scores (CSV), a table and a plot.
    Run it in the root of the source repository, which has the data; an interrupted benchmark is continued.

    priorax benchmark tabular --budget full
    """

    name: Annotated[Literal["tabular"], tyro.conf.Positional] = "tabular"
    """The benchmark."""
    budget: Literal["quick", "full"] = "quick"
    """Number of data sets and splits. quick: one split of three sets; full: all."""
    models: str = ""
    """Comma-separated estimators to run and show: priorax, random forest, gradient boosting, Gaussian process, bagged
    MLPs, NGBoost (pip install ngboost). Empty: all."""
    out: Path = field(default_factory=lambda: Path("results"))
    """Output folder."""
    draw_only: bool = False
    """Show existing data without running anything."""


@dataclass(frozen=True)
class Testbed:
    """Score joint predictions on the random classifiers of the Neural Testbed: KL divergences (CSV), a table and a
    plot, relative to a plain network. An interrupted run is continued. `priorax reproduce testbed` also chooses
    settings.

    priorax testbed --methods bsp,ensemble,priorax.estimators:PriorEnsembleClassifier
    """

    methods: str = "bsp,ensemble"
    """Comma-separated beliefs (mlp, ensemble, dropout, bbb, bs, bsr, bsp, hypermodel, epinet), or locations of
    classifiers with the interface of scikit-learn, as package.module:name."""
    budget: Literal["quick", "full"] = "quick"
    """Number and size of problems. quick: two dimensions, up to 200 examples; full: up to 100 dimensions and 100,000
    examples."""
    out: Path = field(default_factory=lambda: Path("results"))
    """Output folder."""
    draw_only: bool = False
    """Show existing data without running anything."""


@dataclass(frozen=True)
class Compare:
    """Compare agents: episodes to learn by problem size, as a table and a plot. An interrupted comparison is continued.

    priorax compare --agents bsp,noisy,dropout,ucb --sizes 5,10,15,20 --seeds 5
    """

    agents: str = "bsp,eps_greedy"
    """Comma-separated names of agents; `priorax agents` lists them."""
    env: str = "deep_sea"
    """An environment that has sizes and measures regret, such as DeepSea."""
    sizes: str = "5,10,15,20"
    """Comma-separated sizes; an agent proceeds to the next size if any of its seeds learned the previous one."""
    seeds: int = 5
    """Number of seeds, from 200 on: no setting was chosen on these."""
    episodes: int = 1000
    """Maximum number of episodes per run."""
    preset: str = "tuned"
    """Preset of hyperparameters."""
    out: Path = field(default_factory=lambda: Path("results"))
    """Output folder."""


@dataclass(frozen=True)
class Demo:
    """Demonstrate the effect of priors in three minutes: figures 13 and 12 of the paper, and learning on DeepSea."""

    out: Path = field(default_factory=lambda: Path("demo"))
    """Output folder."""


@dataclass(frozen=True)
class Train:
    """Train an agent: logs, TensorBoard events and checkpoints are written to a folder. A resumed compiled run gives
    identical results; a resumed run on the host (Atari, Gymnasium, bsuite) continues with the trained agent in new
    episodes.

    Resume a run with `priorax train --resume DIR`, without other arguments.
    """

    agent: str | None = None
    """Name of the agent (default bsp); `priorax agents` lists them, `priorax agents NAME` shows the settings of one."""
    env: str | None = None
    """Name of the environment (default deep_sea), or of another library's: gymnasium:CartPole-v1, gymnax:CartPole-v1,
    bsuite:deep_sea/3; `priorax environments` lists them."""
    game: str | None = None
    """Game of --env atari: Freeway, MontezumaRevenge, or any other (extra `atari`)."""
    size: int | None = None
    """Size of the environment (default 10): N of DeepSea, dimension of a linear bandit, arms of a GP bandit, bsuite's
    difficulty plus one."""
    seed: int | None = None
    """Random seed (default 0)."""
    episodes: int | None = None
    """Number of episodes (default 2000, unless --steps is given). With several lanes a run ends when this number is
    reached, and the episodes that end in the same step are counted too."""
    steps: int | None = None
    """Number of actions, over all lanes (default 100000 from pixels, in Gymnasium and bsuite, unless --episodes is
    given)."""
    backend: Literal["scan", "host"] | None = None
    """scan: agent and environment in one compiled scan; host: several environments (lanes) on the host. Compiled
    environments support both (default: scan if the environment is compiled)."""
    preset: str | None = None
    """Preset of hyperparameters (default: the environment's own)."""
    set: tuple[str, ...] = ()
    """Changes to the preset, as in --set prior_scale=3 num_members=10; prior_scale=auto chooses it automatically.
    `priorax agents NAME` lists the settings of an agent."""
    evaluate_every: int | None = None
    """Actions between evaluations of the deployed policy, in separate episodes (default: never)."""
    evaluation_episodes: int | None = None
    """Episodes of each evaluation (default 10)."""
    deploy: Literal["mean", "vote", "member"] | None = None
    """How the deployed policy chooses actions: by the mean over members (default), by majority vote, or by one member
    sampled per episode."""
    out: Path | None = None
    """Output folder (default runs/AGENT-ENV-SIZE-SEED, or runs/AGENT-ENV-SEED)."""
    resume: Path | None = None
    """Folder of a run to resume."""
    overwrite: bool = False
    """Replace an existing run in the folder."""
    force: bool = False
    """With --resume: resume a run of another version of priorax, if its files have the same format."""
    stop_when_learned: bool = False
    """Stop when the average regret falls below 0.9, the paper's criterion."""
    checkpoint_seconds: float = 60.0
    """Maximum number of seconds between checkpoints."""
    json: bool = False
    """Print the result as one line of JSON on standard output; the progress bar goes to standard error."""


@dataclass(frozen=True)
class Apex:
    """Train from pixels on Ray: many actors, sharded replay, one learner; on this machine, or on a cluster with
    --address.

    priorax apex --env atari --game Freeway --actors 2 --steps 100000
    """

    agent: str | None = None
    """Name of an agent that learns Q-values by gradient descent (default bsp)."""
    env: str | None = None
    """Name of an environment on the host (default atari)."""
    game: str | None = None
    """Game of --env atari: Freeway, MontezumaRevenge, or any other."""
    size: int | None = None
    """N of pixel_deep_sea (default 10)."""
    seed: int | None = None
    """Random seed (default 0) of the actors; the order in which their data arrives is not deterministic."""
    steps: int | None = None
    """Number of actions, over all actors and lanes (default 100000)."""
    actors: int | None = None
    """Number of rollout processes, each with as many lanes as in the preset (default 2)."""
    shards: int | None = None
    """Number of replay processes (default 1)."""
    address: str | None = None
    """Address of a Ray cluster, or auto (default: start Ray on this machine)."""
    timeout: float = 300.0
    """Seconds in which an actor or a replay process must answer, else it is replaced."""
    preset: str | None = None
    """Preset of hyperparameters (default: the environment's own, which is small for pixels); apex: those of Ape-X."""
    set: tuple[str, ...] = ()
    """Changes to the preset, as in --set prior_scale=3 num_members=10."""
    out: Path | None = None
    """Output folder (default runs/AGENT-GAME-SEED)."""
    resume: Path | None = None
    """Folder of a run to resume."""
    overwrite: bool = False
    """Replace an existing run in the folder."""
    force: bool = False
    """With --resume: resume a run of another version of priorax, if its files have the same format."""
    checkpoint_seconds: float = 60.0
    """Maximum number of seconds between checkpoints."""
    json: bool = False
    """Print the result as one line of JSON on standard output; the progress bar goes to standard error."""


@dataclass(frozen=True)
class Scale:
    """Propose a prior scale for an environment, from the returns and observations of random actions.

    priorax scale --env gymnasium:CartPole-v1
    """

    env: str
    """Name of the environment, as in `priorax train`."""
    agent: str = "bsp"
    """Name of an agent with prior functions."""
    game: str | None = None
    """Game of --env atari."""
    size: int = 10
    """N of DeepSea."""
    seed: int = 0
    """Random seed."""
    steps: int = 2000
    """Number of random actions."""
    smallest: float = 1.0
    """Lower bound of the assumed magnitude of returns, for sparse rewards."""
    preset: str | None = None
    """Preset of hyperparameters (default: the environment's own)."""
    set: tuple[str, ...] = ()
    """Changes to the preset."""


@dataclass(frozen=True)
class Inspect:
    """Describe a run's checkpoint, a model of `priorax fit` or any other file of priorax: progress, contents,
    checksums.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of a run or of a model, or a .safetensors file."""


@dataclass(frozen=True)
class Distil:
    """Distil the ensemble of a trained agent into one network, at observations that its members visit.

    priorax distil runs/first --out first.safetensors, then in Python: priorax.load("first.safetensors").predict(obs)
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a run."""
    out: Path = field(default_factory=lambda: Path("distilled.safetensors"))
    """File to write."""
    overwrite: bool = False
    """Whether the file may replace another one."""
    directions: int | None = None
    """Directions of the members' disagreement that are kept; 0: the mean alone; by default four, or as many as there
    are."""
    visits: int = 1000
    """Steps of each of eight environments in which observations are collected."""
    steps: int = 5000
    """Optimiser steps."""
    seed: int = 0
    """Random seed."""


@dataclass(frozen=True)
class Bsuite:
    """Run bsuite's own environments: results for its analysis, and its scores. An interrupted sweep is continued.

    priorax bsuite --agent bsp --sweep exploration --out bsuite_results
    """

    agent: str = "bsp"
    """Name of the agent, as in `priorax train`."""
    sweep: str = "exploration"
    """A bsuite tag (exploration, basic, ...), an experiment (deep_sea), an id (deep_sea/3), or all."""
    episodes: int | None = None
    """Maximum number of episodes of each id (default: bsuite's own number, often 10000)."""
    seed: int = 0
    """Random seed."""
    preset: str | None = None
    """Preset of hyperparameters (default: tuned for DeepSea, gymnasium for the rest)."""
    set: tuple[str, ...] = ()
    """Changes to the preset."""
    out: Path = field(default_factory=lambda: Path("bsuite_results"))
    """Output folder."""


@dataclass(frozen=True)
class Agents:
    """List all agents, or the settings of one: type, default, presets, description.

    priorax agents bsp
    """

    name: Annotated[str | None, tyro.conf.Positional] = None
    """Agent whose settings to show (default: list all agents)."""
    preset: str | None = None
    """Show the values of this preset only (default: those of tuned, and differences in other presets)."""


@dataclass(frozen=True)
class Environments:
    """List environments, built-in and from plug-ins, each with its preset of hyperparameters."""


@dataclass(frozen=True)
class Completion:
    """Print shell completions.

    priorax completion bash > ~/.local/share/bash-completion/completions/priorax
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional] = "bash"
    """Shell to complete for."""


@dataclass(frozen=True)
class Watch:
    """Show how agents explore DeepSea, as a web page with a player; or an episode of a trained agent, as a GIF (of a
    built-in cartpole, or of a Gymnasium environment that can be rendered).

    priorax watch --agent bsp,eps_greedy --size 20 --out exploration.html

    priorax watch runs/bsp-cartpole_swingup_wide-0 --out episode.gif
    """

    run: Annotated[Path | None, tyro.conf.Positional] = None
    """Folder of a run; without it, agents are trained in --env and their exploration is shown."""
    agent: str = "bsp,eps_greedy"
    """Without a run: one agent, or two side by side."""
    env: Literal["deep_sea"] = "deep_sea"
    """Without a run: the environment to explore."""
    size: int = 20
    """N of DeepSea."""
    episodes: int = 320
    """Without a run: number of episodes."""
    out: Path | None = None
    """Output file (default RUN/episode.gif, or exploration.html)."""
    seed: int = 0
    """Random seed."""
    mujoco: bool = False
    """With a run: simulate and render it in MuJoCo instead, through dm_control (extra `control`; needs a headless
    renderer)."""


@dataclass(frozen=True)
class Report:
    """Summarise runs on one web page: learning curves, times to learn, hyperparameters, commands to repeat them; works
    offline.

    priorax report runs --out report.html
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, or folders that contain runs, up to two levels deep."""
    out: Path = field(default_factory=lambda: Path("report.html"))
    """Output file."""


@dataclass(frozen=True)
class Playground:
    """Write an interactive web page with an ensemble with priors that is fitted to draggable data points; works
    offline.
    """

    out: Path = field(default_factory=lambda: Path("playground.html"))
    """Output file."""


@dataclass(frozen=True)
class Fit:
    """Fit a model to a CSV file and measure its calibration; no code needed. Open report.html in the output folder.

    priorax fit data.csv --target y --out model
    """

    data: Annotated[Path, tyro.conf.Positional]
    """A CSV file, optionally gzipped, with a header line; text and empty cells are allowed."""
    target: str
    """Column to predict."""
    out: Path
    """Output folder."""
    kind: Literal["auto", "number", "class"] = "auto"
    """Type of the target: number (regression) or class (classification). auto: class for text, number for numbers; for
    a column of only two distinct numbers, such as 0 and 1, you are asked, or must pass it."""
    id: str | None = None
    """Column that identifies rows: it is not used as a feature, and is copied to predictions (default: none)."""
    drop: tuple[str, ...] = ()
    """Columns to ignore."""
    held_out: float = 0.2
    """Fraction of rows held out to measure calibration; 0: no measurement and no report page."""
    interval: float | None = None
    """Nominal coverage of the prediction intervals that are measured, for numbers (default 0.9)."""
    interval_method: Literal["scaled", "jackknife"] = "scaled"
    """How intervals are made: wider where the ensemble doubts, or by the jackknife+-after-bootstrap."""
    seed: int = 0
    """Random seed."""
    prior_scale: float | None = None
    """Scale of the prior functions (default 1)."""
    num_members: int = 20
    """Ensemble size."""
    steps: int | None = None
    """Number of training steps (default: chosen automatically)."""
    encoding: str | None = None
    """Text encoding of the file, such as latin-1 (default: detected)."""
    overwrite: bool = False
    """Replace an existing model in the folder."""


@dataclass(frozen=True)
class Predict:
    """Predict every row of a CSV file with a model that `priorax fit` wrote; if it has the target column, score them.

    priorax predict model new.csv --interval 0.9
    """

    model: Annotated[Path, tyro.conf.Positional]
    """Folder of a model."""
    data: Annotated[Path, tyro.conf.Positional]
    """A CSV file with the columns of the fit; other columns are ignored."""
    out: Path = field(default_factory=lambda: Path("predictions.csv"))
    """Output file; gzipped if it ends in .gz."""
    id: str | None = None
    """Column that identifies rows, copied to the predictions (default: that of the fit)."""
    interval: float | None = None
    """Nominal coverage of prediction intervals, such as 0.9, for numbers: columns low and high (default: none)."""
    interval_method: Literal["scaled", "jackknife"] = "scaled"
    """How intervals are made: wider where the ensemble doubts, or by the jackknife+-after-bootstrap."""
    report: Path | None = None
    """Web page to write: the most doubtful rows and, if the file has the target column, calibration and residuals
    (default: none)."""
    encoding: str | None = None
    """Text encoding of the file, such as latin-1 (default: detected)."""


@dataclass(frozen=True)
class Doctor:
    """Check the installation: packages, hardware and problems; exit code 1 if there is a problem.

    priorax doctor --agents
    """

    agents: bool = False
    """Check every agent on every backend instead, on a small task: learning, resuming, members, bonus, epsilon, masks
    and priorities, or the reason why the combination is not supported. Takes some minutes."""
    agent: str | None = None
    """With --agents: comma-separated names of agents (default: all)."""
    backend: str | None = None
    """With --agents: comma-separated backends: scan, host, ray (default: all that are installed)."""


def _listing() -> dict[tuple[type, str], str]:
    """Create help texts that list names, from the registries and the metadata of plug-ins."""
    agents, presets = names.agent_names(), names.listed(names.PRESETS)
    more = "`priorax agents` describes them."
    libraries = "or of another library: gymnasium:CartPole-v1, gymnax:CartPole-v1, bsuite:deep_sea/3"
    return {
        (Reproduce, "name"): f"{names.listed(names.EXPERIMENTS)}.",
        (Compare, "agents"): f"Comma-separated names: {names.listed(agents)}. {more}",
        (Compare, "preset"): f"Hyperparameters: {presets}.",
        (Train, "agent"): f"{names.listed(agents, 'bsp')}. {more}",
        (Train, "env"): f"{names.listed(names.environment_names(), 'deep_sea')}; {libraries}. `priorax environments` "
        "describes them.",
        (Train, "preset"): f"Hyperparameters: {presets} (default: the environment's own).",
    }


def _list_names() -> None:
    for (command, name), words in _listing().items():
        kind, marks = command.__annotations__[name], list[Any]()
        if typing.get_origin(kind) is Annotated:
            kind, *marks = typing.get_args(kind)
        command.__annotations__[name] = Annotated[(kind, tyro.conf.arg(help=words), *marks)]


def _without_nothing(command: type) -> None:
    """Show the possible values of optional arguments in the help, without the default None."""
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
_list_names()
for _command in (Train, Apex, Scale, Bsuite, Watch, Fit, Predict, Doctor, Agents):
    _without_nothing(_command)

Command = (
    Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Benchmark, tyro.conf.subcommand("benchmark")]
    | Annotated[Testbed, tyro.conf.subcommand("testbed")]
    | Annotated[Agents, tyro.conf.subcommand("agents")]
    | Annotated[Environments, tyro.conf.subcommand("environments")]
    | Annotated[Apex, tyro.conf.subcommand("apex")]
    | Annotated[Watch, tyro.conf.subcommand("watch")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Playground, tyro.conf.subcommand("playground")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Scale, tyro.conf.subcommand("scale")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Distil, tyro.conf.subcommand("distil")]
    | Annotated[Bsuite, tyro.conf.subcommand("bsuite")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Completion, tyro.conf.subcommand("completion")]
)
