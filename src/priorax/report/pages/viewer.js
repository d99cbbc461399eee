// The player: selects the frame and updates the page.

function element(tag, parent, set = {}) {
  const made = Object.assign(document.createElement(tag), set);
  parent.append(made);
  return made;
}

function legend(parent, section) {
  const box = element("div", parent, { className: "legend" });
  if (section.kind === "dots") {
    box.innerHTML = '<span style="color:var(--red)">○ never seen</span><span style="color:var(--accent)">● seen</span>'
      + `<span>┄ prior = value</span><span>${section.unit}</span>`;
    return;
  }
  const top = most[section.kind];
  const low = { visits: "1", spread: "0", value: `−${top}` }[section.kind];
  if (section.kind === "visits") element("span", box, { textContent: "□ never" });
  element("span", box, { textContent: low });
  section.bar = element("canvas", box);
  section.bar.setAttribute("aria-hidden", "true");
  element("span", box, { textContent: section.kind === "visits" ? top : `${top} or more` });
  element("span", box, { textContent: `(${section.unit})` });
}

function build() {
  document.documentElement.style.setProperty("--agents", agents.length);
  for (const agent of agents) {
    const card = element("div", by("agents"), { className: "agent" });
    element("h2", card, { textContent: agent.label });
    agent.caption = element("p", card, { className: "caption" });
    agent.caption.setAttribute("aria-live", "polite");
  }
  const first = element("section", by("sections"), { className: "wide" });
  element("h2", first, { textContent: "Coverage" });
  const what = `Distinct cells visited by the end of each episode, of ${cells} reachable ones.`;
  element("p", first, { textContent: what, className: "soft" });
  by.progress = element("canvas", first);
  by.progress.setAttribute("role", "img");
  const names = agents.map((a, i) => `<span class="${i ? "second" : "first"}">${i ? "┅┅" : "━━"} ${a.label}</span>`);
  element("div", first, { className: "legend", innerHTML: `${names.join("")}<span>★ first treasure</span>` });
  for (const section of SECTIONS) {
    const box = element("section", by("sections"), { className: section.wide ? "wide" : "", id: section.id });
    element("h2", box, { textContent: section.title });
    element("p", box, { textContent: section.text, className: "soft" });
    const pair = element("div", box, { className: "pair" });
    section.canvases = agents.map((agent) => {
      const figure = element("figure", pair);
      element("figcaption", figure, { textContent: agent.short, title: agent.label });
      const canvas = element("canvas", figure);
      canvas.setAttribute("role", "img");
      if (section.read) canvas.addEventListener("pointermove", (event) => point(event, canvas, section, agent));
      canvas.addEventListener("pointerleave", () => { by("tip").hidden = true; });
      if (section.aloud) canvas.said = element("div", figure, { className: "said" });
      return canvas;
    });
    legend(box, section);
  }
}

function point(event, canvas, section, agent) {
  // Show the value of the cell under the pointer.
  const box = canvas.getBoundingClientRect();
  const [row, column] = [event.clientY - box.top, event.clientX - box.left]
    .map((at) => Math.floor((at / box.width) * data.size));
  const tip = by("tip");
  tip.hidden = !(row >= 0 && row < data.size && column >= 0 && column <= row);
  if (tip.hidden) return;
  tip.textContent = `row ${row + 1}, column ${column + 1}: ${section.read(agent, at(agent), place(row, column))}`;
  tip.style.left = `${Math.min(event.clientX + 12, window.innerWidth - 190)}px`;
  tip.style.top = `${event.clientY + 14}px`;
}

let now = 0;
let timer = null;

function at(agent) {
  // The agent's last recorded frame up to the episode shown.
  return agent.moments.filter((m) => m.episode <= episodes[now]).pop() || agent.moments[0];
}

function draw() {
  progress(by.progress, agents, episodes[now], cells);
  const seen = agents.map((a) => `${a.label}: ${a.seen[at(a).episode - 1]} of ${cells} cells seen`);
  by.progress.setAttribute("aria-label", seen.join("; "));
  for (const section of SECTIONS) {
    agents.forEach((agent, i) => {
      const moment = at(agent);
      section.draw(section.canvases[i], agent, moment);
      const canvas = section.canvases[i];
      const said = section.say(agent, moment);
      canvas.setAttribute("aria-label", `${section.title}, ${agent.label}, episode ${moment.episode}: ${said}`);
      if (section.aloud) canvas.said.textContent = agent.prior ? said : "";
    });
    if (section.bar) {
      const [context, width, height] = pen(section.bar, (w) => 12);
      const scale = { visits: look().visits, spread: look().spread, value: look().value }[section.kind];
      for (let x = 0; x < width; x += 1) {
        context.fillStyle = blend(scale, x / width);
        context.fillRect(x, 0, 1, height);
      }
    }
  }
}

function show(moment) {
  now = Math.min(Math.max(moment, 0), episodes.length - 1);
  by("moment").value = now;
  by("moment").setAttribute("aria-valuetext", `episode ${episodes[now]} of ${episodes[episodes.length - 1]}`);
  by("clock").textContent = `episode ${episodes[now]} of ${episodes[episodes.length - 1]}`;
  for (const agent of agents) agent.caption.textContent = caption(agent, at(agent));
  draw();
}

function play(going) {
  window.clearTimeout(timer);
  timer = null;
  if (going && now === episodes.length - 1) show(0);
  const tick = () => {
    show(now + 1);
    if (now === episodes.length - 1) play(false);
    else timer = window.setTimeout(tick, Number(by("speed").value));
  };
  if (going) timer = window.setTimeout(tick, Number(by("speed").value));
  by("play").textContent = going ? "❚❚ Pause" : "▶ Play";
  by("play").setAttribute("aria-pressed", String(going));
  for (const agent of agents) agent.caption.setAttribute("aria-live", going ? "off" : "polite");
}

function key(event) {
  const { tagName } = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || tagName === "SELECT") return;
  const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: episodes.length - 1 };
  if (event.key === " " && tagName !== "BUTTON") play(timer === null);
  else if (event.key in moves) show(moves[event.key]);
  else return;
  event.preventDefault();
}

build();
by("moment").max = episodes.length - 1;
by("moment").addEventListener("input", () => show(Number(by("moment").value)));
by("play").addEventListener("click", () => play(timer === null));
document.addEventListener("keydown", key);
redrawWhenLooksChange(draw);
show(0);
window.viewer = { episodes, agents, show, play, at, now: () => now, playing: () => timer !== null };
