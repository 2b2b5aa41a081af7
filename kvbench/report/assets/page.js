// The page of one run at a time: the controls at the top, and the sections that depend on them.

const view = { run: 0, metric: null, hidden: new Set(), filters: NO_FILTERS };

/** What a page of speed runs alone has in place of a run. */
const NO_RUN = { caption: "speed and memory", metrics: [], settings: [], manifests: [], commands: [] };

/** A run's data, with the number of a sample's record under a setting (-1 for none). */
function loaded(index) {
  if (!data("runs").length) return NO_RUN;
  const run = data(`run-${index}`);
  if (!run.recordOf) {
    run.index = index;
    const width = run.settings.length;
    const numbers = new Int32Array(run.samples.id.length * width).fill(-1);
    run.records.sample.forEach((sample, record) => {
      numbers[sample * width + run.records.setting[record]] = record;
    });
    run.recordOf = (sample, setting) => numbers[sample * width + setting];
  }
  return run;
}

function show() {
  const run = loaded(view.run);
  if (!run.metrics.includes(view.metric)) view.metric = run.metrics[0];
  document.getElementById("caption").textContent = run.caption;
  document.getElementById("controls").replaceChildren(...controls(run).filter(Boolean));
  sections();
}

function controls(run) {
  const names = data("runs").map((name, index) => [String(index), name]);
  const metrics = run.metrics.map((name) => [name, name]);
  const themes = [["", "as the system"], ["light", "light"], ["dark", "dark"]];
  const measured = data("speeds").flatMap(({ tables }) => tables.flatMap(({ rows }) => rows));
  const methods = new Map([...run.settings, ...measured].map(({ method, title }) => [method, title]));
  const boxes = [...methods].map(([name, title]) => {
    const toggle = (event) => {
      view.hidden[event.target.checked ? "delete" : "add"](name);
      sections();
    };
    const box = h("input", { type: "checkbox", checked: !view.hidden.has(name), onchange: toggle });
    return h("label", {}, box, " ", title);
  });
  const pickRun = (value) => {
    Object.assign(view, { run: Number(value), filters: NO_FILTERS });
    show();
  };
  const pickMetric = (value) => {
    view.metric = value;
    sections();
  };
  return [
    names.length > 1 ? choice("run", names, String(view.run), pickRun) : null,
    metrics.length > 1 ? choice("score", metrics, view.metric, pickMetric) : null,
    choice("colours", themes, document.documentElement.dataset.theme ?? "", theme),
    methods.size > 1 ? h("fieldset", { class: "row methods" }, h("legend", {}, "methods"), boxes) : null,
  ];
}

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}

function sections() {
  const run = loaded(view.run);
  const settings = run.settings.filter((setting) => !view.hidden.has(setting.method));
  const speeds = speedRuns(run.model);
  const browser = run === NO_RUN ? null : browserSection(run, settings, view);
  const made = [
    browser ? settingsTable(run, settings) : null,
    browser ? plotSection(run, settings, view.metric) : null,
    run.frontier ? frontierSection(run, settings) : null,
    speeds.length ? speedSection(speeds, view.hidden) : null,
    run.heatmap ? heatmapSection(run, settings, view.metric, browser.showCell) : null,
    run.tasks?.length ? tasksTable(run, settings) : null,
    browser?.node,
    provenance([run, ...speeds]),
  ].filter(Boolean);
  document.getElementById("main").replaceChildren(...made);
  const links = made.map((one) => h("a", { href: `#${one.id}` }, one.querySelector("h2").textContent));
  document.getElementById("contents").replaceChildren(...links);
}

/** The commands that made the records, with versions and machine; the whole manifests fold out. */
function provenance(folders) {
  const runs = folders.flatMap(({ manifests }) => manifests);
  const machine = ({ hardware }) => (hardware?.gpus?.length ? hardware.gpus.join(", ") : hardware?.cpu);
  const code = ({ kvbench, git }) => [kvbench, git?.slice(0, 10)].filter(Boolean).join(" ");
  const columns = [
    { title: "run", value: (manifest) => manifest.run },
    { title: "status", value: (manifest) => manifest.status },
    { title: "records", number: true, value: (manifest) => manifest.records },
    { title: "seconds", number: true, value: (manifest) => manifest.wall_seconds },
    { title: "kvbench", value: code },
    { title: "torch", value: (manifest) => manifest.packages?.torch },
    { title: "transformers", value: (manifest) => manifest.packages?.transformers },
    { title: "machine", value: machine },
  ];
  const manifests = runs.length
    ? table(columns, runs, { label: "manifests" }).node
    : note("This folder holds no manifest: what made its records is unknown.");
  const whole = runs.map((manifest) => {
    const json = h("pre", {}, JSON.stringify(manifest, null, 2));
    return h("details", {}, h("summary", {}, `manifest of ${manifest.run}`), json);
  });
  const commands = folders.flatMap((folder) => folder.commands).map(commandLine);
  return section("provenance", "Provenance", manifests, commands, whole);
}

/** A command that stands for a configuration, and the runs that had it. */
function commandLine({ command, exact, runs }) {
  const unlike = exact ? "" : " The configuration in the manifest differs from this command's in this version of kvbench.";
  return [note(`Command of ${runs.join(", ")}.${unlike}`), h("pre", { class: "command" }, command)];
}

show();
