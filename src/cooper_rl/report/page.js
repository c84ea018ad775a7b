// The page's only script: values under the pointer, zoom, logarithmic axes, pictures, the filter of rollouts,
// and a page of `cooper-rl watch` that follows the run. Without it the figures are still pictures with the same
// content and every rollout is listed. It asks nobody but the page's own address, and only there.
"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const DASHES = { solid: "", dashed: "6 4", dotted: "1.5 3.5", dashdot: "8 3 1.5 3" };
  const MARKERS = {
    o: "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0", s: "M-3-3h6v6h-6z", D: "M0-4l4 4l-4 4l-4-4z", "^": "M0-4l4 7h-8z",
    v: "M0 4l4-7h-8z", P: "M-1.3-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",
    X: "M-4-2.4l1.6-1.6l2.4 2.4l2.4-2.4l1.6 1.6l-2.4 2.4l2.4 2.4l-1.6 1.6l-2.4-2.4l-2.4 2.4l-1.6-1.6l2.4-2.4z",
  };
  const HATCHES = ["", "M0 6L6 0", "M0 3H6", "M0 0L6 6", "M0 6L6 0M0 0L6 6"];
  const views = new Map(); // title of a figure -> how it is looked at, kept while a page follows its run

  const show = (value) =>
    value !== 0 && Math.abs(value) < 1e-3 ? (+value.toPrecision(3)).toExponential() : String(+value.toPrecision(4));
  function make(name, attributes, parent, text) {
    const node = name.startsWith("html:")
      ? document.createElement(name.slice(5)) : document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  }
  const paint = (color, kind = "stroke") => `${kind}:var(--${color})`;

  function ticks(low, high, count, isLog) {
    if (isLog) {
      const between = (factors) => {
        const found = [];
        for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
          for (const factor of factors) found.push(factor * 10 ** power);
        return found.filter((value) => value >= low && value <= high);
      };
      const tens = between([1]);
      return tens.length >= 3 ? tens : between([1, 2, 5]);
    }
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) || 10);
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) found.push(value);
    return found;
  }

  function chart(figure) {
    const data = JSON.parse(figure.dataset.plot), box = figure.querySelector(".plot");
    const view = views.get(data.title) || { x: null, isLog: false, hidden: new Set() };
    views.set(data.title, view);
    const lines = data.lines.map((line, number) => ({ ...line, number }));
    box.replaceChildren();
    box.removeAttribute("role");
    const tip = make("html:div", { class: "tip", role: "status" });
    let frame, start = null;

    const bar = make("html:div", { class: "tools" });
    const isLogged = lines.some((line) => line.kind === "line") && lines.some((line) => line.y.some((y) => y > 0));
    const log = make("html:button", { type: "button", "aria-pressed": view.isLog }, isLogged && bar, "log");
    const all = make("html:button", { type: "button" }, bar, "whole");
    const save = make("html:button", { type: "button" }, bar, "PNG");
    log.onclick = () => { view.isLog = !view.isLog; log.setAttribute("aria-pressed", view.isLog); draw(); };
    all.onclick = () => { view.x = null; draw(); };
    save.onclick = () => picture(box.querySelector("svg"), data.title);
    figure.querySelector(".tools")?.remove();
    figure.querySelector("h3").after(bar);

    function heights(shown) { // tops and bottoms of what is shown; areas stand on each other
      const sums = [];
      return shown.map((line) => {
        if (line.kind !== "area") return { line, tops: line.y, bottoms: null };
        const bottoms = line.y.map((_, place) => sums[place] || 0);
        line.y.forEach((value, place) => { sums[place] = bottoms[place] + value; });
        return { line, tops: bottoms.map((value, place) => value + line.y[place]), bottoms };
      });
    }
    function draw() {
      const width = Math.max(260, box.clientWidth), shown = lines.filter((line) => !view.hidden.has(line.label));
      const parts = heights(shown);
      const names = lines.filter((line, place) => lines.findIndex((other) => other.label === line.label) === place);
      let row = 0, used = 0;
      const places = names.map((line) => {
        const size = 44 + 6.4 * line.label.length;
        if (used && used + size > width) { row++; used = 0; }
        used += size;
        return [used - size, row * 18 + 12];
      });
      const top = row * 18 + 32, left = data.y_label ? 58 : 46, right = width - 12;
      const height = Math.round(Math.min(300, Math.max(190, width * 0.5))) + top;
      const bottom = height - (data.x_label ? 36 : 24);
      const xs = shown.flatMap((line) => line.x);
      const ends = data.ticks.length ? [data.ticks[0][0] - 0.4, data.ticks[data.ticks.length - 1][0] + 0.4]
        : [Math.min(...xs), Math.max(...xs)];
      let [x0, x1] = view.x || ends;
      if (!(x1 > x0)) { x0 -= 0.5; x1 += 0.5; }
      const isIn = (line, place) => line.x[place] >= x0 && line.x[place] <= x1;
      const values = parts.flatMap(({ line, tops }) => [tops, line.low, line.high, line.raw].flatMap(
        (each) => each.filter((value, place) => isIn(line, place) && (!view.isLog || value > 0))));
      let y0 = Math.min(...values), y1 = Math.max(...values);
      if (!values.length) { y0 = view.isLog ? 0.1 : 0; y1 = 1; }
      const pad = (y1 - y0 || Math.abs(y1) || 1) * 0.05;
      if (view.isLog) { y0 /= 1.15; y1 *= 1.15; }
      else if (data.limits && !view.x) [y0, y1] = data.limits;
      else {
        y1 += pad;
        y0 = parts.some((part) => part.bottoms) ? 0
          : data.floor !== null && !view.x ? Math.min(data.floor, y0) : y0 - pad;
      }
      const scale = view.isLog ? Math.log10 : (value) => value;
      const toX = (value) => left + ((value - x0) / (x1 - x0)) * (right - left);
      const toY = (value) => bottom - ((scale(value) - scale(y0)) / (scale(y1) - scale(y0))) * (bottom - top);
      frame = { shown, left, right, top, bottom, x0, x1, toX };

      const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label":
        `${data.title}. Arrow keys read the values, dragging zooms.` });
      const clip = `clip-${[...views.keys()].indexOf(data.title)}`;
      const definitions = make("defs", {}, svg);
      make("rect", { x: left - 5, y: top - 5, width: right - left + 10, height: bottom - top + 10 },
        make("clipPath", { id: clip }, definitions));
      for (const value of ticks(y0, y1, 5, view.isLog)) {
        const y = toY(value);
        make("line", { x1: left, x2: right, y1: y, y2: y, style: `${paint("faint")};opacity:.35` }, svg);
        make("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, svg, show(value));
      }
      make("path", { d: `M${left} ${top}V${bottom}H${right}`, style: `${paint("faint")};fill:none` }, svg);
      const whole = data.x_label === "step" ? ticks(x0, x1, width / 90, false).filter(Number.isInteger) : null;
      const named = data.ticks.length ? data.ticks
        : (whole || ticks(x0, x1, width / 90, false)).map((value) => [value, show(value)]);
      for (const [value, text] of named) if (value >= x0 && value <= x1)
        make("text", { x: toX(value), y: bottom + 16, "text-anchor": "middle" }, svg, text);
      make("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, svg, data.x_label);
      make("text", { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
        svg, data.y_label);
      const canvas = make("g", { "clip-path": `url(#${clip})` }, svg);
      for (const part of parts) plot(part, canvas, definitions, clip, toX, toY);
      names.forEach((line, place) => legend(line, places[place], svg, definitions, clip));
      make("line", { class: "cursor", y1: top, y2: bottom, style: paint("ink") }, svg);
      make("rect", { class: "zoom", y: top, height: bottom - top, style: paint("blue", "fill") }, svg);
      listen(svg);
      box.replaceChildren(svg, tip);
      tip.hidden = true;
    }
    function fill(line, definitions, clip) {
      const hatch = HATCHES[line.number % HATCHES.length], id = `${clip}-${line.number}`;
      if (!hatch) return paint(line.color, "fill");
      if (!definitions.querySelector(`[id="${id}"]`)) {
        const pattern = make("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse" }, definitions);
        make("rect", { width: 6, height: 6, style: paint(line.color, "fill") }, pattern);
        make("path", { d: hatch, style: `${paint("card")};fill:none` }, pattern);
      }
      return `fill:url(#${id})`;
    }
    function plot({ line, tops, bottoms }, canvas, definitions, clip, toX, toY) {
      const path = (values) => values.map((value, place) => view.isLog && value <= 0 ? ""
        : `${place ? "L" : "M"}${toX(line.x[place]).toFixed(1)} ${toY(value).toFixed(1)}`).join("").replace(/^L/, "M");
      if (line.kind === "area") {
        const width = line.x.length < 2 ? 12 : 0;
        const under = bottoms.map((value, place) => `L${toX(line.x[place]) + width} ${toY(value)}`).reverse().join("");
        const over = width ? `M${toX(line.x[0]) - width} ${toY(bottoms[0])}V${toY(tops[0])}h${2 * width}` : path(tops);
        make("path", { d: `${over}${under}Z`, style: `${fill(line, definitions, clip)};opacity:.8` }, canvas);
      } else if (line.kind === "bar") {
        const width = Math.abs(toX(0.9 / line.x.length) - toX(0));
        tops.forEach((value, place) => make("rect", { x: toX(line.x[place]) - width / 2, y: toY(value), width,
          height: Math.max(0, toY(0) - toY(value)), style: `${paint(line.color, "fill")};opacity:.4` }, canvas));
      } else {
        if (line.raw.length) make("path", { d: path(line.raw), style: `${paint(line.color)};opacity:.4` }, canvas);
        line.low.forEach((low, place) => make("path", { style: paint(line.color), d:
          `M${toX(line.x[place])} ${toY(low)}V${toY(line.high[place])}` }, canvas));
        make("path", { d: path(tops), class: "line", style: paint(line.color),
          "stroke-dasharray": DASHES[line.dash] }, canvas);
        const every = Math.max(1, Math.floor(line.x.length / 7));
        const marker = MARKERS[line.marker] || (line.x.length < 2 && MARKERS.o);
        if (marker) tops.forEach((value, place) => {
          if (place % every === 0 && (!view.isLog || value > 0)) make("path", { d: marker, style:
            paint(line.color, "fill"), transform: `translate(${toX(line.x[place])} ${toY(value)})` }, canvas);
        });
      }
    }
    function legend(line, [x, y], svg, definitions, clip) {
      const group = make("g", { class: "name", transform: `translate(${x + 2} ${y})` }, svg);
      if (view.hidden.has(line.label)) group.style.opacity = 0.4;
      if (line.kind === "line") {
        make("path", { d: "M0 0H28", class: "line", style: paint(line.color),
          "stroke-dasharray": DASHES[line.dash] }, group);
        if (line.marker) make("path", { d: MARKERS[line.marker], style: paint(line.color, "fill"),
          transform: "translate(14 0)" }, group);
      } else make("rect", { y: -5, width: 28, height: 10, style: line.kind === "area"
        ? fill(line, definitions, clip) : `${paint(line.color, "fill")};opacity:.4` }, group);
      make("text", { x: 33, y: 4 }, group, line.label);
      group.onclick = () => {
        if (!view.hidden.delete(line.label) && names(lines) - view.hidden.size > 1) view.hidden.add(line.label);
        draw();
      };
    }
    const names = (all) => new Set(all.map((line) => line.label)).size;

    function read(svg, at) { // the values at the known place nearest to `at`
      const known = frame.shown.flatMap((line) => line.x).filter((x) => x >= frame.x0 && x <= frame.x1);
      if (!known.length) return;
      const nearest = known.reduce((best, x) => (Math.abs(x - at) < Math.abs(best - at) ? x : best));
      const near = data.ticks.length ? 0.4 : (12 / (frame.right - frame.left)) * (frame.x1 - frame.x0);
      const label = data.ticks.length ? data.ticks[Math.round(nearest)][1] : `${data.x_label} ${show(nearest)}`;
      tip.replaceChildren(make("html:strong", {}, null, label));
      for (const line of frame.shown) {
        const place = line.x.reduce((best, x, n) => Math.abs(x - nearest) < Math.abs(line.x[best] - nearest) ? n : best, 0);
        if (Math.abs(line.x[place] - nearest) > near) continue;
        const span = line.low.length ? ` (${show(line.low[place])} to ${show(line.high[place])})` : "";
        const raw = line.raw.length ? `, this step ${show(line.raw[place])}` : "";
        make("html:div", {}, tip, `${line.label}: ${show(line.y[place])}${span}${raw}`);
      }
      const x = frame.toX(nearest), cursor = svg.querySelector(".cursor");
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.style.opacity = 0.6;
      tip.hidden = false;
      const isRight = x > (frame.left + frame.right) / 2;
      tip.style.cssText = isRight ? `right:${box.clientWidth - x + 8}px;top:${frame.top}px`
        : `left:${x + 8}px;top:${frame.top}px`;
      return nearest;
    }
    function listen(svg) {
      const toValue = (event) => {
        const { left, width } = svg.getBoundingClientRect();
        const x = ((event.clientX - left) / width) * svg.viewBox.baseVal.width;
        return frame.x0 + ((x - frame.left) / (frame.right - frame.left)) * (frame.x1 - frame.x0);
      };
      const zoom = svg.querySelector(".zoom");
      let at = frame.x0;
      svg.onpointerdown = (event) => { if (!event.target.closest(".name")) start = toValue(event); };
      svg.onpointermove = (event) => {
        at = read(svg, toValue(event)) ?? at;
        if (start === null) return;
        const [from, to] = [start, toValue(event)].map(frame.toX).sort((a, b) => a - b);
        zoom.setAttribute("x", from);
        zoom.setAttribute("width", to - from);
      };
      svg.onpointerup = (event) => {
        if (start === null) return;
        const range = [start, toValue(event)].sort((a, b) => a - b);
        start = null;
        if (frame.toX(range[1]) - frame.toX(range[0]) > 10) view.x = range;
        else zoom.setAttribute("width", 0);
        if (view.x === range) draw();
      };
      svg.onpointerleave = () => { start = null; tip.hidden = true; zoom.setAttribute("width", 0); };
      svg.ondblclick = () => { view.x = null; draw(); };
      svg.onkeydown = (event) => {
        const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!way) return;
        const known = [...new Set(frame.shown.flatMap((line) => line.x))].sort((a, b) => a - b);
        const next = known[Math.min(known.length - 1, Math.max(0, known.findIndex((x) => x >= at) + way))];
        at = read(svg, next) ?? at;
        event.preventDefault();
      };
    }
    draw();
    return draw;
  }

  function picture(drawn, title) { // the figure as it is seen, twice as large
    const [, , width, height] = drawn.getAttribute("viewBox").split(" ").map(Number), head = 30;
    const svg = drawn.cloneNode(true), style = getComputedStyle(document.documentElement);
    svg.setAttribute("xmlns", NS);
    svg.setAttribute("viewBox", `0 ${-head} ${width} ${height + head}`);
    svg.setAttribute("width", 2 * width);
    svg.setAttribute("height", 2 * (height + head));
    svg.prepend(make("style", {}, null, "text{font:12px sans-serif;fill:var(--ink)}.line{fill:none;stroke-width:2}"
      + "path{fill:none}.cursor,.zoom{display:none}"));
    svg.prepend(make("rect", { y: -head, width, height: height + head, style: paint("card", "fill") }));
    make("text", { x: 4, y: -10, style: "font-weight:bold" }, svg, title);
    const text = new XMLSerializer().serializeToString(svg)
      .replace(/var\(--(\w+)\)/g, (_, name) => style.getPropertyValue(`--${name}`).trim());
    const image = new Image();
    image.onload = () => {
      const canvas = make("html:canvas", { width: image.width, height: image.height });
      canvas.getContext("2d").drawImage(image, 0, 0);
      make("html:a", { href: canvas.toDataURL("image/png"), download: `${title}.png` }).click();
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  }

  function browse(section) { // filters over the rollouts that the page lists
    const rows = [...section.querySelectorAll(".rollout")], bar = section.querySelector(".filters");
    bar.replaceChildren();
    const pick = (key, name) => {
      const label = make("html:label", {}, bar, `${name} `), list = make("html:select", {}, label);
      for (const value of ["any", ...new Set(rows.map((row) => row.dataset[key]))])
        make("html:option", { value }, list, value);
      return (row) => list.value === "any" || row.dataset[key] === list.value;
    };
    const bound = (name, value) => {
      const label = make("html:label", {}, bar, `${name} `);
      return make("html:input", { type: "number", min: 0, max: 1, step: 0.05, value }, label);
    };
    const tests = [pick("when", "when"), pick("rule", "rule says"), pick("judge", "judge says")];
    const low = bound("score from", 0), high = bound("to", 1);
    const words = make("html:input", { type: "search", placeholder: "words" }, make("html:label", {}, bar, "with "));
    const count = make("html:output", {}, bar);
    const filter = () => {
      let shown = 0;
      for (const row of rows) {
        const score = Number(row.dataset.score);
        row.hidden = !(tests.every((test) => test(row)) && score >= Number(low.value) && score <= Number(high.value)
          && row.textContent.toLowerCase().includes(words.value.toLowerCase()));
        shown += !row.hidden;
      }
      count.textContent = `${shown} of ${rows.length}`;
    };
    bar.oninput = filter;
    bar.hidden = false;
    filter();
  }

  let redraws = [];
  function begin() {
    redraws = [...document.querySelectorAll("figure[data-plot]")].map(chart);
    document.querySelectorAll(".browser").forEach(browse);
  }
  function follow(seconds) { // a page of `cooper-rl watch`
    setTimeout(async () => {
      try {
        const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
        const open = [...document.querySelectorAll("details")].map((each) => each.open);
        document.querySelector("main").replaceWith(page.querySelector("main"));
        document.querySelectorAll("details").forEach((each, place) => { each.open = open[place] ?? each.open; });
        begin();
      } catch { document.querySelector(".alive").textContent = "The server has stopped; this is the last that it said."; }
      follow(seconds);
    }, 1000 * seconds);
  }
  addEventListener("resize", () => redraws.forEach((draw) => draw()));
  begin();
  if (document.body.dataset.live) follow(Number(document.body.dataset.live));
})();
