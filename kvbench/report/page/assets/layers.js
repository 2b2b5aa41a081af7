// The tokens of the prompt that each layer kept: how many, and where.

const LEVELS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** [shares, positions, heads] of a record by its number in the run; read in chunks, when they are looked at. */
function layersOf(run, record) {
  return data(`layers-${run.index}-${Math.floor(record / run.chunk)}`)[record % run.chunk];
}

/** The kept share of each segment of the prompt, from a layer's text as kvbench.cache.kept_positions encodes it. */
function segments(text) {
  const share = (letter) => LEVELS.indexOf(letter) / (LEVELS.length - 1);
  const runs = [...text.matchAll(/([a-zA-Z])(\d*)/g)];
  return runs.flatMap(([, letter, count]) => Array(Number(count || 1)).fill(share(letter)));
}

/** A bar per layer, the lowest layer on the left. */
function keptBars(shares) {
  const even = shares.every((share) => share === shares[0]);
  const ends = `from ${percent(shares[0])} in layer 0 to ${percent(shares.at(-1))} in layer ${shares.length - 1}`;
  const label = even ? `kept: ${percent(shares[0])} in every layer` : `kept: ${percent(mean(shares))}, ${ends}`;
  const bars = shares.map((share, layer) => {
    const bar = { x: layer * 5, width: 4, y: 40 - share * 40, height: Math.max(share * 40, 0.5), class: "bar" };
    return svg("rect", bar, svg("title", {}, `layer ${layer}: ${percent(share)}`));
  });
  const viewBox = `0 0 ${shares.length * 5 - 1} 40`;
  const box = { viewBox, preserveAspectRatio: "none", role: "img", "aria-label": label };
  return h("figure", { class: "bars" }, svg("svg", box, bars), h("figcaption", {}, label));
}

/** A row per layer, the lowest on top, and a column per segment of the prompt; black is kept by all heads. */
function keptStrip(positions, depth) {
  if (positions === null) return note("This record does not have the positions of kept tokens: an earlier version of kvbench made it.");
  const rows = positions.map((text) => (text === null ? null : segments(text)));
  const known = rows.filter(Boolean);
  if (!known.length) return note("There are no positions to show: each entry is pooled from several tokens.");
  const all = known.every((row) => row.every((share) => share === 1));
  const label = all ? "every layer kept every token" : `kept by quarter of the prompt: ${quarters(known)}`;
  const missing = rows.length - known.length;
  const more = missing ? `; ${missing} layers pool their entries and have no positions` : "";
  const caption = h("figcaption", {}, h("span", {}, "start"), h("span", {}, label + more), h("span", {}, "end"));
  return h("figure", { class: "strip" }, depth == null ? null : needle(depth), picture(rows, label + more), caption);
}

/** A row per layer, the lowest on top, and a column per head; null where the heads of all layers keep equally many. */
function keptHeads(heads) {
  if (heads === null) return null;
  const known = heads.filter(Boolean).flat();
  const spread = `from ${percent(Math.min(...known))} to ${percent(Math.max(...known))}`;
  const label = `kept: tokens per head, ${spread} of the prompt`;
  const caption = h("figcaption", {}, h("span", {}, "head 0"), h("span", {}, label), h("span", {}, "last head"));
  return h("figure", { class: "strip" }, picture(heads, label), caption);
}

function picture(rows, label) {
  const width = rows.find(Boolean).length;
  const style = { height: `${Math.max(48, rows.length * 4)}px` };
  const canvas = h("canvas", { width, height: rows.length, role: "img", "aria-label": label, style });
  const context = canvas.getContext("2d");
  rows.forEach((row, layer) =>
    row?.forEach((share, segment) => {
      context.fillStyle = `rgb(0 0 0 / ${share})`;
      context.fillRect(segment, layer, 1, 1);
    }),
  );
  return canvas;
}

function needle(depth) {
  const title = `the needle is at about ${depth} % of the context`;
  return h("span", { class: "needle", style: { left: `${depth}%` }, title }, "▼");
}

/** The share that layers kept of each quarter of the prompt: the strip in numbers. */
function quarters(rows) {
  const quarter = (row, i) => row.slice((i * row.length) / 4, ((i + 1) * row.length) / 4);
  return [0, 1, 2, 3].map((i) => percent(mean(rows.flatMap((row) => quarter(row, i))) ?? 0)).join(", ");
}
