// What one sees, in plain words: captions that change with the moment.

function number(value) {
  const near = Math.abs(value) < 0.005 ? 0 : value;
  return (near < 0 ? "−" : "") + Math.abs(near).toFixed(2);
}

function count(many, one, more) {
  return `${many.toLocaleString("en")} ${many === 1 ? one : more || one + "s"}`;
}

function facts(agent, moment) {
  // What happened in this episode.
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
  // Where it goes, without saying why.
  const reach = Math.max(...moment.path) + 1;
  if (moment.found) return "all the way down the diagonal";
  if (known.diagonal > agent.size / 2) return `down the diagonal for ${known.diagonal} of ${agent.size} rows`;
  if (reach <= 3) return "down along the left wall";
  if (reach > agent.size / 2) return `far to the right, to column ${reach} of ${agent.size}`;
  return `down and no further right than column ${reach} of ${agent.size}`;
}

function news(known) {
  if (known.fresh > 0) return `It sees ${count(known.fresh, "cell")} for the first time.`;
  return known.unseen > 0 ? "It sees nothing new." : "Every cell has been seen by now.";
}

function caption(agent, moment) {
  const known = facts(agent, moment);
  const head = `Episode ${moment.episode}: `;
  const goes = way(agent, moment, known);
  const many = agent.members > 1;
  const who = many ? `member ${moment.member + 1} of ${agent.members} is drawn` : "the one network decides";
  if (moment.found && known.treasures === 0) {
    return `${head}${who}, goes ${goes} and finds the treasure, for the first time in this run. From now on `
      + "data, not doubt, says that right is worth it.";
  }
  if (known.treasures > 0) {
    const again = moment.found ? "takes the treasure" : `misses the treasure: it goes ${goes}`;
    return `${head}${who} and ${again}. It expects ${number(known.hope)} at the start. The treasure was reached `
      + `${count(known.treasures, "time")} before, and what the members learned from it spreads up the diagonal.`;
  }
  if (agent.prior) {
    const belief = known.hope > 0.05
      ? `It hopes for ${number(known.hope)}. No reward was ever seen, so this hope comes from its prior, `
        + "from cells that data has not yet spoken about."
      : `Its hope is nearly used up (${number(known.hope)}): little is left that could still surprise it.`;
    return `${head}${who} and followed to the end. ${belief} It goes ${goes}. ${news(known)}`;
  }
  if (many) {
    const doubt = moment.spread[0];
    return `${head}${who}. It expects ${number(known.hope)}; the members differ by ${number(doubt)} there, and without `
      + `priors only their start and their share of the data made them differ. It goes ${goes}. ${news(known)}`;
  }
  const dither = agent.epsilon ? `, but for a random step now and then (ε = ${agent.epsilon})` : "";
  return `${head}${who}${dither}. It expects ${number(known.hope)}: nothing has ever been paid, and it has no doubt `
    + `about what it has not seen. It goes ${goes}. ${news(known)}`;
}

function beside(agent, moment) {
  // For each cell: what the drawn member's prior says, and what it believes.
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
