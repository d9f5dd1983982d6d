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
