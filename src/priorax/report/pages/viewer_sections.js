// Sections of the page: plots, tooltips and descriptions for screen readers.

function quantile(numbers, share) {
  return Float64Array.from(numbers).sort()[Math.floor(share * (numbers.length - 1))];
}

const everything = agents.flatMap((agent) => agent.moments.flatMap((m) => m.values.flat()));
const most = {
  value: Math.max(1, Math.ceil(quantile(everything.map(Math.abs), 0.97) * 4) / 4),
  spread: Math.max(0.1, Math.ceil(quantile(agents.flatMap((a) => a.moments.flatMap((m) => m.spread)), 0.97) * 10) / 10),
  visits: Math.max(2, quantile(agents.flatMap((a) => a.moments.flatMap((m) => m.visits)), 1)),
};
const limits = [agents.flatMap((a) => (a.prior ? a.prior.flat() : [])), everything].map((numbers) => {
  const [low, high] = [0.002, 0.998].map((share) => Math.round(2 * quantile(numbers, share)) / 2);
  return [Math.min(low, -0.5), Math.max(high, 1)];
});

const paint = {
  visits: (v) => (v === 0 ? look().never : blend(look().visits, Math.log(v) / Math.log(most.visits))),
  spread: (v) => blend(look().spread, v / most.spread),
  value: (v) => blend(look().value, 0.5 + (0.5 * v) / most.value),
};

const ONE = ["single network:", "no spread"];
const BARE = ["no prior"];
const UNIT = "in units of reward; the treasure is 1";
const SECTIONS = [
  { id: "visits", title: "Visits", kind: "visits", unit: "visits before this episode, logarithmic",
    text: "Blank cells were never visited. The red line is this episode's trajectory; the star is the treasure.",
    draw: (canvas, a, m) => map(canvas, a.size, (c) => paint.visits(m.visits[c]),
      { path: m.path, found: m.found, star: a.found.length > 0 && a.found[0] <= m.episode }),
    read: (a, m, c) => count(m.visits[c], "visit"), say: (a, m) => caption(a, m) },
  { id: "spread", title: "Uncertainty", kind: "spread", unit: `standard deviation, ${UNIT}`,
    text: "The spread of the members' values is epistemic uncertainty. Uncertainty about unvisited cells propagates to "
      + "all cells above from which they can be reached, and shrinks once they are visited.",
    draw: (canvas, a, m) => map(canvas, a.size, (c) => paint.spread(m.spread[c]), { note: a.members === 1 ? ONE : 0 }),
    read: (a, m, c) => `spread ${number(m.spread[c])}`,
    say: (a, m) => `spread at the start ${number(m.spread[0])}, largest ${number(Math.max(...m.spread))}` },
  { id: "mean", title: "Mean value", kind: "value", unit: `mean of the members' values, ${UNIT}`,
    text: "An agent that is greedy with respect to the mean does not explore; one that follows a single member does.",
    draw: (canvas, a, m) => map(canvas, a.size, (c) => paint.value(m.mean[c])),
    read: (a, m, c) => `mean ${number(m.mean[c])}`, say: (a, m) => `mean at the start ${number(m.mean[0])}` },
  { id: "belief", title: "Value of the sampled member", kind: "value",
    unit: `value of the sampled member, ${UNIT}`,
    text: "Its optimism about the rows below propagates up to the start: the trajectory follows it.",
    draw: (canvas, a, m) => map(canvas, a.size, (c) => paint.value(m.followed[c]),
      { path: m.path, found: m.found }),
    read: (a, m, c) => `value ${number(m.followed[c])}`,
    say: (a, m) => `member ${m.member + 1}: at the start ${number(m.followed[0])}` },
  { id: "prior", title: "Prior of the sampled member", kind: "value", unit: `prior function times its scale, ${UNIT}`,
    text: "Random and never trained: it differs between members and stays fixed.",
    draw: (canvas, a, m) => map(canvas, a.size, (c) => (a.prior ? paint.value(a.prior[m.member][c]) : look().never),
      { note: a.prior ? 0 : BARE }),
    read: (a, m, c) => (a.prior ? `prior ${number(a.prior[m.member][c])}` : "no prior"),
    say: (a, m) => (a.prior ? `prior of member ${m.member + 1}` : "no prior") },
  { id: "scatter", title: "Prior and value by cell", kind: "dots", unit: UNIT,
    text: "In unvisited cells (red) the value of the sampled member still correlates with its prior. In visited cells "
      + "(blue) the data has replaced the prior.",
    draw: (canvas, a, m) => (a.prior ? scatter(canvas, a, m, limits) : remark(canvas, BARE)),
    say: (a, m) => (a.prior ? agreement(a, m) : "no prior"), aloud: true },
  { id: "members", title: "All members", kind: "value", unit: `value of each member, ${UNIT}`, wide: true,
    text: "One is sampled per episode (outlined) and followed to the end. While members differ, trajectories differ; "
      + "with more data, members agree.",
    draw: (canvas, a, m) => members(canvas, a, m, paint.value), say: (a, m) => `${m.values.length} maps` },
];
