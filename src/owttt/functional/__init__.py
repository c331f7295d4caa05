"""Pure functions, tensors in and tensors out: every formula of the library, none of its state."""

from owttt.functional.accuracies import (
    auroc,
    effective_classes,
    expected_calibration_error,
    fpr_at_tpr,
    harmonic_mean,
    oscr,
)
from owttt.functional.gaussians import (
    Gaussian,
    add_ridge,
    covariance,
    gaussian_kl,
    inverse,
    ridge,
    running_gaussian,
    symmetric_kl,
    symmetric_kl_diagonal,
)
from owttt.functional.groups import two_groups
from owttt.functional.losses import (
    covariance_discrepancy,
    entropy,
    information_maximization,
    known_clustering,
    mean_discrepancy,
    supervised_contrastive,
    unit_logits,
    unknown_clustering,
)
from owttt.functional.precision import fresh_autocast, full_precision, wide, widest
from owttt.functional.prototypes import expansion_threshold, follow, isolated_samples, kept
from owttt.functional.scores import (
    centered_score,
    cosine_score,
    cosine_similarity,
    energy_score,
    max_softmax_score,
    nearest_score,
    pool_score,
)
from owttt.functional.thresholds import evidence_threshold, otsu_threshold, threshold_candidates

__all__ = [
    "Gaussian",
    "add_ridge",
    "auroc",
    "centered_score",
    "cosine_score",
    "cosine_similarity",
    "covariance",
    "covariance_discrepancy",
    "effective_classes",
    "energy_score",
    "entropy",
    "evidence_threshold",
    "expansion_threshold",
    "expected_calibration_error",
    "follow",
    "fpr_at_tpr",
    "fresh_autocast",
    "full_precision",
    "gaussian_kl",
    "harmonic_mean",
    "information_maximization",
    "inverse",
    "isolated_samples",
    "kept",
    "known_clustering",
    "max_softmax_score",
    "mean_discrepancy",
    "nearest_score",
    "oscr",
    "otsu_threshold",
    "pool_score",
    "ridge",
    "running_gaussian",
    "supervised_contrastive",
    "symmetric_kl",
    "symmetric_kl_diagonal",
    "threshold_candidates",
    "two_groups",
    "unit_logits",
    "unknown_clustering",
    "wide",
    "widest",
]
