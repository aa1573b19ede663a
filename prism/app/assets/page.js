// The easel, and what the server says about what is on it. One message holds all that an answer needs.

const find = (selector, inside = document) => inside.querySelector(selector);
const findAll = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const SIDE = 320, CROP = 0.875; // as intake.py has them
const canvas = find("canvas"), pen = canvas.getContext("2d"), video = find("video"), chooser = find("input[type=file]");
const results = find(".results"), headline = find(".headline"), message = find(".message"), amount = find(".strength");
const state = { image: "", truth: "", seed: 0 };
let strokes = [], stroke = null, asking = false, changed = false, step = null, opening = null;

// ---- asking: one question at a time, and always the newest

const chosen = (name) => find(`input[name=${name}]:checked`);
const place = () => find(`[data-set="${CSS.escape(chosen("set").value)}"]`);

async function ask() {
  changed = true;
  if (asking) return;
  asking = true;
  while (changed) {
    changed = false;
    const pause = await answer();
    if (pause) {
      await new Promise((done) => setTimeout(done, pause));
      changed = true;
    }
  }
  asking = false;
}

async function answer() {
  const mask = chosen("mask"), share = Number(find("input", amount).value);
  const question = { ...state, set: chosen("set").value, mask: painted(), kind: mask.value, strength: share * mask.dataset.most };
  let reply, told;
  try {
    reply = await fetch("answer", { method: "POST", body: JSON.stringify(question), headers: { "Content-Type": "application/json" } });
    told = await reply.json();
  } catch {
    message.textContent = "The playground is not responding. Trying again in a moment.";
    return 3000;
  }
  message.textContent = told.error ?? "";
  if (reply.status === 503) return 2000;
  if (!reply.ok) return 0;
  results.innerHTML = told.results;
  document.body.classList.toggle("stale", question.image !== state.image);
  headline.replaceChildren(...find(".headline", results).childNodes);
  const seen = find(".seen", results);
  seen.style.setProperty("--image", `url(${question.image})`);
  find(".veil").style.backgroundImage = seen.style.getPropertyValue("--veil");
  turn();
  return 0;
}

// ---- painting

function draw(context, colour) {
  context.strokeStyle = colour;
  context.lineCap = context.lineJoin = "round";
  for (const { width, points } of strokes) {
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(...points[0]);
    for (const point of points) context.lineTo(...point);
    context.stroke();
  }
}

function repaint() {
  pen.clearRect(0, 0, canvas.width, canvas.height);
  draw(pen, place().dataset.colour);
}

function painted() {
  if (!strokes.length) return "";
  const [sheet, context] = blank(SIDE);
  context.fillStyle = "white";
  context.fillRect(0, 0, SIDE, SIDE);
  context.scale(SIDE / canvas.width, SIDE / canvas.height);
  draw(context, "black");
  return sheet.toDataURL();
}

function blank(side) {
  const sheet = document.createElement("canvas");
  sheet.width = sheet.height = side;
  return [sheet, sheet.getContext("2d")];
}

function position(event) {
  const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  const point = position(event);
  stroke = { width: Number(find(".brush").value), points: [point, point] };
  strokes.push(stroke);
  repaint();
  ask();
});
canvas.addEventListener("pointermove", (event) => {
  if (!stroke) return;
  stroke.points.push(position(event));
  repaint();
  ask();
});
for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { stroke = null; });

// ---- images: samples, files, the webcam

function show(image, truth = "", { kind = "", strength = 0, seed = 0 } = {}, sample = null) {
  Object.assign(state, { image, truth, seed: Number(seed) });
  opening = null;
  document.body.classList.add("stale");
  strokes = [];
  repaint();
  find(".image").src = image;
  find(".veil").style.backgroundImage = "none";
  const mask = find(`input[name=mask][value="${kind}"]`);
  mask.checked = true;
  if (kind) find("input", amount).value = strength / mask.dataset.most;
  amount.hidden = !kind;
  for (const button of findAll(".samples button")) {
    button.setAttribute("aria-pressed", String(button === sample));
  }
  ask();
}

