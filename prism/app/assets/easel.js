// An image to paint on. Its value is {image, mask, truth}: what lies on the easel, and what was painted, black on
// white. Files are not opened here: they go to the server as they are, which checks them and sends an image back.

const canvas = element.querySelector("canvas"), pen = canvas.getContext("2d");
const find = (selector) => element.querySelector(selector);
const image = find(".image"), veil = find(".veil"), video = find("video"), chooser = find("input[type=file]");
let strokes = [], stroke = null, shown = null;

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
  draw(pen, props.colour);
}

function send() {
  let mask = "";
  if (strokes.length) {
    const sheet = document.createElement("canvas"), context = sheet.getContext("2d");
    sheet.width = sheet.height = canvas.width / 2;
    context.fillStyle = "white";
    context.fillRect(0, 0, sheet.width, sheet.height);
    context.scale(0.5, 0.5);
    draw(context, "black");
    mask = sheet.toDataURL();
  }
  props.value = { ...props.value, mask };
}

function show() {
  if (!props.value || props.value.image === shown) return;
  shown = props.value.image;
  image.src = shown;
  strokes = [];
  repaint();
}

function place(event) {
  const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  const point = place(event);
  stroke = { width: Number(find("input[type=range]").value), points: [point, point] };
  strokes.push(stroke);
  repaint();
});
canvas.addEventListener("pointermove", (event) => {
  if (!stroke) return;
  stroke.points.push(place(event));
  repaint();
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, () => {
    if (!stroke) return;
    stroke = null;
    send();
  });
}

function submit(file) {
  if (file.size > props.most) return trigger("upload", { size: file.size });
  const reader = new FileReader();
  reader.onload = () => trigger("upload", { size: file.size, url: reader.result });
  reader.readAsDataURL(file);
}

function stopWebcam() {
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  element.classList.remove("filming");
  find("[data-do=webcam]").textContent = "Webcam";
}

async function webcam() {
  if (!video.srcObject) {
    try {
      video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      await video.play();
    } catch {
      return trigger("upload", { size: 0, webcam: false });
    }
    element.classList.add("filming");
    find("[data-do=webcam]").textContent = "Take photo";
    return;
  }
  const still = document.createElement("canvas");
  [still.width, still.height] = [video.videoWidth, video.videoHeight];
  still.getContext("2d").drawImage(video, 0, 0);
  stopWebcam();
  still.toBlob(submit, "image/jpeg", 0.95);
}

const actions = {
  open: () => chooser.click(),
  webcam,
  undo: () => { strokes.pop(); repaint(); send(); },
  clear: () => { strokes = []; repaint(); send(); },
};
element.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.do) actions[button.dataset.do]();
  if (button?.dataset.sample) {
    stopWebcam();
    trigger("select", { index: Number(button.dataset.sample) });
  }
});
chooser.addEventListener("change", () => {
  if (chooser.files.length) submit(chooser.files[0]);
  chooser.value = "";
});
element.addEventListener("dragover", (event) => event.preventDefault());
element.addEventListener("drop", (event) => {
  event.preventDefault();
  if (event.dataTransfer.files.length) submit(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) submit(event.clipboardData.files[0]);
});

watch("value", show);
watch("veil", () => { veil.src = props.veil; });
show();
