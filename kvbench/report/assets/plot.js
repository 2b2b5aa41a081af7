// Score against r_bytes or another ratio: a line per method, a point per setting with its interval.

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6fd1"]; // after Okabe and Ito
const MARKS = [
  "M-5,0a5,5 0 1 0 10,0a5,5 0 1 0 -10,0", // circle
  "M-4.5,-4.5h9v9h-9z", // square
  "M0,-5.5L5.5,4.5H-5.5z", // triangle
  "M0,-6L6,0L0,6L-6,0z", // diamond
  "M0,5.5L5.5,-4.5H-5.5z", // triangle on its tip
  "M-5,-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z", // plus
  "M-5,-5L0,-2L5,-5L2,0L5,5L0,2L-5,5L-2,0z", // star
  "M-6,-2.5h12v5h-12z", // bar
];
const ACROSS = [
  ["r_bytes", "r_bytes (bytes stored)"],
  ["r", "r (formula 15)"],
  ["r_mean", "r_mean (bytes held while decoding)"],
  ["r_read", "r_read (bytes read)"],
  ["r_peak", "r_peak (most bytes)"],
  ["r_end", "r_end (bytes at the end)"],
];
const LOWER_IS_BETTER = new Set(["kl"]);
const EDGE = { left: 52, right: 16, top: 12, bottom: 44 };

function plotSection(run, settings, metric) {
  let x = "r_bytes";
  const { nodes, draw } = chart(settings, () => x, metric, methodStyles(run));
  const known = ACROSS.filter(([key]) => settings.some((setting) => setting[key] != null));
  const radios = known.map(([key, text]) => {
    const pick = () => {
      x = key;
      draw();
    };
    const radio = h("input", { type: "radio", name: "x", value: key, checked: key === x, onchange: pick });
    return h("label", {}, radio, " ", text);
  });
  const across = h("fieldset", { class: "row" }, h("legend", {}, "across"), radios);
  return section("plot", "Score against bytes", across, nodes);
}

/** Colour and mark of each method: the pair distinguishes 56 methods, a mark alone any 8 neighbours. */
function methodStyles(run) {
  const methods = [...new Set(run.settings.map((setting) => setting.method))];
  return new Map(methods.map((name, i) => [name, { colour: COLOURS[i % 7], path: MARKS[i % 8] }]));
}

