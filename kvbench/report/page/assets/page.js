// The page of one run at a time: the controls at the top, and the sections that depend on them.

/** What a page has in place of a run where none has answers. */
const NO_RUN = { caption: "", facts: {}, metrics: [], settings: [], manifests: [], commands: [] };

/** A run's data, with the number of a sample's record under a setting (-1 for none). */
function loaded(index) {
  if (!data("runs").length) return NO_RUN;
  const run = data(`run-${index}`);
  if (!run.recordOf) {
    run.index = index;
    run.title = data("titles")[index];
    const width = run.settings.length;
    const numbers = new Int32Array(run.samples.id.length * width).fill(-1);
    run.records.sample.forEach((sample, record) => {
      numbers[sample * width + run.records.setting[record]] = record;
    });
    run.recordOf = (sample, setting) => numbers[sample * width + setting];
    run.numberOf = new Map(run.samples.id.map((id, number) => [id, number]));
  }
  return run;
}

/** The run beside the one that is shown; null for none. */
function besideRun() {
  return view.beside < 0 || view.beside === view.run ? null : loaded(view.beside);
}

function shownMetric(run) {
  return run.metrics.includes(view.metric) ? view.metric : run.metrics[0];
}

/** Draws everything as `view` has it. */
function show() {
  const run = loaded(view.run);
  const { benchmark, model } = run.facts;
  document.getElementById("heading").textContent = run === NO_RUN ? (data("speeds").length ? "Speed and memory" : "Servers under load") : `${benchmark} on ${model}`;
  document.getElementById("caption").textContent = run.caption;
  document.getElementById("controls").replaceChildren(...controls(run).filter(Boolean));
  sections();
}

function controls(run) {
  const names = data("titles").map((title, index) => [String(index), title]);
  const others = names.filter(([index]) => Number(index) !== view.run);
  const metrics = run.metrics.map((name) => [name, name]);
  const themes = [["", "as the system"], ["light", "light"], ["dark", "dark"]];
  const measured = [...data("speeds"), ...data("serves")].flatMap(({ tables }) => Object.values(tables).flatMap(({ rows }) => rows));
  const methods = new Map(
    [...run.settings, ...(besideRun()?.settings ?? []), ...measured].map(({ method, title }) => [method, title]),
  );
  const boxes = [...methods].map(([name, title]) => {
    const toggle = (event) => {
      const hidden = new Set(view.hidden);
      hidden[event.target.checked ? "delete" : "add"](name);
      go({ hidden });
      sections();
    };
    const box = h("input", { type: "checkbox", checked: !view.hidden.has(name), onchange: toggle });
    return h("label", {}, box, " ", title);
  });
  const pickRun = (value) => {
    const index = Number(value);
    go({ run: index, beside: view.beside === index ? -1 : view.beside, filters: { ...NO_FILTERS }, by: "", baseline: "", at: "" });
    show();
  };
  const pickBeside = (value) => {
    go({ beside: Number(value) });
    show();
  };
  const pickMetric = (value) => {
    go({ metric: value === run.metrics[0] ? null : value });
    sections();
  };
  return [
    names.length > 1 ? choice("run", names, String(view.run), pickRun) : null,
    metrics.length > 1 ? choice("score", metrics, shownMetric(run), pickMetric) : null,
    choice("colours", themes, document.documentElement.dataset.theme ?? "", theme),
    others.length ? choice("compare with", [["-1", "no other run"], ...others], String(view.beside), pickBeside) : null,
    methods.size > 1 ? h("fieldset", { class: "row methods" }, h("legend", {}, "methods"), boxes) : null,
  ];
}

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}

function sections() {
  const run = loaded(view.run);
  const other = besideRun();
  const metric = shownMetric(run);
  const visible = (list) => list?.filter((setting) => !view.hidden.has(setting.method)) ?? [];
  const [settings, others] = [visible(run.settings), visible(other?.settings)];
  const [speeds, serves] = [speedRuns(run.model), serveRuns(run.model)];
  const browser = run === NO_RUN ? null : browserSection(run, settings, other, others, metric);
  const nodes = [
    browser ? plotSection(run, settings, other, others, metric) : null,
    run.frontier ? frontierSection(run, settings) : null,
    browser ? differencesSection(run, settings) : null,
    other ? besideSection(run, settings, other, others, metric) : null,
    browser ? settingsTable(run, settings) : null,
    speeds.length ? speedSection(speeds, view.hidden) : null,
    serves.length ? serveSection(serves, view.run, view.hidden) : null,
    run.heatmap?.grids[metric] ? heatmapSection(run, settings, other, metric, browser.showCell) : null, // none of distances
    run.tasks?.length ? tasksTable(run, settings) : null,
    browser?.node,
    provenance([run, ...(other ? [other] : []), ...speeds, ...serves]),
  ].filter(Boolean);
  document.getElementById("main").replaceChildren(...nodes);
  const links = nodes.map((node) => {
    const jump = () => {
      go({ at: node.id });
      node.scrollIntoView();
    };
    return viewLink(node.querySelector("h2").textContent, { at: node.id }, jump);
  });
  document.getElementById("contents").replaceChildren(...links);
  browser?.openShown();
}

/** Follows the address: when the page is opened, and when the reader goes back, forth, or to another link to it. */
function follow() {
  Object.assign(view, viewOf(location.hash));
  show();
  if (view.at) document.getElementById(view.at)?.scrollIntoView();
}

document.getElementById("sample").addEventListener("close", () => view.sample && go({ sample: null, card: null }));
window.addEventListener("hashchange", () => fragment(view) === location.hash || follow());
follow();
