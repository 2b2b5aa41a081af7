// The list of samples: filtered by words, task, setting, outcome or a heatmap's cell; a click opens one.

const SHOWN = [
  ["all", "all samples"],
  ["wrong", "wrong samples (score below 1)"],
  ["zero", "samples with score 0"],
  ["differ", "samples where settings differ"],
];
const OF_SCORES = ["wrong", "zero"]; // outcomes that a distance does not have

/**
 * Returns {node, showCell(setting, properties), openShown()}: showCell lists the samples with these properties,
 * openShown opens the sample of the view, or closes the one that is open.
 */
function browserSection(run, settings, other, others, metric) {
  const filters = (view.filters = { ...view.filters });
  if (!settings.some(({ label }) => label === filters.setting)) filters.setting = "";
  // no distance is right or wrong, and of a divergence 0 is the best
  const outcomes = SHOWN.filter(([name]) => !run.distances.includes(metric) || !OF_SCORES.includes(name));
  if (!outcomes.some(([name]) => name === filters.shown)) filters.shown = "all";
  const { samples, records } = run;
  const property = (name, number) => samples[`property ${name}`]?.[number];
  const chosen = () => settings.filter((setting) => filters.setting === "" || setting.label === filters.setting);
  const recordsOf = (number) =>
    chosen().map((setting) => run.recordOf(number, run.settings.indexOf(setting))).filter((record) => record >= 0);
  const scoresOf = (number) =>
    recordsOf(number).map((record) => records.scores[metric][record]).filter((score) => score != null);
  const setFilter = (key, instead = false) => (value) => {
    filters[key] = value;
    go({}, instead);
    list();
  };

  const search = h("input", { type: "search", id: "search", placeholder: "words in prompt, answers, outputs …" });
  search.value = filters.words;
  search.addEventListener("input", later(() => setFilter("words", true)(search.value)));
  const tasks = [...new Set(samples["property task"] ?? [])].map((task) => [task, task]);
  if (!tasks.some(([task]) => task === filters.task)) filters.task = "";
  const labels = settings.map(({ label }) => [label, label]);
  const ofSetting = choice("setting", [["", "every setting"], ...labels], filters.setting, setFilter("setting"));
  const controls = h(
    "div",
    { class: "row" },
    h("label", {}, "search ", search),
    tasks.length ? choice("task", [["", "every task"], ...tasks], filters.task, setFilter("task")) : null,
    ofSetting,
    choice("show", outcomes, filters.shown, setFilter("shown")),
  );
  const cell = button("", () => showCell(null, null));
  let order = () => [];
  const holder = h("div");

  /** All text of a sample and of the outputs of the chosen settings, in lower case; made when first searched. */
  const texts = new Map();
  function text(number) {
    const key = `${filters.setting} ${number}`;
    if (!texts.has(key)) {
      const facts = run.properties.map((name) => property(name, number));
      const outputs = recordsOf(number).map((record) => records.prediction[record]);
      const all = [samples.id[number], samples.end[number], ...samples.answers[number], ...facts, ...outputs];
      texts.set(key, all.join("\n").toLowerCase());
    }
    return texts.get(key);
  }

  function passes(number, words) {
    if (filters.task && property("task", number) !== filters.task) return false;
    // a property that all samples share is not in the data, and matches every cell
    const differs = ([name, value]) => ![undefined, value].includes(property(name, number));
    if (filters.cell && Object.entries(filters.cell).some(differs)) return false;
    if (!recordsOf(number).length) return false;
    const scores = scoresOf(number);
    if (filters.shown === "wrong" && scores.every((score) => score >= 1)) return false;
    if (filters.shown === "zero" && !scores.includes(0)) return false;
    if (filters.shown === "differ" && new Set(scores).size < 2) return false;
    return words.every((word) => text(number).includes(word));
  }

  function list() {
    cell.hidden = !filters.cell;
    const place = Object.entries(filters.cell ?? {}).map(([name, value]) => `${name} ${short(value)}`);
    cell.textContent = `only ${place.join(", ")} ✕`;
    const words = filters.words.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = samples.id.map((_, number) => ({ number })).filter(({ number }) => passes(number, words));
    const options = { label: "samples", pageSize: 50, empty: "no sample passes the filters" };
    const shown = table(columns(), rows, options);
    order = () => shown.shown().map((row) => row.number);
    holder.replaceChildren(shown.node);
  }

  function open(number, card = null, instead = false) {
    const listed = order();
    go({ sample: samples.id[number], card }, instead);
    const shown = { run, settings, other, others, metric };
    openSample(shown, number, listed.includes(number) ? listed : samples.id.map((_, index) => index), open);
  }

  function openShown() {
    const dialog = document.getElementById("sample");
    const number = run.numberOf.get(view.sample);
    if (number === undefined) {
      if (dialog.open) dialog.close();
    } else open(number, view.card, true);
  }

  function columns() {
    const id = ({ number }) => samples.id[number];
    const link = (row) => viewLink(id(row), { sample: id(row), card: null }, () => open(row.number), { class: "open" });
    return [
      { title: "sample", value: id, cell: link },
      ...run.properties.map((name) => ({
        title: name,
        number: typeof property(name, 0) === "number",
        value: ({ number }) => property(name, number),
      })),
      ...(chosen().length === 1 ? outcomeOfOne() : outcomeOfAll()),
    ];
  }

  function outcomeOfOne() {
    const score = ({ number }) => scoresOf(number)[0];
    const output = ({ number }) => records.prediction[recordsOf(number)[0]].slice(0, 200);
    return [
      { title: metric, number: true, value: score, cell: (row) => scoreMark(run, metric, score(row)) },
      { title: "output", value: output, cell: (row) => h("span", { class: "clip" }, output(row)) },
    ];
  }

  function outcomeOfAll() {
    const average = ({ number }) => mean(scoresOf(number));
    const answered = ({ number }) => samples.answers[number].length > 0;
    const right = (row) => (answered(row) ? scoresOf(row.number).filter((score) => score >= 1).length : null);
    const outcome = (row) => (answered(row) ? `${right(row)} of ${scoresOf(row.number).length}` : "–");
    const judged = !run.distances.includes(metric) && samples.answers.some((answers) => answers.length);
    return [
      { title: `mean ${metric}`, number: true, value: average, text: (row) => scoreText(metric, average(row), 2) },
      ...(judged ? [{ title: "right", number: true, hint: "settings with a score of 1", value: right, text: outcome }] : []),
    ];
  }

  function showCell(setting, properties) {
    filters.cell = properties;
    if (setting) ofSetting.querySelector("select").value = filters.setting = setting.label;
    go({ at: properties ? "samples" : view.at });
    list();
    node.scrollIntoView();
    holder.querySelector("a.open")?.focus({ preventScroll: true });
  }

  list();
  const node = section("samples", "Samples", controls, cell, holder);
  return { node, showCell, openShown };
}
