// On a site that is opened from the disk, the search's worker is started from its text: see docs/site/offline_search.py.
if (location.protocol === "file:") {
  const source = new URL("../search/search_worker.js", document.currentScript.src);
  document.write(`<script src="${source}"></script>`);
  window.Worker = class extends Worker {
    constructor() {
      super(URL.createObjectURL(new Blob([__searchWorker], { type: "text/javascript" })));
    }
  };
}
