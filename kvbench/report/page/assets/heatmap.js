// Needle heatmaps: a table per setting, depth × length. Every cell has its number, so nothing depends on colour.

// The share above which a cell's text is in the other ink; both have a contrast of at least 4.2 : 1.
const TURN = 0.45;

function heatmapSection(run, settings, other, metric, openCell) {
  const panel = ({ heatmap: axes, settings: labelled, bytes }, setting, open, runTitle = "") => {
    const grid = axes?.grids[metric]?.[labelled.indexOf(setting)];
    return grid ? heatmap({ ...axes, bytes }, grid, setting, metric, open, runTitle) : null;
  };
  const panels = settings.flatMap((setting) => {
    const beside = other?.settings.find(({ label }) => label === setting.label);
    const pair = [panel(run, setting, openCell, other ? run.title : ""), beside ? panel(other, beside, null, other.title) : null];
    return other ? h("div", { class: "pair" }, pair) : pair;
  });
  const caption = note(
    `Mean ${metric} by context length in tokens (across) and needle depth in per cent (down). `,
    "Click a cell to list its samples below.",
    run.heatmap.grids[metric].flat(2).includes(null) ? " –: no sample of the setting there." : "",
  );
  const whole = h("div", { class: "panels" }, panels);
  return section("heatmaps", "Needle heatmaps", h("div", { class: "under" }, pictureButton(whole, "heatmaps"), caption), whole);
}

/** A panel; without `openCell` its cells list nothing. `runTitle` is empty where the page shows one run. */
function heatmap({ depths, lengths, bytes }, grid, setting, metric, openCell, runTitle) {
  function cell(value, depth, length) {
    if (value == null) return h("td", { class: "none" }, "–");
    const share = Math.max(0, Math.min(1, value));
    const open = openCell && (() => openCell(setting, { length, depth }));
    const kind = `heat${share > TURN ? " high" : ""}${open ? "" : " still"}`;
    const colour = { class: kind, style: { "--share": percentage(share) } };
    return h("td", open ? { ...colour, onclick: open } : colour, value.toFixed(2));
  }
  const head = h("tr", {}, h("td"), lengths.map((length) => h("th", { scope: "col" }, short(length))));
  const body = depths.map((depth, d) => {
    const cells = lengths.map((length, l) => cell(grid[d][l], depth, length));
    return h("tr", {}, h("th", { scope: "row" }, short(depth)), cells);
  });
  const sizes = `mean ${fixed(setting.scores[metric][0], 2)} · ${bytes} ${fixed(setting.r_bytes, 2)}`;
  const name = [h("strong", {}, setting.label), h("br"), ...(runTitle ? [runTitle, h("br")] : [])];
  const caption = h("caption", {}, name, sizes);
  const whole = h("table", { class: "heatmap" }, caption, h("thead", {}, head), h("tbody", {}, body));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `heatmap of ${setting.label}` }, whole);
}

function percentage(share) {
  return `${share * 100}%`;
}