function showSample(button) {
  stopWebcam();
  show(find("img", button).src, button.dataset.truth, button.dataset, button);
}

/** The middle square of an image, small: what the network sees, and all that is sent. */
function squared(image, width, height) {
  const side = CROP * Math.min(width, height), small = Math.max(1, Math.min(SIDE, Math.round(side)));
  const [sheet, context] = blank(small);
  context.imageSmoothingQuality = "high";
  context.fillStyle = "white";
  context.fillRect(0, 0, small, small);
  context.drawImage(image, (width - side) / 2, (height - side) / 2, side, side, 0, 0, small, small);
  return sheet.toDataURL();
}

async function openFile(file) {
  stopWebcam();
  opening = file; // a large file takes seconds to decode: the last choice wins
  message.textContent = `Opening ${file.name} …`;
  let image = null;
  try {
    image = await createImageBitmap(file);
  } catch {}
  if (opening !== file) return image?.close();
  message.textContent = image ? "" : `${file.name} is not an image that this browser can open.`;
  if (!image) return;
  show(squared(image, image.width, image.height));
  image.close();
}

function stopWebcam() {
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  video.hidden = true;
  find("[data-do=webcam]").textContent = "Webcam";
}

async function webcam() {
  if (video.srcObject) {
    const image = squared(video, video.videoWidth, video.videoHeight);
    stopWebcam();
    return show(image);
  }
  try {
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    await video.play();
  } catch {
    message.textContent = "This page has no access to a webcam.";
    return stopWebcam();
  }
  video.hidden = false;
  find("[data-do=webcam]").textContent = "Take photo";
}

chooser.addEventListener("change", () => {
  if (chooser.files.length) openFile(chooser.files[0]);
  chooser.value = "";
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  if (event.dataTransfer.files.length) openFile(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) openFile(event.clipboardData.files[0]);
});

// ---- buttons and switches

/** Show the slot maps after the step of the slider; an image that halted before keeps its last. */
function turn() {
  const slider = find(".step input", results);
  if (!slider) return;
  if (step !== null) slider.value = step;
  find(".step b", results).textContent = slider.value;
  for (const figure of findAll(".maps figure", results)) {
    const maps = findAll("svg", figure), last = Math.min(Number(slider.value), maps.length);
    maps.forEach((map, index) => map.toggleAttribute("hidden", index + 1 !== last));
  }
}

async function download() {
  const copy = results.cloneNode(true);
  for (const gone of findAll("button, .step", copy)) gone.remove();
  find(".headline", copy).replaceChildren(...headline.cloneNode(true).childNodes);
  for (const map of findAll("svg", copy)) map.removeAttribute("hidden"); // all steps, side by side
  const style = await (await fetch("page.css")).text();
  const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>PRISM</title><style>${style}</style>
    <main><div class="results">${copy.innerHTML}</div></main></html>`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([page], { type: "text/html" }));
  link.download = "prism.html";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const actions = {
  open: () => chooser.click(),
  webcam,
  undo: () => { strokes.pop(); repaint(); ask(); },
  clear: () => { strokes = []; repaint(); ask(); },
  elsewhere: () => { state.seed += 1; ask(); },
  download,
};
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.do) actions[button.dataset.do]();
  if (button?.closest(".samples")) showSample(button);
});
document.addEventListener("input", (event) => {
  if (event.target.closest(".step")) {
    step = event.target.value;
    turn();
  } else if (event.target.name === "set") {
    for (const set of findAll("[data-set]")) set.hidden = set !== place();
    showSample(find(".samples button", place()));
  } else if (event.target.name === "mask" || event.target.closest(".strength")) {
    amount.hidden = !chosen("mask").value;
    ask();
  }
});

showSample(find(".samples button", place()));
