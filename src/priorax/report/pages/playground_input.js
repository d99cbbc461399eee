// Touch, mouse and keyboard input.

function add(x, y) {
  state.points.push({ x, y, id: state.next++ });
  state.chosen = state.points.length - 1;
  update();
}

function remove(i) {
  if (i < 0 || i >= state.points.length) return;
  state.points.splice(i, 1);
  state.chosen = Math.min(i, state.points.length - 1);
  update();
}

function addInLargestGap() {
  const ends = [RANGE.x[0], ...state.points.map((point) => point.x).sort((a, b) => a - b), RANGE.x[1]];
  const widths = ends.slice(1).map((x, i) => x - ends[i]);
  const i = widths.indexOf(Math.max(...widths));
  add((ends[i] + ends[i + 1]) / 2, 0);
}

function listen() {
  const plot = by("plot");
  let held = -1;
  let wasDown = false; // pressed on a point: the following click must not add one
  let tapped = { time: -1e9, id: -1 };
  plot.addEventListener("pointerdown", (event) => {
    held = where(event).near;
    wasDown = held >= 0;
    if (held < 0) return;
    if (event.pointerType === "touch") { // no double-click events while dragging
      const { id } = state.points[held];
      const twice = id === tapped.id && event.timeStamp - tapped.time < 350;
      tapped = { time: event.timeStamp, id };
      if (twice) {
        remove(held);
        held = -1;
        return;
      }
    }
    state.chosen = held;
    plot.setPointerCapture(event.pointerId);
    update();
  });
  plot.addEventListener("pointermove", (event) => {
    const at = where(event);
    plot.style.cursor = held >= 0 ? "grabbing" : at.near >= 0 ? "grab" : "crosshair";
    if (held < 0) return;
    Object.assign(state.points[held], { x: at.x, y: at.y });
    update();
  });
  for (const end of ["pointerup", "pointercancel"]) plot.addEventListener(end, () => { held = -1; });
  plot.addEventListener("click", (event) => {
    const at = where(event);
    if (!wasDown) add(at.x, at.y);
  });
  plot.addEventListener("dblclick", (event) => remove(where(event).near));
  plot.addEventListener("touchstart", (event) => {
    const touch = event.touches[0]; // touching a point drags it; elsewhere the page scrolls
    const over = where({ clientX: touch.clientX, clientY: touch.clientY, pointerType: "touch" }).near >= 0;
    if (over && event.touches.length === 1) event.preventDefault();
  }, { passive: false });
  plot.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
    const many = state.points.length;
    const point = state.points[state.chosen];
    if (event.key in moves && point) {
      point.x = clamp(point.x + moves[event.key][0], RANGE.x);
      point.y = clamp(point.y + moves[event.key][1], RANGE.y);
    } else if (event.key === "PageDown" && many) state.chosen = (state.chosen + 1) % many;
    else if (event.key === "PageUp" && many) state.chosen = (Math.max(state.chosen, 0) + many - 1) % many;
    else if (event.key === "Delete" || event.key === "Backspace") remove(state.chosen);
    else if (event.key === "Insert" || event.key === "+") addInLargestGap();
    else return;
    event.preventDefault();
    update();
  });
  for (const name of ["scale", "members", "noise"]) {
    by(name).addEventListener("input", () => { state[name] = Number(by(name).value); update(); });
  }
  for (const name of ["bare", "exact"]) {
    by(name).addEventListener("change", () => { state[name] = by(name).checked; update(); });
  }
  by("redraw").addEventListener("click", () => { state.seed += 1; update(); });
  by("add").addEventListener("click", addInLargestGap);
  by("remove").addEventListener("click", () => remove(state.chosen >= 0 ? state.chosen : state.points.length - 1));
  by("sets").addEventListener("change", () => { load(by("sets").value); update(); });
}