/** A plot that is as wide as the page, with its legend; `x()` is what is across. Returns {nodes, draw()}. */
function chart(settings, x, metric, styles, dotted = null) {
  const tip = h("p", { class: "tip", role: "status" }, "Point at a mark, or go through them with Tab.");
  const figure = h("div", { class: "plot" });
  const draw = () => {
    const width = figure.clientWidth;
    figure.replaceChildren(plot(settings, x(), metric, styles, width, (text) => (tip.textContent = text), dotted));
  };
  new ResizeObserver(draw).observe(figure); // also called with the first width
  const legend = [...new Map(settings.map(({ method, title }) => [method, title]))].map(([name, title]) => {
    const { path, colour } = styles.get(name);
    const box = { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" };
    return h("li", {}, svg("svg", box, svg("path", { d: path, fill: colour })), title);
  });
  const ring = svg("circle", { class: "front", r: 5.5 });
  const box = { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" };
  legend.push(h("li", {}, svg("svg", box, ring), "Pareto front: nothing is better in both"));
  return { nodes: [figure, tip, h("ul", { class: "legend" }, legend)], draw };
}

/** dotted: a score with a dotted line; none for null. */
function plot(settings, x, metric, styles, width, announce, dotted) {
  const height = Math.max(280, Math.min(440, width * 0.55));
  const points = settings
    .map((setting) => ({ setting, x: setting[x], scores: setting.scores[metric], y: setting.scores[metric][0] }))
    .filter((point) => point.x != null && point.y != null);
  if (!points.length) return note("nothing to show");
  const ends = [...points.flatMap((point) => point.scores), dotted].filter((value) => value != null);
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const across = scale(0, Math.max(...points.map((point) => point.x)), EDGE.left, width - EDGE.right);
  const up = scale(least < most / 2 ? 0 : least, most || 1, height - EDGE.bottom, EDGE.top);
  const [left, right, top, bottom] = [EDGE.left, width - EDGE.right, EDGE.top, height - EDGE.bottom];
  const rule = (x1, x2, y1, y2, kind) => svg("line", { class: kind, x1, x2, y1, y2 });
  const front = pareto(points, LOWER_IS_BETTER.has(metric));
  const full = points.filter((point) => point.setting.method === "full");
  const drawn = [...Map.groupBy(points, (point) => point.setting.method)].flatMap(([method, group]) => {
    const { colour, path } = styles.get(method);
    const place = (point) => ({ ...point, left: across(point.x), top: up(point.y), front: front.has(point) });
    const places = group.map(place);
    places.sort((a, b) => a.x - b.x);
    const line = places.map((place) => `${place.left},${place.top}`).join(" ");
    return [
      svg("polyline", { points: line, fill: "none", stroke: colour, "stroke-width": 1.5 }),
      ...places.map((place) => mark(place, x, metric, up, { path, colour }, place.left < width * 0.7, announce)),
    ];
  });
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${metric} against ${x}` },
    up.ticks.map((tick) => rule(left, right, up(tick), up(tick), "grid")),
    up.ticks.map((tick) => text(short(tick), left - 8, up(tick) + 4, "end")),
    across.ticks.map((tick) => rule(across(tick), across(tick), top, bottom, "grid")),
    across.ticks.map((tick) => text(short(tick), across(tick), bottom + 18)),
    full.map((point) => rule(left, right, up(point.y), up(point.y), "full")),
    dotted == null ? null : rule(left, right, up(dotted), up(dotted), "least"),
    text(x, (left + right) / 2, height - 6),
    svg("g", { transform: `translate(14 ${height / 2}) rotate(-90)` }, text(metric, 0, 0)),
    drawn,
  );
}

/** The points that no other one beats: none with as few bytes scores as well, but for equals. */
function pareto(points, lower) {
  const value = (point) => (lower ? -point.y : point.y);
  const beats = (a, b) => a.x <= b.x && value(a) >= value(b) && (a.x < b.x || value(a) > value(b));
  return new Set(points.filter((point) => !points.some((other) => beats(other, point))));
}

/** A setting's mark with its interval, and its name beside it while it is pointed at. */
function mark({ setting, scores, x, y, left, top, front }, across, metric, up, { path, colour }, onRight, announce) {
  const [, low, high] = scores;
  const sure = low == null ? "" : ` (95 % interval ${interval(scores)})`;
  const usual = `${setting.label}: ${across} ${fixed(x)}, ${metric} ${fixed(y)}${sure}, ${setting.samples} samples`;
  const label = `${setting.told ?? usual}${front ? ", on the Pareto front" : ""}`;
  const name = text(`${setting.label}: ${fixed(y)}`, left + (onRight ? 11 : -11), top - 8, onRight ? "start" : "end");
  name.classList.add("named");
  const place = `translate(${left} ${top})`;
  const listeners = { onpointerenter: () => announce(label), onfocus: () => announce(label) };
  return svg(
    "g",
    { class: "point", tabindex: 0, role: "img", "aria-label": label, ...listeners },
    low == null ? null : svg("path", { class: "interval", d: `M${left},${up(low)}V${up(high)}`, stroke: colour }),
    svg("circle", { transform: place, r: 12, fill: "transparent" }),
    front ? svg("circle", { class: "front", transform: place, r: 9.5 }) : null,
    svg("path", { class: "mark", transform: place, d: path, fill: colour }),
    name,
  );
}

function text(content, x, y, anchor = "middle") {
  return svg("text", { class: "label", x, y, "text-anchor": anchor }, content);
}

/** From [least, most], widened to round numbers, to [from, to] in pixels; `ticks` are the round numbers. */
function scale(least, most, from, to) {
  const rough = (most - least || 1) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
  const low = Math.floor(least / step + 1e-9) * step;
  const high = Math.max(Math.ceil(most / step - 1e-9) * step, low + step);
  const map = (value) => from + ((value - low) / (high - low)) * (to - from);
  map.ticks = Array.from({ length: Math.round((high - low) / step) + 1 }, (_, i) => +(low + i * step).toPrecision(6));
  return map;
}
