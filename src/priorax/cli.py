"""The `priorax` command.

Errors are one line without a traceback (set `--debug` to see it); exit codes: 0 done, 1 a check failed or a run broke,
2 bad arguments, 130 interrupted.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from priorax.progress import console, count_bar, share_bar


@dataclass(frozen=True)
class Check:
    """Check the paper's lemmas against theory: a table, one row per measured statement; exit code 1 if one fails."""


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a figure or table of the paper: rows (CSV) and pictures (PNG, SVG)."""

    name: Annotated[str, tyro.conf.Positional]
    """figure1, figure2, figure3, figure4, figure5, figure6, figure8, figure9, figure10, figure11, figure12, figure13,
    table1, curves, novelty, ablation, bsuite, bsuite_swingup, bandits or pixels."""
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
    """Train an agent: rows, TensorBoard events and checkpoints go to a folder. Killed and resumed: the same rows.

    A run goes on with `priorax train --resume DIR`, which needs no other argument.
    """

    agent: str | None = None
    """bsp (default), bsr, bs, ensemble, eps_greedy, dropout, noisy, bbb, c51, qr, ucb, rlsvi, psrl, ucrl or d4pg."""
    env: str | None = None
    """deep_sea (default), deep_sea_stochastic, deep_sea_no_reward, bernoulli_bandit, linear_bandit, gp_bandit,
    cartpole_swingup, cartpole_swingup_wide, cartpole_swingup_smooth, cartpole_balance or bsuite_cartpole_swingup; from
    pixels, in many lanes at once: pixel_deep_sea, or atari with --game."""
    game: str | None = None
    """Of --env atari: Freeway, MontezumaRevenge, or any other (extra `atari`)."""
    size: int | None = None
    """N of DeepSea (default 10); a linear bandit's dimension, a GP bandit's arms, bsuite's difficulty plus one."""
    seed: int | None = None
    """Everything random follows from it (default 0)."""
    episodes: int | None = None
    """How many (default 2000)."""
    steps: int | None = None
    """From pixels: actions over all lanes (default 100000)."""
    preset: str | None = None
    """Hyperparameters: tuned, swingup or small, for DeepSea, cartpole and pixels (default: as the environment is);
    paper, as in its appendix B; apex, those of Ape-X, for larger machines."""
    set: tuple[str, ...] = ()
    """Changes to the preset, as in --set prior_scale=3 num_members=10."""
    out: Path | None = None
    """The folder to write to (default runs/AGENT-ENV-SIZE-SEED)."""
    resume: Path | None = None
    """The folder of a run to go on with."""
    overwrite: bool = False
    """Replace a run that is in the folder already."""
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
    checkpoint_seconds: float = 60.0
    """A checkpoint at least so often."""
    json: bool = False
    """End with one line of JSON on standard output; the bar goes to standard error."""


@dataclass(frozen=True)
class Watch:
    """See an agent: how it explores a DeepSea, as a page with a player; or what a run on cartpole has learned, as a GIF.

    priorax watch --agent bsp,eps_greedy --size 20 --out exploration.html
    priorax watch runs/bsp-cartpole_swingup_wide-10-0 --out episode.gif
    """

    run: Annotated[Path | None, tyro.conf.Positional] = None
    """The folder of a run on a cartpole; without it, agents are trained in --env and their exploration is shown."""
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
class Playground:
    """A page on which data points are dragged and an ensemble with priors answers: one HTML file, no network needed."""

    out: Path = field(default_factory=lambda: Path("playground.html"))
    """The file to write."""


