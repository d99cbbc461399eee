// Plots of one agent in one frame.

function place(row, column) {
  return (row * (row + 1)) / 2 + column;
}

function grid(context, size, left, top, side, color) {
  // The reachable cells, on and below the diagonal.
  const step = side / size;
  const gap = step > 7 ? 0.6 : 0;
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column <= row; column += 1) {
      context.fillStyle = color(place(row, column));
      context.fillRect(left + column * step, top + row * step, step - gap, step - gap);
    }
  }
}

function stairs(context, size, left, top, side, color, width) {
  const step = side / size;
  context.beginPath();
  context.moveTo(left, top);
  for (let row = 0; row < size; row += 1) {
    context.lineTo(left + (row + 1) * step, top + row * step);
    context.lineTo(left + (row + 1) * step, top + (row + 1) * step);
  }
  context.lineTo(left, top + side);
  context.closePath();
  context.strokeStyle = color;
  context.lineWidth = width;
  context.stroke();
}

function track(context, size, side, path, found) {
  const step = side / size;
  for (const [color, width] of [[look().halo, 5], [look().red, 2.4]]) {
    context.beginPath();
    path.forEach((column, row) => context.lineTo((column + 0.5) * step, (row + 0.5) * step));
    if (found) context.lineTo(side - 2, side - 2);
    context.strokeStyle = color;
    context.lineWidth = width;
    context.stroke();
  }
}

function star(context, x, y, radius, filled) {
  context.beginPath();
  for (let i = 0; i < 10; i += 1) {
    const [far, turn] = [i % 2 ? radius * 0.45 : radius, (Math.PI * i) / 5 - Math.PI / 2];
    context.lineTo(x + far * Math.cos(turn), y + far * Math.sin(turn));
  }
  context.closePath();
  context.fillStyle = filled ? look().gold : look().paper;
  context.fill();
  context.strokeStyle = look().ink;
  context.lineWidth = 1;
  context.stroke();
}

function map(canvas, size, color, options = {}) {
  const [context, width] = pen(canvas, 1);
  const side = width - 3;
  context.translate(1.5, 1.5);
  grid(context, size, 0, 0, side, color);
  stairs(context, size, 0, 0, side, look().line, 1);
  if (options.path) track(context, size, side, options.path, options.found);
  if (options.star !== undefined) star(context, side - side / size / 2, side - side / size / 2, 8, options.star);
  if (options.note) {
    const size = Math.min(13, width / 15);
    options.note.forEach((line, i) => words(context, line, side, 14 + i * (size + 4), { align: "right", size }));
  }
}

function members(canvas, agent, moment, color) {
  const many = moment.values.length;
  const columns = Math.min(many, 5);
  const rows = Math.ceil(many / columns);
  const gap = 8;
  const [context, width] = pen(canvas, (w) => {
    const side = Math.min((w - gap * (columns - 1)) / columns, 240);
    return rows * (side + 18);
  });
  const side = Math.min((width - gap * (columns - 1)) / columns, 240) - 4;
  moment.values.forEach((values, k) => {
    const [left, top] = [(k % columns) * (side + 4 + gap) + 2, Math.floor(k / columns) * (side + 22) + 2];
    const active = k === moment.member;
    grid(context, agent.size, left, top, side, (cell) => color(values[cell]));
    stairs(context, agent.size, left, top, side, active ? look().red : look().line, active ? 3 : 1);
    const name = many > 1 ? `${k + 1}` : "single network";
    const style = { align: "right", size: 11, bold: active, color: active ? look().red : look().soft };
    words(context, name, left + side, top + 11, style);
  });
}

function remark(canvas, lines) {
  const [context, width] = pen(canvas, 1);
  lines.forEach((line, i) => words(context, line, width / 2, width * 0.4 + i * 18, { align: "center", size: 13 }));
}

