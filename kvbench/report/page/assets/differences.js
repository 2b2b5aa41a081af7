// The differences of all settings from a baseline that the reader chooses, over the same samples.

function differencesSection(run, settings) {
  const { metric, of: rowsBeside, notes } = run.differences;
  const holder = h("div");
  const shown = new Set(settings.map(({ label }) => label));
  const names = Object.keys(rowsBeside).filter((label) => rowsBeside[label].length && shown.has(label));
  if (!names.length) return null;
  const number = (title, name, text, hint) => ({ title, value: (row) => row[name], text, hint, number: true });
  const columns = [
    { title: "setting", value: (row) => row.setting },
    number("difference", "difference", (row) => signed(row.difference, metric), `${metric}: the setting minus the baseline`),
    number("95 % interval", "low", (row) => (row.low == null ? "–" : `${signed(row.low, metric)} to ${signed(row.high, metric)}`)),
    number("p", "p", (row) => probability(row.p), "by sign flips, two-sided"),
    number("p (Holm)", "p_holm", (row) => probability(row.p_holm), "corrected for all settings beside this baseline"),
    ...["wins", "ties", "losses", "samples"].map((name) => number(name, name)),
  ];
  function show(baseline) {
    const rows = rowsBeside[baseline].filter(({ setting }) => shown.has(setting));
    const label = `differences from ${baseline}`;
    holder.replaceChildren(table(columns, rows, { label }).node, note(notes[baseline]));
  }
  const full = run.settings.find(({ method }) => method === "full")?.label;
  const usual = names.includes(full) ? full : names[0];
  const current = names.includes(view.baseline) ? view.baseline : usual;
  const choose = (baseline) => {
    go({ baseline: baseline === usual ? "" : baseline });
    show(baseline);
  };
  show(current);
  const pick = choice("baseline", names.map((name) => [name, name]), current, choose);
  const words = note(`${metric}: each setting minus the baseline, on the samples that both have`);
  return section("differences", "Differences", words, pick, holder);
}

function probability(value) {
  return value != null && value < 0.001 ? "<0.001" : fixed(value);
}
