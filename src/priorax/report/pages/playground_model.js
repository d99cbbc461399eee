// Lemma 3, exactly: linear-Gaussian regression on fixed features, by Cholesky.

const LENGTH = 0.5; // length scale, in units of x
const WAVES = 40; // number of frequencies, each with a cosine and a sine

function normalQuantile(p) {
  // Bisection of the distribution function, which is integrated by Simpson's rule; called a few dozen times.
  const density = (t) => Math.exp((-t * t) / 2) / Math.sqrt(2 * Math.PI);
  const below = (z) => {
    let sum = density(0) + density(z);
    for (let i = 1; i < 200; i += 1) sum += density((z * i) / 200) * (i % 2 ? 4 : 2);
    return 0.5 + (sum * z) / 600;
  };
  let [low, high] = [-8, 8];
  for (let i = 0; i < 60; i += 1) {
    const middle = (low + high) / 2;
    if (below(middle) < p) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

// Frequencies at even quantiles of the half-normal distribution: the mixture of waves is a squared-exponential process.
const FREQUENCIES = Array.from({ length: WAVES }, (_, j) => normalQuantile(0.5 + (j + 0.5) / (2 * WAVES)) / LENGTH);

function features(x) {
  const out = new Float64Array(2 * WAVES);
  for (let j = 0; j < WAVES; j += 1) {
    out[2 * j] = Math.cos(FREQUENCIES[j] * x) / Math.sqrt(WAVES);
    out[2 * j + 1] = Math.sin(FREQUENCIES[j] * x) / Math.sqrt(WAVES);
  }
  return out;
}

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i += 1) sum += a[i] * b[i];
  return sum;
}

function generator(...seeds) {
  // Deterministic uniform numbers from integer seeds.
  let state = 0x9e3779b9;
  for (const seed of seeds) {
    state = Math.imul(state ^ (seed + 0x7f4a7c15), 0x85ebca6b);
    state = Math.imul(state ^ (state >>> 13), 0xc2b2ae35);
    state ^= state >>> 16;
  }
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function normals(many, ...seeds) {
  const uniform = generator(...seeds);
  return Float64Array.from({ length: many }, () => {
    const radius = Math.sqrt(-2 * Math.log(1 - uniform()));
    return radius * Math.cos(2 * Math.PI * uniform());
  });
}

function cholesky(matrix, n) {
  // Cholesky factor in the lower triangle, in place.
  for (let i = 0; i < n; i += 1) {
    for (let j = 0; j <= i; j += 1) {
      let sum = matrix[i * n + j];
      for (let k = 0; k < j; k += 1) sum -= matrix[i * n + k] * matrix[j * n + k];
      matrix[i * n + j] = i === j ? Math.sqrt(sum) : sum / matrix[j * n + j];
    }
  }
  return matrix;
}

function forward(lower, n, right) {
  const out = Float64Array.from(right);
  for (let i = 0; i < n; i += 1) {
    for (let k = 0; k < i; k += 1) out[i] -= lower[i * n + k] * out[k];
    out[i] /= lower[i * n + i];
  }
  return out;
}

function backward(lower, n, right) {
  const out = Float64Array.from(right);
  for (let i = n - 1; i >= 0; i -= 1) {
    for (let k = i + 1; k < n; k += 1) out[i] -= lower[k * n + i] * out[k];
    out[i] /= lower[i * n + i];
  }
  return out;
}

function posterior(points, scale, noise) {
  // Factored precision of the weights, and solvers with it.
  const n = 2 * WAVES;
  const rows = points.map((point) => features(point.x));
  const precision = new Float64Array(n * n);
  for (let i = 0; i < n; i += 1) {
    for (let j = 0; j <= i; j += 1) {
      for (const row of rows) precision[i * n + j] += (row[i] * row[j]) / (noise * noise);
    }
    precision[i * n + i] += 1 / (scale * scale);
  }
  const lower = cholesky(precision, n);
  const solve = (targets) => {
    const right = new Float64Array(n);
    rows.forEach((row, i) => { for (let j = 0; j < n; j += 1) right[j] += (row[j] * targets[i]) / (noise * noise); });
    return backward(lower, n, forward(lower, n, right));
  };
  const std = (x) => {
    const half = forward(lower, n, features(x));
    return Math.sqrt(dot(half, half));
  };
  return { rows, solve, std, mean: solve(points.map((point) => point.y)) };
}

function member(exact, points, k, settings) {
  // Weights of member k's prior, and of the whole member. The noise of a point does not change when it is dragged.
  const { scale, noise, seed, bare } = settings;
  const prior = normals(2 * WAVES, seed, k, 0).map((draw) => (bare ? 0 : scale * draw));
  const targets = points.map((point, i) =>
    point.y + noise * normals(1, seed, k, point.id)[0] - dot(exact.rows[i], prior));
  return { prior, whole: exact.solve(targets).map((weight, j) => weight + prior[j]) };
}

function ensemble(points, settings, xs) {
  // Plotted values at each x: members, their mean and standard deviation, and exact Bayes.
  const exact = posterior(points, settings.scale, settings.noise);
  const at = xs.map(features);
  const drawn = Array.from({ length: settings.members }, (_, k) => member(exact, points, k, settings));
  const curves = drawn.map(({ whole }) => at.map((row) => dot(row, whole)));
  const mean = xs.map((_, i) => curves.reduce((sum, curve) => sum + curve[i], 0) / curves.length);
  const std = xs.map((_, i) =>
    Math.sqrt(curves.reduce((sum, curve) => sum + (curve[i] - mean[i]) ** 2, 0) / curves.length));
  return {
    xs, curves, mean, std,
    prior: at.map((row) => dot(row, drawn[0].prior)),
    exactMean: at.map((row) => dot(row, exact.mean)),
    exactStd: xs.map(exact.std),
  };
}
