// The tables of servers under load: latency, throughput and capacity, beside the answers of the run that is shown.

/** Every run of loads, the runs of this model first. */
function serveRuns(model) {
  const ofModel = (serve) => serve.model === model;
  const all = data("serves");
  return [...all.filter(ofModel), ...all.filter((serve) => !ofModel(serve))];
}

/** A figure of each load of a model, as `measuredSpeeds` has speeds. */
function measuredLoads(model) {
  const runs = data("serves").filter((serve) => serve.model === model);
  return runs.flatMap(({ name, across }) =>
    across.map(({ text, of: figures }) => {
      const title = runs.length > 1 ? `${text} (${name})` : text;
      return { key: title, text: title, brief: title, figures: new Map(Object.entries(figures)) };
    }),
  );
}

/** `index` is the number of the run that is shown; its answers stand in the tables of loads under the same settings. */
function serveSection(serves, index, hidden) {
  const parts = serves.map(({ name, tables }) => [
    h("h3", {}, name),
    textTable(`served ${name}`, tables[index] ?? tables[""], hidden),
  ]);
  return section("served", "Latency and throughput of servers", parts);
}
