"""The model card as a page to read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from owttt.training.loop import EARLIER, Recipe

SIZE: Final = 32
"""The side of images in pixels, unless a job says otherwise."""
FIRST: Final = "first"
"""What the model is called that training went on from, in the commands that make both."""


def markdown(card: Mapping[str, Any]) -> str:
    """Return a card in Markdown."""
    recipe, environment = {**EARLIER, **card["recipe"]}, card["environment"]
    minutes = sum(epoch["seconds"] for epoch in card["history"]) / 60
    clouds = card.get("points") is not None
    samples, size = ("clouds", f"{card['points']} points") if clouds else ("images", f"{card['size']} px")
    mean = f"mean of the 15 corruptions, severity {card['severity']} ({card['corrupted_images']:,} {samples} each)"
    lines = [
        f"# {card['network']}, {card['classes']} classes, {size}",
        "",
        f"Trained on `{card['trained_on']}`, tested on `{card['tested_on']}`, {card['date']}. "
        f"{card['parameters']:,} parameters.",
        "It takes clouds (B, P, 3) of any scale; those of more points are thinned out by its frame."
        if clouds
        else "It takes RGB images, uint8 or float in 0 … 1; normalization is inside.",
        "",
        f"| test {samples} | accuracy (%) |",
        "|---|---|",
        f"| clean ({card['test_images']:,} {samples}) | {card['clean']:.2f} |",
        f"| {mean} | {card['corrupted_mean']:.2f} |",
        *(f"| {name} | {percent:.2f} |" for name, percent in card["corrupted"].items()),
        "",
        "The corruptions are this library's own, of the published constants"
        + (" (docs/clouds.md)." if clouds else "; frost overlays are synthetic."),
        "",
        "## Terms",
        "",
        "The code that made these weights is under the MIT license; the weights are under the terms of the data they "
        f"were trained on (`{card['trained_on']}`): {card.get('terms') or 'see the data set'}.",
        "",
        "## How it was made",
        "",
        "```bash",
        *([command(_beginning(card), FIRST)] if (card.get("start") or {}).get("recipe") else []),
        command(card),
        "```",
        "",
        *([_origin(card["start"])] if card.get("start") else []),
        *([_taught(card)] if card.get("teacher") else []),
        f"{recipe['optimizer'].upper()}, {recipe['epochs']} epochs in batches of {recipe['batch_size']}; "
        f"rate {recipe['lr']:g} after a warm-up over {recipe['warmup']:.0%} of the steps, then falling to 0; "
        f"weight decay {recipe['weight_decay']:g}, label smoothing {recipe['label_smoothing']:g};",
        "clouds are stretched along each axis." if clouds else _shown(recipe),
        f"Seed {recipe['seed']}, {minutes:.0f} minutes. owttt {environment['owttt']}, torch {environment['torch']}, "
        f"{environment['threads']} thread(s), {environment['machine']}.",
    ]
    return "\n".join(lines) + "\n"


def _beginning(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of how the model was made that training went on from."""
    return {**card, "teacher": None, "class_covariance": "auto", **card["start"]}


def command(card: Mapping[str, Any], out: str = "mymodel") -> str:
    """Return the command that makes a model again: all that differs from the defaults of today.

    Of models that it learned from it names the last part of the path; where they are is not recorded.
    """
    usual, recipe = asdict(Recipe()), {**EARLIER, **card["recipe"]}
    start = card.get("start") or {}
    choices = {
        "data": card["trained_on"],
        "test": card["tested_on"] if card["tested_on"] != card["trained_on"] else None,
        "network": card["network"],
        "width": card["width"],
        "size": card["size"] if card["size"] != SIZE and card.get("points") is None else None,
        "points": card.get("points"),
        "start": FIRST if start.get("recipe") else start.get("name"),
        "average": start.get("share") or None,
        "teacher": card.get("teacher"),
        "class_covariance": form if (form := card.get("class_covariance", "auto")) != "auto" else None,
        **{name: value for name, value in recipe.items() if value != usual[name]},
    }
    words = [_option(name.replace("_", "-"), value) for name, value in choices.items() if value is not None]
    return " ".join(["owttt train", *words, f"--out {shlex.quote(out)}"])


def _option(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {shlex.quote(str(value))}"


def _shown(recipe: Mapping[str, Any]) -> str:
    parts = [
        "AugMix" if recipe["augmix"] else "",
        f"shifts by up to {recipe['pad']} pixels",
        "flips" if recipe["flip"] else "",
        f"colors varied by {recipe['color']:g}",
        f"{recipe['views']} views of each image" if recipe["views"] > 1 else "",
        f"a supervised contrastive loss of weight {recipe['contrastive']:g}" if recipe["contrastive"] else "",
        f"the loss on logits of length 1, temperature {recipe['logit_norm']:g}" if recipe["logit_norm"] else "",
        f"weights averaged with a decay of {recipe['ema']:g}" if recipe["ema"] else "",
    ]
    small = f"the first {recipe['small_until']:.0%} of the epochs on images of {recipe['small_size']:.0%} of the side"
    return f"{', '.join(part for part in parts if part)}; {small}."


def _taught(card: Mapping[str, Any]) -> str:
    return f"Its teacher was `{card['teacher']}`, whose answers weigh {card['recipe']['distillation']:g}."


def _origin(start: Mapping[str, Any]) -> str:
    made = start.get("recipe") or {}
    share = (
        f"; the weights are {start['share']:.0%} that model's, {1 - start['share']:.0%} the trained one's"
        if start.get("share")
        else ""
    )
    how = (
        f", trained for {made['epochs']} epochs at {made['lr']:g}, label smoothing {made['label_smoothing']:g}"
        if made
        else ""
    )
    return f"It went on from `{start['name']}`{how} ({start.get('clean') or 0:.2f} % clean){share}."
