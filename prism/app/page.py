"""The page: an image to paint on at the left, what the networks make of it at the right.

An answer is computed from one message alone: the browser sends the image, the mask and the switches. So visitors
never see each other's images.
"""

import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import torch
from starlette.middleware import Middleware

from prism.analysis.pairs import hide
from prism.app import drawing
from prism.app.drawing import ASSETS
from prism.app.explanation import Switches, explain
from prism.app.gate import Gate
from prism.app.intake import MOST_BYTES, as_pixels, check_bytes, read_mask, read_url, square, to_url
from prism.app.networks import Players, open_players
from prism.app.samples import Examples, Sample, examples, samples
from prism.data.images import Unreadable
from prism.occlusion.benchmark import CLEAN, Setting
from prism.occlusion.masks import REFERENCE, mask_generator

BRUSH, DYNAMIC = "Brush", "auto"
WORDS = """# PRISM playground
Hide parts of an image, by brush or by mask, and watch what the network predicts, how many steps it takes, how its slots
group the image, what its memory recalls, and how close its features come to those of the clean image.
"""
MOST_VISITORS = 32  # whose last image gradio keeps in memory; we do not use it
HIDINGS = {
    "PatchMask": "Share of patches hidden",
    "BlockMask": "Side of the hidden block",
    "OnlyOne": "Side of the block that stays",
}


class Playground(NamedTuple):
    players: Players
    samples: list[Sample]
    examples: Examples | None

    @property
    def colour(self) -> torch.Tensor:
        """Of what is hidden: the mean of the data, 0 after normalisation."""
        return torch.tensor(self.players.ours.mean)


def build(playground: Playground) -> gr.Blocks:
    colour = f"rgb({','.join(str(round(255 * part)) for part in playground.colour.tolist())})"
    first = playground.samples[0]
    most_steps = playground.players.network.max_steps
    style = (ASSETS / "page.css").read_text()

    with gr.Blocks(title="PRISM playground", analytics_enabled=False) as page:
        gr.Markdown(WORDS)
        with gr.Row():
            with gr.Column(scale=2, min_width=320, elem_classes="left"):
                easel = gr.HTML(
                    _on_easel(first),
                    html_template=(ASSETS / "easel.html").read_text(),
                    js_on_load=(ASSETS / "easel.js").read_text(),
                    elem_classes="easel",
                    apply_default_css=False,
                    samples=[{"image": s.image, "title": s.truth or s.note} for s in playground.samples],
                    colour=colour,
                    most=MOST_BYTES,
                    veil="",
                )
                kind = gr.Radio([BRUSH, *HIDINGS], value=BRUSH, label="Hide by")
                with gr.Row(visible=False) as how_much:
                    strength = gr.Slider(0, 1, 0.5, step=0.05, scale=3)
                    elsewhere = gr.Button("Elsewhere", scale=1, min_width=100)
                seed = gr.Number(0, precision=0, visible="hidden")
                with gr.Row():
                    memory = gr.Checkbox(
                        True, label="Memory", info="restore slots from prototypes", min_width=120, scale=1
                    )
                    steps = gr.Radio([DYNAMIC, *range(1, most_steps + 1)], value=DYNAMIC, label="Steps", scale=2)
            with gr.Column(scale=3, min_width=320):
                results = gr.HTML(
                    js_on_load=(ASSETS / "results.js").read_text(),
                    elem_classes="results",
                    apply_default_css=False,
                    style=style,
                )

        def shown(
            value: Any, kind: str, strength: float, seed: int, memory: bool, steps: str | int
        ) -> tuple[str, gr.HTML]:
            switches = Switches(memory, None if steps == DYNAMIC else int(steps))
            return _explained(playground, value, _setting(kind, strength), seed, switches)

        def chosen(event: gr.EventData) -> dict[str, str]:
            index = _told(event).get("index")
            if not isinstance(index, int) or not 0 <= index < len(playground.samples):
                raise gr.Error("there is no such sample", print_exception=False)
            return _on_easel(playground.samples[index])

        settings = [kind, strength, seed, memory, steps]
        quiet: dict[str, Any] = dict(show_progress="hidden", api_visibility="private")
        gr.on(
            [page.load, easel.change, *(setting.change for setting in settings)],
            shown,
            [easel, *settings],
            [results, easel],
            trigger_mode="always_last",
            **quiet,
        )
        kind.change(_slider, kind, [how_much, strength], **quiet)
        elsewhere.click(None, seed, seed, js="(seed) => seed + 1")
        easel.select(chosen, None, easel, **quiet)
        easel.upload(_opened, None, easel, **quiet)
    return page


