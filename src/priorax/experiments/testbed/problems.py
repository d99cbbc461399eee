"""Problems of the Neural Testbed and their scores: random classifiers, joint predictions, Kullback-Leibler divergence.

This follows the description of Osband et al., "The Neural Testbed: Evaluating Joint Predictions" (arXiv 2110.04629),
and the behaviour of its authors' package `neural_testbed`; no code of it is used.

- *Truth*: a network of two hidden layers of 50 rectified units and two outputs, divided by a temperature: class logits.
  Weights are normal, truncated at two standard deviations of 1/sqrt(fan-in); the first layer's biases are normal with
  standard deviation 1/sqrt(d), the others zero.
- *Data*: inputs N(0, I) in d dimensions; each label is drawn from the truth at its input.
- *Joint predictions*: a draw from a posterior is a whole function, and labels y_1 ... y_tau at x_1 ... x_tau have the
  probability that the mean over functions of the product over inputs gives. The score is the mean over test inputs and
  labels of log P_truth(y | x) - log P_method(y | x): an estimate of the KL divergence, which is zero for the truth.
- *Test inputs*: dyadic sampling draws two anchors from N(0, I); each of the tau inputs is one of the two, at random,
  with a label of its own. Independent sampling draws all tau inputs from N(0, I). With tau = 1 both are the same.

Sums of log probabilities are computed in double precision from log probabilities, so that no probability is clipped;
the authors' code replaces infinite estimates by the largest finite one.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp, ndtr, ndtri

from priorax.checks import one_of, positive, positive_int

HIDDEN = 50
"""Units of each hidden layer of the truth."""
CLASSES = 2
"""Number of classes."""
CUT = 2.0
"""Standard deviations at which the normal distribution of the weights is truncated."""
SAMPLINGS = ("dyadic", "independent")
"""Ways of drawing test inputs."""

Functions = Callable[[np.ndarray], np.ndarray]
"""Maps inputs [row, d] to log probabilities [function, row, class] of functions drawn from a posterior: the same ones
at every call."""


class Known(NamedTuple):
    """What a problem tells a method beside the training data."""

    dim: int
    """Dimension d of the inputs."""
    num_train: int
    """Number of training examples."""
    temperature: float
    """Temperature of the truth, by which its logits are divided."""
    num_classes: int = CLASSES
    """Number of classes."""


class Truth(NamedTuple):
    """A random classifier: the parameters of its network, and its temperature."""

    weights: tuple[np.ndarray, ...]
    """Weights of each layer, [in, out]."""
    bias: np.ndarray
    """Biases of the first layer; those of the others are zero."""
    temperature: float
    """Divisor of the logits."""

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Evaluate the classifier.

        Args:
            x: Inputs [row, d].

        Returns:
            Log probabilities [row, class].
        """
        first, second, last = self.weights
        hidden = np.maximum(np.maximum(x @ first + self.bias, 0) @ second, 0)
        return log_softmax(hidden @ last / self.temperature, axis=-1)


class Problem(NamedTuple):
    """A problem: its training data, and what generated them."""

    known: Known
    """What methods may know."""
    x: np.ndarray
    """Training inputs [n, d]."""
    y: np.ndarray
    """Training labels [n]."""
    truth: Truth
    """The classifier that drew the labels, which methods do not see."""


class Exam(NamedTuple):
    """Test inputs and labels in batches; the labels at an input are given by their counts."""

    points: np.ndarray
    """Inputs [batch, point, d]."""
    counts: dict[int, np.ndarray]
    """By tau, how often each label occurs at each input, [batch, point, class]; each batch has tau labels."""


def draw_truth(random: np.random.Generator, dim: int, temperature: float) -> Truth:
    """Draw a random classifier.

    Args:
        random: Random numbers.
        dim: Dimension of its inputs.
        temperature: Its temperature; lower ones give more certain labels.

    Returns:
        The classifier.

    Raises:
        ValueError: If the dimension or the temperature is not positive.
    """
    positive_int("dim", dim)
    positive("temperature", temperature)
    sizes = (dim, HIDDEN, HIDDEN, CLASSES)
    weights = tuple(_truncated_normal(random, pair) / pair[0] ** 0.5 for pair in itertools.pairwise(sizes))
    return Truth(weights, random.standard_normal(HIDDEN) / dim**0.5, temperature)