function scatter(canvas, agent, moment, limits) {
  // Prior against current value of the member, one dot per cell.
  const [context, width, height] = pen(canvas, 1);
  const [left, top, right, bottom] = [34, 8, width - 6, height - 34];
  const share = (v, [low, high]) => Math.min(Math.max((v - low) / (high - low), 0), 1);
  const x = (v) => left + share(v, limits[0]) * (right - left);
  const y = (v) => bottom - share(v, limits[1]) * (bottom - top);
  const [low, high] = [Math.max(limits[0][0], limits[1][0]), Math.min(limits[0][1], limits[1][1])];
  context.strokeStyle = look().line;
  context.lineWidth = 1;
  context.strokeRect(left, top, right - left, bottom - top);
  for (const [from, to, dash] of [[[low, low], [high, high], [4, 4]], [[limits[0][0], 0], [limits[0][1], 0], []]]) {
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x(from[0]), y(from[1]));
    context.lineTo(x(to[0]), y(to[1]));
    context.stroke();
  }
  context.setLineDash([]);
  const sign = (tick) => `${tick}`.replace("-", "−");
  for (let tick = Math.ceil(limits[0][0]); tick <= limits[0][1]; tick += 1) {
    words(context, sign(tick), x(tick), bottom + 14, { align: "center", size: 11 });
  }
  for (let tick = Math.ceil(limits[1][0]); tick <= limits[1][1]; tick += 1) {
    words(context, sign(tick), left - 5, y(tick) + 4, { align: "right", size: 11 });
  }
  words(context, "prior →", (left + right) / 2, height - 4, { align: "center", size: 11 });
  context.save();
  context.translate(10, (top + bottom) / 2);
  context.rotate(-Math.PI / 2);
  words(context, "value →", 0, 0, { align: "center", size: 11 });
  context.restore();
  const pairs = beside(agent, moment);
  for (const seen of [true, false]) {
    pairs.forEach(([prior, now], cell) => {
      if (moment.visits[cell] > 0 !== seen) return;
      context.beginPath();
      context.arc(x(prior), y(now), 3.1, 0, 2 * Math.PI);
      context.fillStyle = seen ? look().mean : look().paper;
      context.strokeStyle = seen ? look().mean : look().red;
      context.lineWidth = 1.5;
      context.fill();
      context.stroke();
    });
  }
}

function progress(canvas, agents, episode, cells) {
  const [context, width, height] = pen(canvas, (w) => Math.min(Math.max(w * 0.2, 130), 190));
  const [left, top, right, bottom] = [36, 12, width - 8, height - 32];
  const last = Math.max(...agents.map((agent) => agent.seen.length));
  const x = (e) => left + (e / last) * (right - left);
  const y = (n) => bottom - (n / cells) * (bottom - top);
  context.strokeStyle = look().line;
  context.lineWidth = 1;
  for (const part of [0, 0.5, 1]) {
    context.beginPath();
    context.moveTo(left, y(part * cells));
    context.lineTo(right, y(part * cells));
    context.stroke();
    words(context, `${Math.round(part * cells)}`, left - 5, y(part * cells) + 4, { align: "right", size: 11 });
  }
  words(context, "0", left, bottom + 15, { size: 11, align: "center" });
  words(context, `${last} episodes`, right, bottom + 15, { size: 11, align: "right" });
  agents.forEach((agent, i) => {
    const color = i ? look().second : look().first;
    context.beginPath();
    context.moveTo(x(0), y(0));
    agent.seen.forEach((seen, e) => context.lineTo(x(e + 1), y(seen)));
    context.strokeStyle = color;
    context.lineWidth = 2.2;
    context.setLineDash(i ? [6, 4] : []);
    context.stroke();
    context.setLineDash([]);
    if (agent.found.length) star(context, x(agent.found[0]), y(agent.seen[agent.found[0] - 1]), 8, true);
  });
  context.beginPath();
  context.moveTo(x(episode), top - 6);
  context.lineTo(x(episode), bottom);
  context.strokeStyle = look().red;
  context.lineWidth = 1.6;
  context.stroke();
  const align = x(episode) > width * 0.8 ? "right" : x(episode) < width * 0.2 ? "left" : "center";
  words(context, `episode ${episode}`, x(episode), bottom + 29, { align, size: 11, color: look().red });
}
