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
  const score = (metric) => numeric(metric, (row) => row.scores[metric][0], 3);
  const alone = settings.some((row) => row.tokens_per_s != null);
  const columns = [
    { title: "setting", value: (row) => row.label },
    {
      ...numeric("requested", (row) => row.requested, null, REQUESTED),
      text: (row) => short(row.requested) + marks(row),
    },
    numeric("r", (row) => row.r, 3, "reserve ratio, SpindleKV's formula 15"),
    numeric("r_bytes", (row) => row.r_bytes, 3, STORED),
    ...Object.entries(DECODING)
      .filter(([name]) => settings.some((row) => row[name] != null))
      .map(([name, hint]) => numeric(name, (row) => row[name], 3, hint)),
    score(first),
    {
      ...numeric("95 % interval", (row) => row.scores[first][1], 2, `of ${first}, by bootstrap over what was drawn independently`),
      text: (row) => interval(row.scores[first]),
    },
    ...others.map(score),
    numeric("samples", (row) => row.samples),
    ...(alone ? [numeric("tokens/s", (row) => row.tokens_per_s, 1, "while decoding, of sequences that decoded alone")] : []),
  ];
  const shown = remarks.filter(([column]) => settings.some((row) => row[column]));
  const notes = shown.length ? note(shown.map(([, remark]) => remark.join(" ")).join(". ")) : null;
  return section("settings", "Settings", table(columns, settings, { label: "settings", filter: true }).node, notes);
}

/** The interval of [mean, low, high]; a dash where there is none. */
function interval([, low, high]) {
  return low == null ? "–" : `${fixed(low, 2)} – ${fixed(high, 2)}`;
}

function tasksTable(run, settings) {
  const holder = h("div");
  const columns = [
    { title: "task", value: (row) => row.task },
    { title: "samples", number: true, value: (row) => row.samples },
    ...settings.map((setting) => {
      const score = (row) => row.scores[run.settings.indexOf(setting)];
      return { title: setting.label, number: true, value: score, text: (row) => fixed(score(row), 2) };
    }),
  ];
  const shown = () => run.tasks.find((one) => one.by === view.by) ?? run.tasks[0];
  function show() {
    const { by: name, rows } = shown();
    holder.replaceChildren(table(columns, rows, { label: `scores by ${name}`, filter: true }).node);
  }
  const names = run.tasks.map((one) => [one.by, one.by]);
  const pick = (name) => {
    go({ by: name === names[0][0] ? "" : name });
    show();
  };
  show();
  const caption = note(`${run.metrics[0]} × 100, by ${names[0][0]}; the last row is the mean of the others`);
  return section("tasks", "Tasks", caption, names.length > 1 ? choice("rows by", names, shown().by, pick) : null, holder);
}