Command = (
    Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Apex, tyro.conf.subcommand("apex")]
    | Annotated[Watch, tyro.conf.subcommand("watch")]
    | Annotated[Playground, tyro.conf.subcommand("playground")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    if "--version" in arguments:
        from priorax import __version__

        print(f"priorax {__version__}")
        return 0
    command = parse(arguments)
    run: dict[type, Callable[[Any], int]] = {
        Check: _check,
        Reproduce: _reproduce,
        Train: _train,
        Compare: _compare,
        Apex: _apex,
        Watch: _watch,
        Playground: _playground,
        Demo: _demo,
    }
    try:
        _enable_cache()
        return run[type(command)](command)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; nothing half-written is left behind")
        return 130
    except (ValueError, TypeError, OSError, ArithmeticError) as error:
        if debug:
            raise
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        return 2 if isinstance(error, ValueError | TypeError) else 1


def _enable_cache() -> None:
    """Keep compiled programs if there is a place for them; without one, only compile again."""
    from priorax.caching import enable_compilation_cache

    try:
        enable_compilation_cache()
    except OSError as error:
        words = f"no compilation cache ({error}); set PRIORAX_CACHE to a folder of yours to have one"
        Console(stderr=True).print(words, markup=False, highlight=False)


def parse(arguments: list[str]) -> Any:
    """The command that these words mean."""
    words = "Randomized prior functions: ensembles that know what they do not know."
    return tyro.cli(Command, prog="priorax", args=arguments, description=words)


def _check(command: Check) -> int:
    from priorax.sanity import run_checks

    with share_bar("checking") as report:
        checks = run_checks(report)
    table = Table("", "lemma", "claim", "measured", "theory", title="The paper's lemmas, measured")
    for check in checks:
        sign = "[green]✓[/]" if check.passed else "[bold red]✗[/]"
        note = f"\n[dim]{check.note}[/]" if check.note else ""
        table.add_row(sign, check.lemma, check.claim + note, f"{check.measured:.4g}", check.theory)
    console.print(table)
    failed = sum(not check.passed for check in checks)
    console.print(f"{len(checks) - failed} of {len(checks)} hold")
    return 1 if failed else 0


def _reproduce(command: Reproduce) -> int:
    from priorax.experiments import reproduce

    with share_bar(command.name) as report:
        result = reproduce(
            command.name,
            command.preset,
            command.out,
            report,
            announce=_announce,
            draw_only=command.draw_only,
        )
    return _show(command.name, result)


def _compare(command: Compare) -> int:
    from priorax.experiments.compare import compare

    with share_bar("compare") as report:
        result = compare(
            command.agents.split(","),
            command.env,
            [_whole(word) for word in command.sizes.split(",")],
            command.seeds,
            command.episodes,
            command.preset,
            command.out,
            report,
            _announce,
        )
    return _show(f"episodes to learn {command.env}, median of {command.seeds} seeds", result)


def _whole(word: str) -> int:
    if not word.strip().isdigit():
        raise ValueError(f"sizes={word!r} must be whole numbers with commas; pass for example 5,10,15")
    return int(word)


def _announce(words: str) -> None:
    console.print(words, soft_wrap=True, highlight=False, markup=False)


def _show(title: str, result: Any) -> int:
    _print_summary(title, result.summary)
    for path in result.paths:
        _announce(f"wrote {path}")
    return 0


def _train(command: Train) -> int:
    import json

    from priorax.envs.worlds import lives_on_host
    from priorax.loops.run_folder import read_config
    from priorax.loops.training import DEFAULTS, Progress, parse_changes, resumed, train

    env = read_config(command.resume).get("env") if command.resume else command.env
    if env is not None and lives_on_host(env):
        return _train_on_host(command)
    for name in ("game", "steps"):
        if getattr(command, name) is not None:
            raise ValueError(f"{name}={getattr(command, name)!r} is for atari and gymnasium:NAME; leave it out")
    given = {name: getattr(command, name) for name in DEFAULTS if getattr(command, name) is not None}
    changes = parse_changes(command.set)
    if command.resume is not None:
        out, asked = command.resume, resumed(command.resume, given, changes)
    else:
        asked = {**DEFAULTS, **given, "changes": changes}
        out = command.out or Path("runs") / "{agent}-{env}-{size}-{seed}".format(**asked)
    shown = Console(stderr=True) if command.json else console

    def note(progress: Progress) -> str:
        words = f"return {progress.total_return:.2f}  {progress.steps_per_second:,.0f} steps/s"
        if progress.average_regret is None:
            return words
        learned = f"learned at {progress.learned}" if progress.learned else "not learned yet"
        return f"{words}  regret {progress.average_regret:.2f}  {learned}"

    try:
        with count_bar(asked["episodes"], f"{asked['agent']} on {asked['env']} {asked['size']}", shown) as update:
            result = train(
                **asked,
                out=out,
                resume=command.resume is not None,
                overwrite=command.overwrite,
                stop_when_learned=command.stop_when_learned,
                checkpoint_seconds=command.checkpoint_seconds,
                report=lambda progress: update(progress.episode, note(progress)),
            )
    except KeyboardInterrupt:
        shown.print(f"go on with: priorax train --resume {out}", soft_wrap=True, highlight=False, markup=False)
        raise
    if command.json:
        print(json.dumps(result.summary()))
        return 0
    words = f"learned at episode {result.episodes_to_learn}" if result.episodes_to_learn else "not learned"
    if not result.tells_regret:
        last = [row.total_return for row in result.history[-50:]]
        words = f"mean return {sum(last) / len(last):.1f} in the last {len(last)} episodes"
    console.print(
        f"{words} of {result.episodes}; {result.env_steps_per_second:,.0f} steps/s; rows in {out}/episodes.csv"
    )
    return 0


def _train_on_host(command: Train) -> int:
    from priorax.loops.host_training import train_on_host

    return _on_host(command, train_on_host, {})


def _apex(command: Apex) -> int:
    from priorax.distributed import run_apex
    from priorax.loops.run_folder import read_config

    before = read_config(command.resume) if command.resume else {}
    actors, shards = command.actors or before.get("actors", 2), command.shards or before.get("shards", 1)
    return _on_host(command, run_apex, {"actors": actors, "shards": shards, "address": command.address})


def _on_host(command: Any, run: Callable[..., Any], more: dict[str, Any]) -> int:
    """Train from pixels, in this process or on a cluster."""
    import json

    from priorax.loops.host_training import HOST_DEFAULTS, HostProgress, resumed_on_host
    from priorax.loops.training import parse_changes

    given = {name: getattr(command, name) for name in HOST_DEFAULTS if getattr(command, name) is not None}
    changes = parse_changes(command.set)
    if command.resume is not None:
        out, asked = command.resume, resumed_on_host(command.resume, given, changes)
    else:
        asked = {**HOST_DEFAULTS, **given, "changes": changes}
        where = asked["game"] or f"{asked['env']}-{asked['size']}"
        out = command.out or Path("runs") / f"{asked['agent']}-{where}-{asked['seed']}"
    shown = Console(stderr=True) if command.json else console

    def note(progress: HostProgress) -> str:
        mean = "no episode yet" if progress.mean_return is None else f"return {progress.mean_return:.2f}"
        cells = f"  {progress.cells:,} states" if progress.cells else ""
        return f"{mean}  {progress.steps_per_second:,.0f} steps/s  {progress.updates:,} updates{cells}"

    try:
        with count_bar(asked["steps"], f"{asked['agent']} on {asked['game'] or asked['env']}", shown) as update:
            result = run(
                **asked,
                **more,
                out=out,
                resume=command.resume is not None,
                overwrite=command.overwrite,
                checkpoint_seconds=command.checkpoint_seconds,
                report=lambda progress: update(progress.step, note(progress)),
            )
    except KeyboardInterrupt:
        again = "apex" if more else "train"
        shown.print(f"go on with: priorax {again} --resume {out}", soft_wrap=True, highlight=False, markup=False)
        raise
    if command.json:
        print(json.dumps(result.summary()))
        return 0
    mean = "no episode ended" if result.mean_return is None else f"mean return {result.mean_return:.2f} at the end"
    console.print(
        f"{mean}; {result.episodes} episodes, {result.steps:,} steps, {result.steps_per_second:,.0f} a second; "
        f"rows in {out}/episodes.csv"
    )
    return 0


def _playground(command: Playground) -> int:
    from priorax.report.viewer import write_playground

    _announce(f"wrote {write_playground(command.out)}; open it in a browser")
    return 0


def _watch(command: Watch) -> int:
    return _explore(command) if command.run is None else _episode(command, command.run)


def _explore(command: Watch) -> int:
    """Train agents, and write a page on how they explored."""
    from priorax.loops.viewing import record_deep_sea
    from priorax.report.viewer import write_viewer

    agents = command.agent.split(",")
    if command.mujoco or len(agents) > 2:
        raise ValueError(
            "--mujoco needs the folder of a run; pass one"
            if command.mujoco
            else f"agent={command.agent!r} has more than two; pass one, or two with a comma"
        )
    recordings = []
    for agent in agents:
        with count_bar(command.episodes, f"{agent} on {command.env} {command.size}") as update:
            recordings.append(
                record_deep_sea(
                    agent, command.size, command.seed, command.episodes, report=lambda done, to=update: to(done, "")
                )
            )
    _announce(f"wrote {write_viewer(recordings, command.out or Path('exploration.html'))}; open it in a browser")
    return 0


def _episode(command: Watch, run: Path) -> int:
    """An episode of what a run has learned."""
    from priorax.loops.watching import load, record, record_in_mujoco
    from priorax.report.episodes import array_frames, cartpole_frames, draws, write_gif

    learned = load(run)
    if not draws(learned.env):
        name = type(learned.env).__name__
        raise ValueError(f"there is no picture of a {name} yet; watch a run on cartpole_swingup")
    out = command.out or run / "episode.gif"
    if command.mujoco:
        pictures, total = record_in_mujoco(learned, command.seed)
        write_gif(out, array_frames(pictures))
    else:
        recording = record(learned, command.seed)
        total = float(recording.rewards.sum())
        write_gif(out, cartpole_frames(recording.env, recording.states, recording.rewards))
    _announce(f"return {total:.1f}; wrote {out}")
    return 0


def _demo(command: Demo) -> int:
    for name, words in DEMO.items():
        console.rule(f"{name}: {words}")
        _reproduce(Reproduce(name, "quick", command.out))
    console.print(
        f"\nOpen [bold]{command.out}/figure13.png[/] first: only a prior leaves doubt where all data said zero. Then "
        f"[bold]{command.out}/curves.png[/]: who doubts, explores."
    )
    return 0


DEMO = {
    "figure13": "four ensembles on eleven points; who knows what it does not know?",
    "figure12": "with more data the bootstrap becomes sure, dropout never does",
    "curves": "the same doubt, put to use: DeepSea 20, where one path in a million pays",
}


def _print_summary(title: str, summary: list[tuple[str, ...]]) -> None:
    header, *rows = summary
    table = Table(*header, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
