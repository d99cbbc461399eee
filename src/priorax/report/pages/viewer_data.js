// The recordings, unpacked.

const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);

function decode(packed) {
  // Dequantise numbers stored as bytes between their minimum and maximum.
  const text = atob(packed.bytes);
  return Array.from(text, (c) => packed.low + ((packed.high - packed.low) * c.charCodeAt(0)) / 255);
}

function rows(numbers, width) {
  return Array.from({ length: numbers.length / width }, (_, k) => numbers.slice(k * width, (k + 1) * width));
}

const cells = (data.size * (data.size + 1)) / 2;
const agents = data.agents.map((agent) => ({
  ...agent,
  size: data.size,
  prior: agent.prior && rows(decode(agent.prior), cells),
  moments: agent.moments.map((moment) => ({
    ...moment,
    followed: decode(moment.followed),
    values: rows(decode(moment.values), cells),
    mean: decode(moment.mean),
    spread: decode(moment.spread),
  })),
}));
const episodes = [...new Set(agents.flatMap((agent) => agent.moments.map((m) => m.episode)))].sort((a, b) => a - b);
