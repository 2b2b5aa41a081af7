// Needle heatmaps: a table per setting, depth × length. Every cell has its number, so nothing depends on colour.

// The share above which a cell's text is in the other ink; both have a contrast of at least 4.2 : 1, in both themes.
const TURN = 0.57;

function heatmapSection(run, settings, metric, openCell) {
  const grid = (setting) => run.heatmap.grids[metric][run.settings.indexOf(setting)];
  const panels = settings.map((setting) => heatmap(run.heatmap, grid(setting), setting, metric, openCell));
  const caption = note(
    `Mean ${metric} × 100 by context length in tokens (across) and needle depth in per cent (down). `,
    "Click a cell to list its samples below.",
  );
  return section("heatmaps", "Needle heatmaps", caption, h("div", { class: "panels" }, panels));
}

function heatmap({ depths, lengths }, grid, setting, metric, openCell) {
  function cell(value, depth, length) {
    if (value == null) return h("td", { class: "none" }, "–");
    const share = Math.max(0, Math.min(1, value));
    const open = () => openCell(setting, { length, depth });
    const colour = { class: share > TURN ? "heat high" : "heat", style: { "--share": percentage(share) } };
    return h("td", { ...colour, onclick: open }, String(Math.round(value * 100)));
  }
  const head = h("tr", {}, h("td"), lengths.map((length) => h("th", { scope: "col" }, short(length))));
  const body = depths.map((depth, d) => {
    const cells = lengths.map((length, l) => cell(grid[d][l], depth, length));
    return h("tr", {}, h("th", { scope: "row" }, short(depth)), cells);
  });
  const sizes = `mean ${fixed(setting.scores[metric][0], 2)} · r_bytes ${fixed(setting.r_bytes, 2)}`;
  const caption = h("caption", {}, h("strong", {}, setting.label), h("br"), sizes);
  const whole = h("table", { class: "heatmap" }, caption, h("thead", {}, head), h("tbody", {}, body));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `heatmap of ${setting.label}` }, whole);
}

function percentage(share) {
  return `${share * 100}%`;
}
