// Draws one step of the ranks on a canvas over its picture, to zoom and to move along. Times are in the units of the data.
(() => {
  "use strict";
  const shade = (() => {
    let known = new Map();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { known = new Map(); });
    return (name) => {
      if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
      return known.get(name);
    };
  })();
  const sizes = ["B", "KiB", "MiB", "GiB", "TiB"];
  const size = (bytes) => {
    let at = 0;
    while (bytes >= 1024 && at < sizes.length - 1) { bytes /= 1024; at += 1; }
    return `${+bytes.toPrecision(4)} ${sizes[at]}`;
  };
  const time = (ns) => (ns >= 1e6 ? `${(ns / 1e6).toPrecision(4)} ms` : `${+(ns / 1e3).toPrecision(3)} µs`);

  function decoded(lane) {
    const count = lane.spans.length / 3;
    const [start, end, reach] = [new Float64Array(count), new Float64Array(count), new Float64Array(count)];
    const what = new Int32Array(count);
    for (let at = 0, begin = 0, far = 0; at < count; at += 1) {
      begin += lane.spans[3 * at];
      start[at] = begin;
      end[at] = begin + lane.spans[3 * at + 1];
      what[at] = lane.spans[3 * at + 2];
      reach[at] = far = Math.max(far, end[at]); // what begins earlier may end later
    }
    return { ...lane, start, end, reach, what, size: count };
  }

  // The first span that may still be seen at an instant: binary search, since reach never falls.
  function firstAt(lane, instant) {
    let [low, high] = [0, lane.size];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.reach[middle] < instant) low = middle + 1; else high = middle;
    }
    return low;
  }

  function show(figure, data) {
    const lanes = data.lanes.map(decoded);
    const canvas = document.createElement("canvas");
    const tip = document.createElement("div");
    const said = document.createElement("p");
    const pen = canvas.getContext("2d");
    tip.className = "tip";
    tip.hidden = true;
    said.className = "range";
    said.setAttribute("aria-live", "polite");
    figure.querySelector(".stage").append(canvas, tip);
    figure.append(said);
    figure.querySelector(".keys").hidden = false;
    const ranks = lanes.filter((one) => one.rank).length;
    let [from, to] = [0, data.length];
    const narrowest = Math.max(20, data.length / 200000);
    const plot = () => canvas.clientWidth - data.left;
    const at = (x) => from + ((x - data.left) / plot()) * (to - from);
    const colourOf = (lane, index) => {
      if (lane.kind === "parts") return shade(data.colours.parts[lane.what[index]]);
      if (lane.kind === "kernels") return shade(data.colours.names[lane.what[index]]);
      if (lane.kind === "collectives") return shade(lane.wait[index] < 0 ? data.colours.unsplit : data.colours.transfer);
      return shade(data.colours[lane.kind]);
    };

    function box(lane, begin, over, colour, scale) {
      const left = Math.max(data.left, data.left + (begin - from) * scale);
      const right = Math.min(canvas.clientWidth, data.left + (over - from) * scale);
      if (right < data.left || left > canvas.clientWidth) return 0;
      pen.fillStyle = colour;
      pen.fillRect(left, lane.top, Math.max(right - left, 0.4), lane.height);
      return right - left;
    }

    function label(lane, index, width, left) {
      const name = data.names[lane.what[index]];
      const room = Math.floor((width - 6) / 5.8);
      if (lane.kind === "parts" || lane.height < 11 || room < 4) return;
      pen.fillStyle = lane.kind === "phases" ? shade("--ink") : shade("--surface");
      pen.font = "10px system-ui, sans-serif";
      pen.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, left + 3, lane.top + lane.height / 2 + 3.5);
    }

    function draw() {
      const [width, ratio] = [figure.querySelector(".stage").clientWidth, window.devicePixelRatio || 1];
      if (width <= data.left) return; // folded: nobody sees it
      canvas.style.height = `${data.height}px`;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(data.height * ratio);
      figure.classList.add("live");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      const scale = plot() / (to - from);
      pen.font = "11px system-ui, sans-serif";
      const ticks = Math.max(2, Math.min(8, Math.floor(plot() / 110)));
      for (let tick = 0; tick <= ticks; tick += 1) {
        const x = data.left + (plot() * tick) / ticks;
        pen.fillStyle = shade("--grid");
        pen.fillRect(Math.min(x, width - 1), data.top - 6, 1, data.height);
        pen.fillStyle = shade("--muted");
        pen.textAlign = tick === 0 ? "left" : tick === ticks ? "right" : "center";
        pen.fillText(time((from + ((to - from) * tick) / ticks) * data.unit), x, 11);
      }
      for (const lane of lanes) {
        pen.fillStyle = shade("--ink");
        pen.textAlign = "left";
        pen.font = "600 11px system-ui, sans-serif";
        if (lane.rank) pen.fillText(lane.rank, 0, lane.top + lane.height / 2 + 4, data.left - 66);
        pen.font = "10.5px system-ui, sans-serif";
        pen.fillStyle = shade("--muted");
        pen.textAlign = "right";
        pen.fillText(lane.label, data.left - 8, lane.top + lane.height / 2 + 3.5);
        pen.textAlign = "left";
        for (let one = firstAt(lane, from); one < lane.size && lane.start[one] <= to; one += 1) {
          const wait = lane.wait ? Math.max(lane.wait[one], 0) : 0;
          const wide = box(lane, lane.start[one] + wait, lane.end[one], colourOf(lane, one), scale);
          if (wait) box(lane, lane.start[one], lane.start[one] + wait, shade(data.colours.wait), scale);
          if (wide > 30) label(lane, one, wide, Math.max(data.left, data.left + (lane.start[one] + wait - from) * scale));
        }
      }
      for (const [begin, over, top, height, above, text] of data.marks) {
        if (over < from || begin > to) continue;
        const left = Math.max(data.left, data.left + (begin - from) * scale);
        const right = Math.min(width, data.left + (over - from) * scale);
        pen.strokeStyle = shade("--ink");
        pen.lineWidth = 2;
        pen.strokeRect(left, top - 1, Math.max(right - left, 2), height + 2);
        pen.fillStyle = shade("--ink");
        pen.font = "600 10px system-ui, sans-serif";
        pen.textAlign = left > width - 120 ? "right" : "left";
        pen.fillText(text, Math.min(left, width - 2), above);
        pen.textAlign = "left";
      }
      const whole = to - from >= data.length * 0.999;
      const all = ranks > 1 ? "From the first rank's begin to the last one's end" : "The whole step";
      said.textContent = whole ? `${all}, ${time(data.length * data.unit)}.`
        : `${time(from * data.unit)} to ${time(to * data.unit)}: ${time((to - from) * data.unit)} of it.`;
    }

    function look(begin, span) {
      span = Math.min(Math.max(span, narrowest), data.length);
      from = Math.min(Math.max(begin, 0), data.length - span);
      to = from + span;
      tip.hidden = true;
      draw();
    }
    const zoom = (factor, around) => look(around - (around - from) * factor, (to - from) * factor);
    const move = (share) => look(from + share * (to - from), to - from);
    const middle = () => (from + to) / 2;

    function lineOf(text, strong) {
      const line = document.createElement(strong ? "b" : "span");
      line.textContent = text; // names are text, never markup
      return line;
    }

    function tell(x, y) {
      const lane = lanes.find((one) => y >= one.top - 1 && y <= one.top + one.height + 1);
      tip.hidden = true;
      if (!lane || x < data.left) return;
      const [instant, near] = [at(x), ((to - from) / plot()) * 2];
      let found = -1;
      for (let one = firstAt(lane, instant - near); one < lane.size && lane.start[one] <= instant + near; one += 1) {
        const inside = lane.start[one] <= instant && instant <= lane.end[one];
        if (inside || found < 0 && lane.end[one] >= instant - near) found = one;
      }
      if (found < 0) return;
      const name = lane.kind === "parts" ? data.parts[lane.what[found]] : data.names[lane.what[found]];
      const count = lane.count ? lane.count[found] : 1;
      const lines = [lineOf(count > 1 ? `${count}, most of it ${name}` : name, true)];
      if (lane.kind === "kernels") lines.push(lineOf(data.kinds[lane.what[found]]));
      lines.push(lineOf(`${time((lane.end[found] - lane.start[found]) * data.unit)} at ${time(lane.start[found] * data.unit)}`));
      if (lane.wait) {
        lines.push(lineOf(lane.wait[found] < 0 ? "waiting and moving cannot be told apart"
          : `of it ${time(lane.wait[found] * data.unit)} waiting`));
        if (lane.bytes[found] >= 0) lines.push(lineOf(size(lane.bytes[found])));
      }
      tip.replaceChildren(...lines);
      tip.hidden = false;
      tip.style.left = `${Math.max(0, Math.min(x + 12, canvas.clientWidth - tip.offsetWidth - 4))}px`;
      tip.style.top = `${lane.top + lane.height + 6}px`;
    }

    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => {
      dragged = { x: event.offsetX, from };
      canvas.setPointerCapture(event.pointerId);
      figure.focus({ preventScroll: true });
    });
    canvas.addEventListener("pointermove", (event) => {
      if (dragged === null) tell(event.offsetX, event.offsetY);
      else look(dragged.from - ((event.offsetX - dragged.x) / plot()) * (to - from), to - from);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { dragged = null; });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("dblclick", (event) => zoom(0.5, at(event.offsetX)));
    canvas.addEventListener("wheel", (event) => {
      if (!event.shiftKey) return; // the plain wheel scrolls the page
      event.preventDefault();
      zoom(Math.exp((event.deltaY || event.deltaX) / 300), at(event.offsetX));
    }, { passive: false });
    const keys = {
      ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), "+": () => zoom(0.6, middle()), "=": () => zoom(0.6, middle()),
      "-": () => zoom(1 / 0.6, middle()), 0: () => look(0, data.length), Home: () => look(0, data.length),
    };
    figure.addEventListener("keydown", (event) => {
      if (!Object.hasOwn(keys, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    for (const button of figure.querySelectorAll("button[data-key]")) {
      button.addEventListener("click", () => keys[button.dataset.key]());
    }
    window.addEventListener("resize", draw);
    document.addEventListener("toggle", draw, true);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    draw();
  }

  const drawings = JSON.parse(document.getElementById("timelines").textContent);
  for (const [id, data] of Object.entries(drawings)) show(document.getElementById(id), data);
})();
