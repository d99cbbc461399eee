"""Base class of beliefs that add an exploration bonus to the rewards of another belief."""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, BeliefState
from priorax.beliefs.wrapper import Wrapper


class Bonus(Wrapper):
    """A belief around another one that pays for novel inputs; what it knows of inputs seen is stored in `aux`."""

    def __check_init__(self) -> None:
        if not self.base.by_gradient:
            raise ValueError(
                f"base={type(self.base).__name__} stores its data in aux, where {self._stored} are stored; "
                "use a base that learns by gradient, such as Ensemble(num_members=1)"
            )

    @property
    @abc.abstractmethod
    def _stored(self) -> str:
        """What is stored in `aux`, for messages."""

    @abc.abstractmethod
    def reward_bonus(self, state: BeliefState, x: Any) -> Float[Array, " batch"]:
        """Compute the bonus at a batch of inputs, by what was seen before.

        Args:
            state: State of the belief.
            x: Inputs [batch, ...].

        Returns:
            One bonus per input.
        """

    @abc.abstractmethod
    def _seen(self, state: BeliefState, rows: Any, weight: Float[Array, " batch"]) -> PyTree:
        """Compute `aux` after inputs were seen, each once, with weights."""

    def observe(self, state: BeliefState, batch: Batch) -> BeliefState:
        # each example is seen once, in stream 0
        state = self.base.observe(state, batch)
        rows = batch.x if batch.shared else jax.tree.map(lambda leaf: leaf[0], batch.x)
        return state._replace(aux=self._seen(state, rows, batch.weight[0]))

    def bonus(self, state: BeliefState, x: Any) -> Float[Array, ""]:
        """Compute the bonus at ONE input.

        Args:
            state: State of the belief.
            x: One input, without batch axis.

        Returns:
            The bonus.
        """
        return self.reward_bonus(state, jax.tree.map(lambda leaf: leaf[None], x))[0]

    @property
    def acts_on_forward(self) -> bool:
        """As for the wrapped belief: the bonus is the same for every output, so that it does not change the action."""
        return self.base.acts_on_forward

    @property
    def pays_bonus(self) -> bool:
        return True

    def _init_base(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        """Initialise the state of the base, whose `aux` must be free."""
        state = self.base.init(key, x)
        if jax.tree.leaves(state.aux):
            raise ValueError(
                f"base={type(self.base).__name__} stores state of its own in aux, where {self._stored} are stored; "
                "use a base that stores it in frozen or params"
            )
        return state

    def value(self, state: BeliefState, index: PyTree, x: Any) -> Float[Array, " output"]:
        return self.base.value(state, index, x) + self.bonus(state, x)

    def functions(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "function batch output"]:
        return self.base.functions(state, key, x, num_draws) + self.reward_bonus(state, x)[:, None]

    def spread(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "batch output"]:
        # the bonus, which is the same for every output
        bonus = self.reward_bonus(state, x)[:, None]
        return jnp.broadcast_to(bonus, (len(bonus), self.num_outputs))
