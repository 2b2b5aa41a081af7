// What `kvbench frontier` found: the fewest bytes at which each method keeps a share of FullKV's quality.

function frontierSection(run, settings) {
  const { frontier } = run;
  const visible = new Set(settings.map(({ method }) => method));
  const bounds = ([, low, high]) => (low == null ? "" : ` (bounds ${fixed(low)} and ${fixed(high)})`);
  const summary = ({ label, r_bytes, scores, held }) =>
    `${label}: ${run.bytes} ${fixed(r_bytes)}, score ${fixed(scores.score[0])}${bounds(scores.score)}${held ? ", held" : ""}`;
  const full = { label: "FullKV", method: "full", title: "FullKV", r_bytes: 1, scores: { score: [frontier.full, null, null] } };
  const points = [full, ...frontier.points]
    .filter(({ method }) => visible.has(method))
    .map((point) => ({ ...point, summary: summary(point) }));

  const titles = new Set(points.map(({ title }) => title));
  const rows = frontier.rows.filter(([title]) => titles.has(title));
  const sortable = (text) => (/\d/.test(text) ? Number(text.replace(/[^\d.]/g, "")) : null); // without ≤ and §
  const columns = frontier.header.map((title, i) => ({
    title,
    number: i > 0,
    value: (row) => (i ? sortable(row[i]) : row[i]),
    text: (row) => row[i],
  }));

  return section(
    "frontier",
    "Bytes at equal quality",
    note(frontier.caption),
    h("p", {}, frontier.sentence),
    table(columns, rows, { label: "frontier" }).node,
    frontier.notes.map((text) => note(text)),
    chart(points, () => "r_bytes", "score", { name: "bytes-at-equal-quality", run, dotted: frontier.least }).nodes,
    note("Dashed line: FullKV's score. Dotted line: the lowest score that keeps the required share of it."),
  );
}
