// The step slider, and the download: what is shown as one page of its own.

let step = null;

function turn() {
  const slider = element.querySelector(".step input");
  if (!slider) return;
  if (step !== null) slider.value = step;
  element.querySelector(".step output").textContent = slider.value;
  for (const maps of element.querySelectorAll(".maps figure")) {
    const images = [...maps.querySelectorAll("img")];
    const last = Math.min(Number(slider.value), images.length);
    for (const image of images) image.hidden = Number(image.dataset.step) !== last;
  }
}

function download() {
  const copy = element.cloneNode(true);
  for (const gone of copy.querySelectorAll("button, .step")) gone.remove();
  for (const image of copy.querySelectorAll(".maps img")) image.hidden = false; // all steps, side by side
  const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>PRISM</title><style>${props.style}
    body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}</style>
    <div class="results">${copy.innerHTML}</div></html>`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([page], { type: "text/html" }));
  link.download = "prism.html";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

element.addEventListener("input", (event) => {
  if (!event.target.closest(".step")) return;
  step = event.target.value;
  turn();
});
element.addEventListener("click", (event) => {
  if (event.target.closest("[data-do=download]")) download();
});
watch("value", turn);
turn();
