"""Your own method in a few lines, held to the same contract as ours.

Pseudo-labelling: trust the head on samples the detector accepts, and train the backbone on its labels.

    python examples/own_method.py
"""

from __future__ import annotations

from typing import final

import torch.nn.functional as F
from torch import Tensor

from owttt import Forward, Method, Verdict
from owttt.checks import CHECKS, check_method


@final
class PseudoLabel(Method):
    """Cross entropy to the head's own answer, on accepted samples."""

    name = "pseudo-label"

    def __init__(self, *, lr: float = 1e-3, momentum: float = 0.9) -> None:
        super().__init__()
        self.lr = lr
        self.momentum = momentum

    def setup(self) -> None:
        """Train all but the head."""
        self.optimize_backbone(self.lr, self.momentum)

    def adapt(self, x: Tensor, out: Forward, verdict: Verdict) -> None:
        """Take one step."""
        accepted = x[verdict.known]
        if len(accepted):
            logits = self.network(accepted).logits.float()
            self.descend(F.cross_entropy(logits, logits.argmax(dim=1)))


def main() -> None:
    """Run the contract suite."""
    check_method(PseudoLabel)
    print(f"{PseudoLabel.name} passes all {len(CHECKS)} checks.")


if __name__ == "__main__":
    main()
