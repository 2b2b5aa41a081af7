// The drawing of a chart: axes, lines of methods, marks of settings with their intervals, the Pareto front.

/** dotted: a score with a dotted line; none for null. axes: [key, text, brief] of what the horizontal axis may show. */
function plot(settings, x, metric, width, announce, dotted, axes) {
  const height = Math.max(280, Math.min(440, width * 0.55));
  const points = settings
    .filter((setting) => setting[x] != null && setting.scores[metric]?.[0] != null)
    .map((setting) => ({ setting, x: setting[x], scores: setting.scores[metric], y: setting.scores[metric][0] }));
  if (!points.length) return note("nothing to show");
  const ends = [...points.flatMap((point) => point.scores), dotted].filter((value) => value != null);
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const across = scale(0, Math.max(...points.map((point) => point.x)), EDGE.left, width - EDGE.right);
  const up = scale(...upTo(least, most), height - EDGE.bottom, EDGE.top);
  const [left, right, top, bottom] = [EDGE.left, width - EDGE.right, EDGE.top, height - EDGE.bottom];
  const [, title, label = title] = axes.find(([key]) => key === x);
  const told = (value) =>
    FASTER.test(x) ? `${short(value)} tokens/s` : isRatio(x) ? `${title.split(" ")[0]} ${fixed(value)}` : `${x}: ${short(value)}`;
  const rule = (x1, x2, y1, y2, kind) => svg("line", { class: kind, x1, x2, y1, y2 });
  const runs = [...Map.groupBy(points, ({ setting }) => setting.runTitle).values()];
  const front = new Set(runs.flatMap((group) => [...pareto(group, data("measures").smallerIsBetter.includes(metric), FASTER.test(x))]));
  const full = points.filter((point) => point.setting.method === "full");
  // a run beside is drawn below, in larger marks: where both have one place, both are seen
  const methods = runs.toReversed().flatMap((group) => [...Map.groupBy(group, ({ setting }) => setting.method).values()]);
  const aside = besideEachOther(points, across, Math.min(56, width / 16));
  const drawn = methods.flatMap((group) => {
    const { method, runTitle } = group[0].setting;
    const { colour, path } = methodStyle(method);
    const place = (point) => ({ ...point, left: across(point.x) + aside.get(point), top: up(point.y), front: front.has(point) });
    const places = group.map(place);
    places.sort((a, b) => a.x - b.x);
    const line = places.map((place) => `${place.left},${place.top}`).join(" ");
    return [
      svg("polyline", { points: line, fill: "none", stroke: colour, "stroke-width": 1.5, "stroke-dasharray": runTitle && "2 3" }),
      ...places.map((place) => mark(place, told, metric, up, { path, colour }, place.left < width * 0.7, announce)),
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
    text(label, (left + right) / 2, height - 6),
    svg("g", { transform: `translate(14 ${height / 2}) rotate(-90)` }, text(metric, 0, 0)),
    drawn,
  );
}

/** How far each point is moved so that marks and intervals at one place across stand side by side, within `room`: in pixels. */
function besideEachOther(points, across, room = 56) {
  const near = [];
  for (const point of points.toSorted((a, b) => a.x - b.x)) {
    const last = near.at(-1);
    if (last && across(point.x) - across(last[0].x) < 4) last.push(point);
    else near.push([point]);
  }
  const moved = near.flatMap((group) => {
    const step = Math.min(7, room / group.length);
    return group.map((point, i) => [point, (i - (group.length - 1) / 2) * step]);
  });
  return new Map(moved);
}

/** The points that no other beats: none with as few bytes (with `faster`: as fast) scores as well, except equal points. */
function pareto(points, lower, faster = false) {
  const value = (point) => (lower ? -point.y : point.y);
  const cost = (point) => (faster ? -point.x : point.x);
  const beats = (a, b) => cost(a) <= cost(b) && value(a) >= value(b) && (cost(a) < cost(b) || value(a) > value(b));
  return new Set(points.filter((point) => !points.some((other) => beats(other, point))));
}

/** A setting's mark with its interval, and its name beside it while it is pointed at. */
function mark({ setting, scores, x, y, left, top, front }, told, metric, up, { path, colour }, onRight, announce) {
  const [, low, high] = scores;
  const sure = low == null ? "" : ` (95 % interval ${interval(metric, scores)})`;
  const usual = `${setting.label}: ${told(x)}, ${metric} ${scoreText(metric, y)}${sure}, ${setting.samples} samples`;
  const label = `${setting.runTitle ? `${setting.runTitle}: ` : ""}${setting.summary ?? usual}${front ? ", on the Pareto front" : ""}`;
  const name = text(`${setting.label}: ${scoreText(metric, y)}`, left + (onRight ? 11 : -11), top - 8, onRight ? "start" : "end");
  name.classList.add("named");
  const shift = `translate(${left} ${top})`;
  const inked = setting.runTitle ? { style: { stroke: colour } } : { fill: colour };
  const listeners = { onpointerenter: () => announce(label), onfocus: () => announce(label) };
  return svg(
    "g",
    { class: "point", tabindex: 0, role: "img", "aria-label": label, ...listeners },
    low == null ? null : svg("path", { class: "interval", d: `M${left},${up(low)}V${up(high)}`, stroke: colour }),
    svg("circle", { transform: shift, r: 12, fill: "transparent" }),
    front ? svg("circle", { class: "front", transform: shift, r: 9.5 }) : null,
    svg("path", { class: setting.runTitle ? "mark beside" : "mark", transform: setting.runTitle ? `${shift} scale(1.35)` : shift, d: path, ...inked }),
    name,
  );
}

function text(content, x, y, anchor = "middle") {
  return svg("text", { class: "label", x, y, "text-anchor": anchor }, content);
}

/** The ends of an axis with all values from `least` to `most`; 0 is one of them unless the values are far from it. */
function upTo(least, most) {
  if (least === 0 && most === 0) return [0, 1];
  if (most <= 0) return [least, most > least / 2 ? 0 : most];
  return [0 <= least && least < most / 2 ? 0 : least, most];
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