def open_playground(checkpoint: Path | None, baseline: Path | None, folder: Path | None) -> Playground:
    """Networks from files, and images to try them on: from a folder, or scenes."""
    players = open_players(checkpoint, baseline)
    return Playground(players, samples(players, folder), examples(players, folder))


def serve(playground: Playground, host: str, port: int) -> None:
    """Open the page to visitors, until interrupted."""
    _check_free(host, port)
    page = build(playground)
    page.queue(max_size=64, api_open=False)
    print(f"the playground is at http://{host}:{port}; Ctrl-C ends it", flush=True)
    page.launch(
        server_name=host,
        server_port=port,
        share=False,
        ssr_mode=False,
        run_history=False,
        state_session_capacity=MOST_VISITORS,
        footer_links=[],
        quiet=True,
        app_kwargs={"middleware": [Middleware(Gate)]},
        theme=gr.themes.Default(
            primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
        ),
        css=(ASSETS / "page.css").read_text(),
    )


def _check_free(host: str, port: int) -> None:
    """Checked here: gradio would do so in a thread of its own and fail there."""
    if not 0 < port < 65536:
        raise ValueError(f"--port must be from 1 to 65535, got {port}")
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(place, family=family).close()
    except OSError as error:
        raise ValueError(f"cannot listen on {host}:{port} ({error}): choose another --port or --host") from None


def _explained(
    playground: Playground, value: Any, setting: Setting, seed: int, switches: Switches
) -> tuple[str, gr.HTML]:
    """The results, and what lies over the image on the easel."""
    started = time.perf_counter()
    try:
        image = as_pixels(read_url(_text(value, "image")), playground.players.size)
        painted = read_mask(_text(value, "mask"), playground.players.size)
        pair = hide(image, setting, mask_generator(0, seed), playground.colour, painted)
    except ValueError as error:
        raise gr.Error(str(error), print_exception=False) from None
    found = explain(playground.players, pair, switches)
    body = drawing.results(found, playground.examples, _text(value, "truth"))
    seconds = time.perf_counter() - started
    foot = f'<div class="foot"><button type="button" data-do="download">Download</button>{seconds:.2f} s</div>'
    return body + foot, gr.HTML(veil=drawing.veil(pair.hidden, playground.colour))


def _opened(event: gr.EventData) -> dict[str, str]:
    """A visitor's own image, if it is one."""
    told = _told(event)
    if told.get("webcam") is False:
        raise gr.Error("the browser does not give this page access to a webcam", print_exception=False)
    try:
        if isinstance(size := told.get("size"), int):
            check_bytes(size)  # a file that is too large comes without its content
        return _on_easel(Sample(to_url(square(read_url(_text(told, "url"))))))
    except Unreadable as error:
        raise gr.Error(str(error), print_exception=False) from None


def _setting(kind: str, strength: float) -> Setting:
    """The benchmark's setting; a strength from 0 to 1 is a share of patches, or of the image's side."""
    if kind == BRUSH:
        return CLEAN
    return Setting(kind, strength if kind == "PatchMask" else strength * REFERENCE)  # pyright: ignore


def _slider(kind: str) -> tuple[gr.Row, gr.Slider]:
    return gr.Row(visible=kind != BRUSH), gr.Slider(label=HIDINGS.get(kind, ""))


def _on_easel(sample: Sample) -> dict[str, str]:
    return {"image": sample.image, "mask": "", "truth": sample.truth}


def _told(event: gr.EventData) -> dict[str, Any]:
    return event._data if isinstance(event._data, dict) else {}


def _text(value: Any, field: str) -> str:
    """What the browser sent under this name: anything may come."""
    found = value.get(field) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