def _truncated_normal(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Draw standard normal numbers between -CUT and CUT."""
    return ndtri(random.uniform(ndtr(-CUT), ndtr(CUT), shape))


def draw_labels(random: np.random.Generator, log_probs: np.ndarray) -> np.ndarray:
    """Draw labels.

    Args:
        random: Random numbers.
        log_probs: Log probabilities [..., class].

    Returns:
        One label for each distribution.
    """
    below = np.cumsum(np.exp(log_probs), axis=-1)[..., :-1]
    return np.sum(random.uniform(size=(*log_probs.shape[:-1], 1)) >= below, axis=-1)


def make_problem(dim: int, ratio: int, temperature: float, seed: int) -> Problem:
    """Create a problem.

    Args:
        dim: Dimension d of the inputs.
        ratio: Number of training examples divided by d.
        temperature: Temperature of the truth.
        seed: Random seed of the truth and the data.

    Returns:
        The problem.

    Raises:
        ValueError: If dimension, ratio or temperature is not positive.
    """
    random = _random(dim, ratio, temperature, seed, 0)
    truth = draw_truth(random, dim, temperature)
    num_train = positive_int("ratio", ratio) * dim
    x = random.standard_normal((num_train, dim))
    return Problem(Known(dim, num_train, temperature), x, draw_labels(random, truth(x)), truth)


def _random(dim: int, ratio: int, temperature: float, seed: int, part: int) -> np.random.Generator:
    return np.random.default_rng([dim, ratio, round(1000 * temperature), seed, part])


def draw_exam(
    truth: Truth, dim: int, taus: tuple[int, ...], batches: int, sampling: str, random: np.random.Generator
) -> Exam:
    """Draw test inputs and labels.

    Args:
        truth: The classifier that labels them.
        dim: Dimension of the inputs.
        taus: Numbers of labels that are predicted jointly.
        batches: Number of batches.
        sampling: dyadic: two anchors per batch, each input is one of them; independent: all inputs differ.
        random: Random numbers.

    Returns:
        The exam. With independent sampling, smaller taus have the first inputs of the larger ones.

    Raises:
        ValueError: If the sampling is unknown.
    """
    size = 2 if one_of("sampling", sampling, SAMPLINGS) == "dyadic" else max(taus)
    points = random.standard_normal((batches, size, dim))
    log_probs = truth(points)
    counts = {}
    for tau in taus:
        where = random.integers(size, size=(batches, tau)) if sampling == "dyadic" else np.arange(tau)[None]
        where = np.broadcast_to(where, (batches, tau))
        rows = np.arange(batches)[:, None]
        counts[tau] = np.zeros((batches, size, CLASSES), dtype=int)
        np.add.at(counts[tau], (rows, where, draw_labels(random, log_probs[rows, where])), 1)
    return Exam(points, counts)


def exam_of(problem: Problem, taus: tuple[int, ...], batches: int, sampling: str, ratio: int, seed: int) -> Exam:
    """Draw the exam of a problem: the same one for every method.

    Args:
        problem: The problem.
        taus: Numbers of labels that are predicted jointly.
        batches: Number of batches.
        sampling: dyadic or independent.
        ratio: Ratio of the problem.
        seed: Seed of the problem.

    Returns:
        The exam.
    """
    known = problem.known
    random = _random(known.dim, ratio, known.temperature, seed, 1 + SAMPLINGS.index(sampling))
    return draw_exam(problem.truth, known.dim, taus, batches, sampling, random)


def joint_log_likelihood(log_probs: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute the log probability of all labels of each batch under a mixture of functions.

    Args:
        log_probs: Log probabilities [function, batch, point, class].
        counts: How often each label occurs at each input, [batch, point, class].

    Returns:
        One number per batch: the logarithm of the mean over functions of the product over labels.
    """
    by_function = np.einsum("fbpc,bpc->fb", np.asarray(log_probs, dtype=float), counts)
    return logsumexp(by_function, axis=0) - np.log(len(by_function))


def score(functions: Functions, truth: Truth, exam: Exam) -> dict[int, tuple[float, float]]:
    """Estimate the KL divergence of a method's joint predictions from the truth.

    Args:
        functions: Functions drawn from the method's posterior.
        truth: The truth.
        exam: Test inputs and labels.

    Returns:
        By tau, the mean over batches and its standard error, in nats per batch of tau labels. Single estimates may be
        negative; their expectation is not.
    """
    flat = exam.points.reshape(-1, exam.points.shape[-1])
    shape = (*exam.points.shape[:2], CLASSES)
    said = np.asarray(functions(flat)).reshape(-1, *shape)
    right = truth(flat).reshape(1, *shape)
    found = {}
    for tau, counts in exam.counts.items():
        gap = joint_log_likelihood(right, counts) - joint_log_likelihood(said, counts)
        found[tau] = (float(np.mean(gap)), float(np.std(gap) / len(gap) ** 0.5))
    return found
