"""Lemma 2: independent variational inference on the Bellman error does not propagate uncertainty."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from priorax.sanity.check import Check

MEAN_Y, STD_Y = 2.0, 3.0
SAMPLES, STEPS = 256, 3000


def lemma_2() -> Iterator[Check]:
    """Fit X ~ N(mu, sigma²) to Y ~ N(2, 3²) by squared error on samples.

    With X and Y independent sigma vanishes; with the pairing of an ensemble, where X and Y share their randomness, it
    remains.

    Yields:
        The checks.
    """
    mean, std = fit_normal(paired=False)
    yield Check("lemma 2", "mu*, X and Y independent", mean, f"{MEAN_Y} ± 0.1", abs(mean - MEAN_Y) < 0.1)
    yield Check("lemma 2", "sigma*, X and Y independent", std, "0 ± 0.05", std < 0.05)
    _, std = fit_normal(paired=True)
    yield Check(
        "lemma 2", "sigma*, each sample on its own target (ensemble)", std, f"{STD_Y} ± 0.1", abs(std - STD_Y) < 0.1
    )


def fit_normal(paired: bool) -> tuple[float, float]:
    """Minimise E[(X - Y)²] by stochastic gradients from mu = 0, sigma = 1.

    Args:
        paired: Whether X and Y share their randomness.

    Returns:
        The optimal mu and |sigma|.
    """
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, STEPS))

    def loss(params: Float[Array, "2"], key: Array) -> Float[Array, ""]:
        key_x, key_y = jax.random.split(key)
        noise_x, noise_y = jax.random.normal(key_x, (SAMPLES,)), jax.random.normal(key_y, (SAMPLES,))
        x = params[0] + params[1] * (noise_y if paired else noise_x)
        return jnp.mean((x - (MEAN_Y + STD_Y * noise_y)) ** 2)

    def step(carry: tuple[Array, optax.OptState], key: Array) -> tuple[tuple[Array, optax.OptState], None]:
        params, opt = carry
        updates, opt = optimizer.update(jax.grad(loss)(params, key), opt)
        return (params + updates, opt), None

    start = jnp.array([0.0, 1.0])
    keys = jax.random.split(jax.random.key(2), STEPS)
    (params, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), keys)
    return float(params[0]), float(jnp.abs(params[1]))
