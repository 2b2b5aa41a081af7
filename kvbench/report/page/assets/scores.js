// The tables of settings and of tasks.

const REQUESTED = "share of FullKV's tokens, or tokens per layer and head";
const STORED = "bytes stored, divided by those of the uncompressed cache";
const DECODING = {
  r_mean: "bytes held, divided by FullKV's, both summed over the passes after prefill",
  r_peak: "most bytes held at any time, prefill included, divided by FullKV's at the end",
  r_read: "bytes that attention reads, divided by FullKV's, both summed over the passes after prefill",
};

function settingsTable(run, settings) {
  const [first, ...others] = run.metrics;
  const numeric = (title, value, digits, hint) => ({
    title,
    value,
    hint,
    number: true,
    text: (row) => (digits == null ? short(value(row)) : fixed(value(row), digits)),
  });
  const remarks = Object.entries(run.remarks); // [column, [mark, remark]]
  const marks = (row) => remarks.map(([column, [mark]]) => (row[column] ? mark : "")).join("");
  const score = (metric) => ({ ...numeric(metric, (row) => row.scores[metric][0], 3), text: (row) => scoreText(metric, row.scores[metric][0]) });
  const decoding = Object.entries(DECODING).filter(([name]) => settings.some((row) => row[name] != null));
  const alone = settings.every((row) => row.tokens_per_s != null);
  const columns = [
    { title: "setting", value: (row) => row.label },
    {
      ...numeric("requested", (row) => row.requested, null, REQUESTED),
      text: (row) => short(row.requested) + marks(row),
    },
    numeric("r", (row) => row.r, 3, "reserve ratio, SpindleKV's formula 15"),
    numeric(run.bytes, (row) => row.r_bytes, 3, STORED),
    score(first),
    {
      ...numeric("95 % interval", (row) => row.scores[first][1], 2, `of ${first}, by bootstrap over what was drawn independently`),
      text: (row) => interval(first, row.scores[first]),
    },
    ...others.map(score),
    numeric("samples", (row) => row.samples),
    ...(view.ratios ? decoding.map(([name, hint]) => numeric(name, (row) => row[name], 3, hint)) : []),
    ...(alone ? [numeric("tokens/s", (row) => row.tokens_per_s, 1, "while decoding, of sequences that decoded alone")] : []),
  ];
  const shown = remarks.filter(([column]) => settings.some((row) => row[column]));
  const notes = shown.length ? note(shown.map(([, remark]) => remark.join(" ")).join(". ")) : null;
  const fold = (event) => {
    go({ ratios: event.target.checked });
    sections();
  };
  const box = h("input", { type: "checkbox", checked: view.ratios, onchange: fold });
  const more = decoding.length ? h("label", {}, box, ` ${decoding.map(([name]) => name).join(", ")}`) : null;
  return section("settings", "Settings", more, table(columns, settings, { label: "settings", filter: true }).node, notes);
}

/** A score, or two digits of a divergence, however small it is. */
function scoreText(metric, value, digits = 3) {
  return value != null && data("measures").divergences.includes(metric) ? String(+value.toPrecision(2)) : fixed(value, digits);
}

/** The interval of a metric's [mean, low, high]; a dash where there is none. */
function interval(metric, [, low, high]) {
  return low == null ? "–" : `${scoreText(metric, low, 2)} – ${scoreText(metric, high, 2)}`;
}

/** A row for each setting and a column for each task, the mean first: any number of settings fits a screen's width. */
function tasksTable(run, settings) {
  const holder = h("div");
  const shown = () => run.tasks.find(({ by }) => by === view.by) ?? run.tasks[0];
  function show() {
    const { by: name, rows } = shown();
    const columns = [
      { title: "setting", value: (setting) => setting.label },
      ...[...rows.slice(-1), ...rows.slice(0, -1)].map((row) => {
        const score = (setting) => row.scores[run.settings.indexOf(setting)];
        const hint = `${row.samples} samples`;
        return { title: row.task, number: true, value: score, text: (setting) => fixed(score(setting), 4), hint };
      }),
    ];
    holder.replaceChildren(table(columns, settings, { label: `scores by ${name}` }).node);
  }
  const names = run.tasks.map(({ by }) => [by, by]);
  const pick = (name) => {
    go({ by: name === names[0][0] ? "" : name });
    show();
  };
  show();
  const caption = note(`${run.metrics[0]} by ${names[0][0]}; the mean is that of the other columns`);
  return section("tasks", "Tasks", caption, names.length > 1 ? choice("columns by", names, shown().by, pick) : null, holder);
}
