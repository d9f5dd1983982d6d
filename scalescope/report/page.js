// Draws the specifications that the page holds. No figure is computed here.
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
})();
