// Two runs side by side: settings of one name, over the samples that both have.

function besideSection(run, settings, other, others, metric) {
  const pairs = settings
    .map((setting) => ({ setting, beside: others.find(({ label }) => label === setting.label) }))
    .filter(({ beside }) => beside?.scores[metric])
    .map((pair) => ({ ...pair, ...compared(run, other, pair, metric) }))
    .filter(({ samples }) => samples);
  const number = (title, value, digits, hint) => ({ title, value, hint, number: true, text: (row) => fixed(value(row), digits) });
  const score = ({ title }, value) => ({ ...number(`${metric}: ${title}`, value), text: (row) => scoreText(metric, value(row)) });
  const columns = [
    { title: "setting", value: ({ setting }) => setting.label },
    score(run, ({ here }) => here),
    score(other, ({ there }) => there),
    {
      ...number("difference", ({ difference }) => difference, 3, `${other.title} minus ${run.title}`),
      text: ({ difference }) => signed(difference, metric),
    },
    {
      ...number("95 % interval", ({ low }) => low, 3, "of the difference, by bootstrap over what was drawn independently"),
      text: ({ low, high }) => (low == null ? "–" : `${signed(low, metric)} to ${signed(high, metric)}`),
    },
    number("samples", ({ samples }) => samples, 0),
    number(`${run.bytes}: ${run.title}`, ({ setting }) => setting.r_bytes, 3),
    number(`${other.bytes}: ${other.title}`, ({ beside }) => beside.r_bytes, 3),
  ];
  const words = note(
    `Means over the samples that both runs have. The difference is ${other.title} minus ${run.title}, with an interval by `,
    `bootstrap over what was drawn independently (${DRAWS} draws). Where it contains 0, these samples show no difference.`,
  );
  const empty = "no setting of one name has samples in both runs";
  return section("beside", "Side by side", words, table(columns, pairs, { label: "side by side", empty }).node);
}

/** A difference of a metric's means. */
function signed(value, metric) {
  return `${value > 0 ? "+" : ""}${scoreText(metric, value)}`;
}

/** Whether one name stands for two prompts of a model, such as rows of two files; packs have no prompts. */
function otherPrompt(run, number, other, otherNumber) {
  const [one, two] = [run.samples.end?.[number], other.samples.end?.[otherNumber]];
  return run.model === other.model && Boolean(one && two) && one !== two;
}

/** Means over tasks of the samples that both runs have, their difference with its interval, and the number of samples. */
function compared(run, other, { setting, beside }, metric) {
  const index = run.settings.indexOf(setting);
  const otherIndex = other.settings.indexOf(beside);
  const score = ({ records }, record) => (record < 0 ? null : records.scores[metric]?.[record]);
  const scored = run.samples.id.map((id, number) => {
    const named = other.numberOf.get(id);
    const otherNumber = otherPrompt(run, number, other, named) ? undefined : named;
    return {
      task: run.samples.task?.[number],
      context: run.samples.context?.[number] ?? id,
      here: score(run, run.recordOf(number, index)),
      there: otherNumber === undefined ? null : score(other, other.recordOf(otherNumber, otherIndex)),
    };
  });
  const both = scored.filter(({ here, there }) => here != null && there != null);
  if (!both.length) return { samples: 0 };
  const tasks = [...Map.groupBy(both, ({ task }) => task).values()];
  const average = (value) => mean(tasks.map((task) => mean(task.map(value))));
  const [here, there] = [average((sample) => sample.here), average((sample) => sample.there)];
  const contexts = tasks.map((task) => [...Map.groupBy(task, ({ context }) => context).values()]);
  const [low, high] = pairedInterval(contexts, run.bounded.includes(metric));
  return { here, there, difference: there - here, low, high, samples: both.length };
}
