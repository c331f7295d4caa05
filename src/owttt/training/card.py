"""The model card as a page to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def markdown(card: Mapping[str, Any]) -> str:
    """Return a card in Markdown."""
    recipe, environment = card["recipe"], card["environment"]
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
        *([_origin(card["start"])] if card.get("start") else []),
        *([_taught(card)] if card.get("teacher") else []),
        f"{recipe.get('optimizer', 'sgd').upper()}, {recipe['epochs']} epochs in batches of {recipe['batch_size']}; "
        f"rate {recipe['lr']:g} after a warm-up over {recipe['warmup']:.0%} of the steps, then falling to 0; "
        f"weight decay {recipe['weight_decay']:g}, label smoothing {recipe['label_smoothing']:g};",
        "clouds are stretched along each axis." if clouds else _shown(recipe),
        f"Seed {recipe['seed']}, {minutes:.0f} minutes. owttt {environment['owttt']}, torch {environment['torch']}, "
        f"{environment['threads']} thread(s), {environment['machine']}.",
    ]
    return "\n".join(lines) + "\n"


def _shown(recipe: Mapping[str, Any]) -> str:
    return (
        f"shifts by up to {recipe['pad']} pixels{', flips' if recipe['flip'] else ''}, colors varied by "
        f"{recipe.get('color', 0):g}; the first {recipe['small_until']:.0%} of the epochs on images of "
        f"{recipe['small_size']:.0%} of the side."
    )


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
