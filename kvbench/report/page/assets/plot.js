// Score against r_bytes or another ratio: a line per method, a point per setting with its interval.

// In the order of the figures' markers (figures/style.py), so that a method's is the same.
const MARKS = [
  "M-5,0a5,5 0 1 0 10,0a5,5 0 1 0 -10,0", // circle
  "M-4.5,-4.5h9v9h-9z", // square
  "M0,-6L6,0L0,6L-6,0z", // diamond
  "M0,-5.5L5.5,4.5H-5.5z", // triangle
  "M0,5.5L5.5,-4.5H-5.5z", // triangle on its tip
  "M-2,-5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5z", // plus
  "M-5.5,-2.8L-2.8,-5.5L0,-2.7L2.8,-5.5L5.5,-2.8L2.7,0L5.5,2.8L2.8,5.5L0,2.7L-2.8,5.5L-5.5,2.8L-2.7,0z", // cross
  "M-5.5,0L4.5,-5.5V5.5z", // triangle to the left
  "M5.5,0L-4.5,-5.5V5.5z", // triangle to the right
  "M0,-6.5L1.8,-2.1L6.2,-2L2.7,0.9L3.8,5.3L0,2.8L-3.8,5.3L-2.7,0.9L-6.2,-2L-1.8,-2.1z", // star
  "M0,-6.5L3.4,0L0,6.5L-3.4,0z", // thin diamond
];
const ACROSS = [
  ["r_bytes", "r_bytes (bytes stored)"],
  ["r", "r (formula 15)"],
  ["r_mean", "r_mean (bytes held while decoding)"],
  ["r_read", "r_read (bytes read)"],
  ["r_peak", "r_peak (most bytes)"],
  ["r_end", "r_end (bytes at the end)"],
];
/** ACROSS with the stored bytes under the name that the run's caption explains. */
const acrossOf = (run) => ACROSS.map(([key, text]) => [key, key === "r_bytes" ? text.replace(key, run.bytes) : text]);
const isRatio = (key) => ACROSS.some(([ratio]) => ratio === key); // all others are speeds or latencies
const FASTER = /^tokens\/s/; // axes whose larger values are better
const EDGE = { left: 52, right: 16, top: 12, bottom: 44 };

function plotSection(run, settings, other, others, metric) {
  const points = [...timed(run, settings), ...(other ? timed(other, others).map((setting) => ({ ...setting, runTitle: other.title })) : [])];
  const measured = [run, ...(other ? [other] : [])].flatMap(({ model }) => [...measuredSpeeds(model), ...measuredLoads(model)]);
  const speeds = [...new Map(measured.map(({ key, text, brief }) => [key, [key, text, brief]])).values()];
  const axes = [...acrossOf(run), ...speeds];
  const known = axes.filter(([key]) => points.some((setting) => setting[key] != null));
  if (!known.length || points.every((setting) => setting.scores[metric]?.[0] == null)) return null;
  const x = () => (known.some(([key]) => key === view.across) ? view.across : known[0][0]);
  const { nodes, draw } = chart(points, x, metric, { name: "score", run, other, axes });
  const radios = known.map(([key, text]) => {
    const pick = () => {
      go({ across: key });
      draw();
    };
    const radio = h("input", { type: "radio", name: "x", value: key, checked: key === x(), onchange: pick });
    return h("label", {}, radio, " ", text);
  });
  const across = h("fieldset", { class: "row" }, h("legend", {}, "horizontal axis"), radios);
  const kinds = new Set(known.map(([key]) => (isRatio(key) ? "bytes" : "speed")));
  return section("plot", `Score against ${[...kinds].join(" and ")}`, across, nodes);
}

/** A run's settings with their measured speeds. */
function timed({ model }, settings) {
  const speeds = [...measuredSpeeds(model), ...measuredLoads(model)];
  return settings.map((setting) => ({
    ...setting,
    ...Object.fromEntries(speeds.map(({ key, figures }) => [key, figures.get(setting.label)])),
  }));
}

/** A method's colour and mark, which differ from those of all other methods of the page. */
function methodStyle(method) {
  const { colour, mark } = data("looks")[method];
  return { colour: colour ?? "var(--ink)", path: MARKS[mark] };
}

/**
 * A plot that is as wide as the page, with its legend; `x()` is what is across. Points with
 * `runTitle` are of the run beside: hollow and dashed. dotted: a score with a dotted line. axes: [key, text, brief] of what the horizontal axis may show.
 * Returns {nodes, draw()}.
 */
function chart(points, x, metric, { name, run, other = null, dotted = null, axes = acrossOf(run) }) {
  const tip = h("p", { class: "tip", role: "status" }, "Point at a mark, or go through them with Tab. Marks at one place stand side by side.");
  const figure = h("div", { class: "plot" });
  const draw = () => {
    const width = figure.clientWidth;
    figure.replaceChildren(plot(points, x(), metric, width, (text) => (tip.textContent = text), dotted, axes));
  };
  new ResizeObserver(draw).observe(figure); // also called with the first width
  const entry = (content, ...words) => {
    const box = { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" };
    return h("li", {}, svg("svg", box, content), words);
  };
  const legend = [...new Map(points.map(({ method, title }) => [method, title]))].map(([method, title]) => {
    const { path, colour } = methodStyle(method);
    return entry(svg("path", { d: path, fill: colour }), title);
  });
  legend.push(entry(svg("circle", { class: "front", r: 5.5 }), "Pareto front: no setting is better in both"));
  if (other) {
    legend.push(entry(svg("circle", { class: "filled", r: 4.5 }), run.title));
    legend.push(entry(svg("circle", { class: "hollow", r: 4.5 }), other.title));
  }
  const whole = h("div", {}, figure, h("ul", { class: "legend" }, legend));
  return { nodes: [whole, h("div", { class: "under" }, pictureButton(whole, name), tip)], draw };
}
