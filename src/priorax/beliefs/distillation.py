"""Random network distillation: an exploration bonus by the error of a predictor (Burda et al. 2018).

A predictor f learns the outputs of a fixed random network on the inputs that were seen; where it still errs, an input
is new. With the fixed network as a prior function p, the error is that of f + p fitted to zero: the predictor is an
ensemble of one member with a randomized prior function, trained as any other.

The bonus is the squared error relative to the root mean square of the errors met so far, so that `bonus_scale` means
the same for networks of any scale. It is paid where an action is taken, as the count bonus is, one step after the
arrival for which the paper pays it; and inputs are scaled as the predictor's network scales them, not by their running
moments.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.beliefs.base import Belief, BeliefState, check_number, plain_batch
from priorax.beliefs.bonus import Bonus
from priorax.beliefs.ensemble import Ensemble
from priorax.checks import non_negative


class Distilled(NamedTuple):
    """What was learned of the inputs seen."""

    predictor: BeliefState
    """State of the predictor; its prior function is the fixed random network."""
    visits: Float[Array, ""]
    """Number of inputs seen."""
    square: Float[Array, ""]
    """Mean of the squares of their errors, each before it was learned from."""


class Distillation(Bonus):
    """A belief with a bonus where a predictor of a fixed random network errs. Each observed input is learned from once.

    Inputs that are observed together, as in several lanes, share one step of the predictor's optimiser, so that the
    bonus falls more slowly with more lanes.
    """

    base: Belief
    """The belief that learns the values."""
    predictor: Ensemble
    """The predictor f + p: an ensemble whose prior functions p are the fixed networks, with any number of outputs."""
    bonus_scale: float | Float[Array, ""] = 0.1
    """Bonus of an input whose error is as large as those met so far (their root mean square)."""

    def __check_init__(self) -> None:
        check_number(non_negative, "bonus_scale", self.bonus_scale)
        if not self.predictor.has_prior:
            raise ValueError(
                f"predictor={type(self.predictor).__name__} with prior=None has no fixed network to predict; pass "
                "prior=MLP(...), as network"
            )

    @property
    def _stored(self) -> str:
        return "predictors"

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        """Initialise the states of the base and of the predictor.

        Args:
            key: PRNG key.
            x: One example input.

        Returns:
            The initial state.

        Raises:
            ValueError: If the base uses `aux` itself.
        """
        key_base, key_predictor = jax.random.split(key)
        zero = jnp.zeros(())
        return self._init_base(key_base, x)._replace(aux=Distilled(self.predictor.init(key_predictor, x), zero, zero))

    def error(self, state: BeliefState, x: Any) -> Float[Array, " batch"]:
        """Compute the predictor's mean squared error at a batch of inputs.

        Args:
            state: State of the belief.
            x: Inputs [batch, ...].

        Returns:
            One error per input, the mean over outputs.
        """
        gap = self.predictor.functions(state.aux.predictor, jax.random.key(0), x)
        return jnp.mean(gap**2, axis=(0, 2))

    def reward_bonus(self, state: BeliefState, x: Any) -> Float[Array, " batch"]:
        square = jnp.where(state.aux.visits > 0, state.aux.square, 1.0)
        return self.bonus_scale * self.error(state, x) / jnp.sqrt(jnp.maximum(square, TINY))

    def _seen(self, state: BeliefState, rows: Any, weight: Float[Array, " batch"]) -> Distilled:
        known = state.aux
        zeros = jnp.zeros((weight.shape[0], self.predictor.num_outputs))
        examples = plain_batch(rows, zeros, self.predictor.num_streams)
        examples = eqx.tree_at(lambda batch: batch.weight, examples, examples.weight * weight)
        moved, _ = self.predictor.update(known.predictor, examples, jax.random.key(0))
        new = jnp.sum(weight)
        moved = jax.tree.map(lambda a, b: jnp.where(new > 0, a, b), moved, known.predictor)
        visits = known.visits + new
        squares = jnp.sum(weight * self.error(state, rows) ** 2)
        square = known.square + (squares - new * known.square) / jnp.maximum(visits, 1.0)
        return Distilled(moved, visits, square)


TINY = 1e-30
"""Smallest mean square by which errors are divided."""
