// What made the records: commands, versions, machines and whole manifests.

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
    : note("This folder has no manifest, so the command and the versions behind its records are unknown.");
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
