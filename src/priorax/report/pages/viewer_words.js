// Captions of the frame shown.

function number(value) {
  const near = Math.abs(value) < 0.005 ? 0 : value;
  return (near < 0 ? "−" : "") + Math.abs(near).toFixed(2);
}

function count(many, one, more) {
  return `${many.toLocaleString("en")} ${many === 1 ? one : more || one + "s"}`;
}

function facts(agent, moment) {
  // Statistics of this episode.
  const cells = moment.path.map((column, row) => place(row, column));
  let diagonal = 0;
  while (diagonal < moment.path.length && moment.path[diagonal] === diagonal) diagonal += 1;
  return {
    fresh: cells.filter((cell) => moment.visits[cell] === 0).length,
    unseen: moment.visits.filter((times) => times === 0).length,
    diagonal,
    treasures: agent.found.filter((episode) => episode < moment.episode).length,
    hope: moment.followed[0],
  };
}

function way(agent, moment, known) {
  // Describe the trajectory.
  const reach = Math.max(...moment.path) + 1;
  if (moment.found) return "all the way down the diagonal";
  if (known.diagonal > agent.size / 2) return `down the diagonal for ${known.diagonal} of ${agent.size} rows`;
  if (reach <= 3) return "down along the left wall";
  if (reach > agent.size / 2) return `far to the right, to column ${reach} of ${agent.size}`;
  return `down and no further right than column ${reach} of ${agent.size}`;
}

function news(known) {
  if (known.fresh > 0) return `It visits ${count(known.fresh, "new cell")}.`;
  return known.unseen > 0 ? "It visits no new cell." : "Every cell has been visited.";
}

function caption(agent, moment) {
  const known = facts(agent, moment);
  const head = `Episode ${moment.episode}: `;
  const goes = way(agent, moment, known);
  const many = agent.members > 1;
  const who = many ? `member ${moment.member + 1} of ${agent.members} is sampled` : "a single network acts";
  if (moment.found && known.treasures === 0) {
    return `${head}${who}, goes ${goes} and finds the treasure, for the first time in this run. From now on `
      + "the data shows that moving right is worthwhile.";
  }
  if (known.treasures > 0) {
    const again = moment.found ? "takes the treasure" : `misses the treasure: it goes ${goes}`;
    return `${head}${who} and ${again}. Its value at the start is ${number(known.hope)}. The treasure was reached `
      + `${count(known.treasures, "time")} before, and its value propagates up the diagonal.`;
  }
  if (agent.prior) {
    const belief = known.hope > 0.05
      ? `Its value at the start is ${number(known.hope)}. No positive reward was seen yet, so this value comes from `
        + "its prior at cells without data."
      : `Its value at the start is only ${number(known.hope)}: data has replaced most of its prior's optimism.`;
    return `${head}${who} and followed to the end. ${belief} It goes ${goes}. ${news(known)}`;
  }
  if (many) {
    const doubt = moment.spread[0];
    return `${head}${who}. Its value at the start is ${number(known.hope)}, with a standard deviation over members of `
      + `${number(doubt)}; without priors, members differ only by initialisation and bootstrap. It goes ${goes}. `
      + news(known);
  }
  const dither = agent.epsilon ? `, with random actions (ε = ${agent.epsilon})` : "";
  return `${head}${who}${dither}. Its value at the start is ${number(known.hope)}: no positive reward was seen yet, and `
    + `it has no uncertainty about cells without data. It goes ${goes}. ${news(known)}`;
}

function beside(agent, moment) {
  // For each cell: prior and value of the sampled member.
  return moment.followed.map((now, cell) => [agent.prior[moment.member][cell], now]);
}

function agreement(agent, moment) {
  const pairs = beside(agent, moment);
  const parts = [["never seen", false], ["seen", true]].map(([name, seen]) => {
    const found = correlation(pairs.filter((_, cell) => moment.visits[cell] > 0 === seen));
    return `${name}: ${found === null ? "too few cells" : number(found)}`;
  });
  return `correlation with the prior, ${parts.join("; ")}`;
}

function correlation(pairs) {
  const n = pairs.length;
  if (n < 8) return null;
  const [mx, my] = [0, 1].map((axis) => pairs.reduce((sum, pair) => sum + pair[axis], 0) / n);
  let [xx, yy, xy] = [0, 0, 0];
  for (const [x, y] of pairs) {
    xx += (x - mx) ** 2;
    yy += (y - my) ** 2;
    xy += (x - mx) * (y - my);
  }
  return xy / Math.sqrt(xx * yy || 1);
}
