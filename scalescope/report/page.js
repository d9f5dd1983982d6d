// Draws the specifications that the page holds, and sorts a table by the column whose head is clicked. No figure is
// computed here.
(() => {
  "use strict";
  const specs = JSON.parse(document.getElementById("specs").textContent);
  // `ast` lets Vega interpret its expressions, so that the page can forbid eval; names reach the tooltip as text only
  const options = {
    mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };
  for (const [id, spec] of Object.entries(specs)) {
    const place = document.getElementById(id);
    window.vegaEmbed(place, spec, options).then(
      () => { place.dataset.drawn = "yes"; place.style.minHeight = ""; },
      (error) => { place.dataset.drawn = "no"; place.textContent = `This chart could not be drawn: ${error.message}`; },
    );
  }
  // charts are drawn while they are folded; a browser that gave them no room then lays them out again once they are seen
  const folds = [...document.querySelectorAll("details.fold, details.more")];
  for (const fold of folds) fold.addEventListener("toggle", () => window.dispatchEvent(new Event("resize")));
  const unfold = document.getElementById("unfold");
  unfold.hidden = false;
  unfold.addEventListener("click", () => {
    const open = folds.some((fold) => !fold.open);
    for (const fold of folds) fold.open = open;
    unfold.textContent = open ? "Fold everything" : "Open everything";
  });
  const follow = () => {
    const place = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (place) for (const fold of place.querySelectorAll("details.fold")) fold.open = true;
  };
  window.addEventListener("hashchange", follow);
  follow();
  const figure = (cell) => parseFloat(cell.textContent.replace(/[,\u00a0\s]/g, "").replace("−", "-"));
  const order = (column, numbers) => (left, right) => {
    const [a, b] = [left.cells[column], right.cells[column]];
    if (!numbers) return a.textContent.localeCompare(b.textContent);
    const [x, y] = [figure(a), figure(b)];
    return Number.isNaN(x) ? (Number.isNaN(y) ? 0 : 1) : Number.isNaN(y) ? -1 : y - x; // what is absent comes last
  };
  for (const head of document.querySelectorAll("thead th")) {
    head.tabIndex = 0;
    const sort = () => {
      const body = head.closest("table").tBodies[0];
      const back = head.getAttribute("aria-sort") === "descending";
      for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", back ? "ascending" : "descending");
      const rows = [...body.rows].sort(order(head.cellIndex, head.classList.contains("n")));
      body.append(...(back ? rows.reverse() : rows));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  }
})();
