// The tables of servers under load: latency, throughput and capacity, beside the answers of the run that is shown.

/** Every run of loads, those of this model first. */
function serveRuns(model) {
  const ours = (serve) => serve.model === model;
  const all = data("serves");
  return [...all.filter(ours), ...all.filter((serve) => !ours(serve))];
}

/** A figure of each load of a model, as `measuredSpeeds` has speeds. */
function measuredLoads(model) {
  const runs = data("serves").filter((serve) => serve.model === model);
  return runs.flatMap(({ name, across }) =>
    across.map(({ text, of }) => {
      const told = runs.length > 1 ? `${text} (${name})` : text;
      return { key: told, text: told, brief: told, of: new Map(Object.entries(of)) };
    }),
  );
}

/** `index`: of the run that is shown, whose answers stand in the tables of loads under the same settings. */
function serveSection(serves, index, hidden) {
  const made = serves.map(({ name, tables }) => [
    h("h3", {}, name),
    textTable(`served ${name}`, tables[index] ?? tables[""], hidden),
  ]);
  return section("served", "Latency and throughput of servers", made);
}
