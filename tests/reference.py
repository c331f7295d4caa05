"""The paper's algorithm and its competitors written literally: loops, no cleverness, nothing shared with the library.

The library must equal this batch for batch. Where a rule below is ours and not the authors' (what happens when a group
is empty or nothing can be split), the comment says so.
"""

import copy
import itertools
import math
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from torch.distributions import MultivariateNormal, kl_divergence


def candidates(scores, unit=True):
    low, high = min(scores), max(scores)
    if not unit:
        ordered = sorted(scores)  # ours: scores without a natural range; one absurd score does not stretch it
        last = len(ordered) - 1
        lower, upper = ordered[math.floor(0.05 * last)], ordered[math.ceil(0.95 * last)]
        if upper > lower:
            low, high = max(low, lower - 5 * (upper - lower)), min(high, upper + 5 * (upper - lower))
        return [low + (high - low) * (i / 100) for i in range(100)]
    grid = [i / 100 for i in range(100)]
    while grid[-1] + 0.01 < high - 1e-5:
        grid.append(len(grid) / 100)  # ours: scores above 1
    return grid


def variance(values):
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def threshold(scores, weighted=True, exact=False, unit=True):
    """The loop over 100 candidates; `exact` computes in fractions, so that ties are ties."""
    number = Fraction if exact else float
    values = [number(score) for score in scores]
    best, least = math.inf, None
    for tau in candidates(scores, unit):
        below = [value for value in values if value < number(tau)]
        above = [value for value in values if value >= number(tau)]
        if not below or not above:
            continue
        if weighted:
            cost = (len(below) * variance(below) + len(above) * variance(above)) / len(values)
        else:
            cost = variance(below) + variance(above)
        if least is None or cost < least:
            best, least = tau, cost
    return best  # ours: infinity where nothing splits; the authors' program returns 0 and rejects everything


def symmetric_kl(mean_s, cov_s, mean_t, cov_t):
    source, target = MultivariateNormal(mean_s, cov_s), MultivariateNormal(mean_t, cov_t)
    return kl_divergence(source, target) + kl_divergence(target, source)


class RunningGaussian:
    def __init__(self, mean, cov, horizon):
        self.mean, self.cov, self.horizon, self.n = mean.clone(), cov.clone(), horizon, 0

    def update(self, features):
        b = len(features)
        self.n += b
        a = 1 / max(b, min(self.n, self.horizon))  # ours: max(b, ·)
        d = torch.zeros_like(self.mean)
        scatter = torch.zeros_like(self.cov)
        for f in features:
            delta = f - self.mean
            d = d + a * delta
            scatter = scatter + torch.outer(delta, delta)
        mean = self.mean + d
        cov = self.cov + a * (scatter - b * self.cov) - torch.outer(d, d)
        self.mean, self.cov = mean.detach(), cov.detach()
        return mean, cov


class Reference:
    """Detector, order and prediction; subclasses adapt. `released` is the authors' order."""

    def __init__(self, model, x, y, classes, *, released=False, score="cosine", window=512, rule=None, weighted=True):
        self.model = copy.deepcopy(model).eval()
        self.released, self.score_name, self.window = released, score, window
        self.rule, self.weighted = rule, weighted
        self.classes = classes
        with torch.no_grad():
            z = self.model.embed(x)
        self.class_means = torch.stack(
            [sum(z[i] for i in range(len(z)) if y[i] == k) / (y == k).sum() for k in range(classes)]
        )
        self.class_covs = torch.stack([self.cov_of(z[y == k]) for k in range(classes)])
        self.mean, self.cov = z.mean(dim=0), self.cov_of(z)
        self.prototypes = torch.stack([m / m.norm() for m in self.class_means])
        self.ridge = self.cov.max() / 30 * torch.eye(len(self.mean), dtype=z.dtype)
        self.source_features = z
        self.training_scores, self.inference_scores = [], []
        self.velocity = {}

    @staticmethod
    def cov_of(z):
        c = z - z.mean(dim=0)
        return c.T @ c / len(z)

    def forward(self, model, x):
        z = model.embed(x)
        return z, model.fc(z)

    def predicting_model(self, x):
        return self.model

    def score(self, z, logits):
        if callable(self.score_name):
            return [float(s) for s in self.score_name(z, logits)]
        scores = []
        for f, row in zip(z, logits, strict=True):
            if self.score_name == "cosine":
                scores.append(max(0, 1 - max(float(F.cosine_similarity(f, p, dim=0)) for p in self.prototypes)))
            elif self.score_name == "centered":
                cosines = [float(F.cosine_similarity(f - self.mean, m - self.mean, dim=0)) for m in self.class_means]
                scores.append(max(0, 1 - max(cosines)))
            elif self.score_name == "energy":
                scores.append(-math.log(sum(math.exp(float(v)) for v in row)))
            elif self.score_name == "max-softmax":
                total = sum(math.exp(float(v)) for v in row)
                scores.append(1 - max(math.exp(float(v)) / total for v in row))
        return scores

    def tau(self, scores):
        if isinstance(self.rule, float):
            return self.rule
        tau = threshold(scores, self.weighted, unit=self.score_name in ("cosine", "centered", "max-softmax"))
        return tau if self.rule is None else min(max(tau, self.rule[0]), self.rule[1])

    def step(self, x):
        with torch.no_grad():
            z, logits = self.forward(self.predicting_model(x), x)
        scores = self.score(z, logits)
        self.scores, self.last_tau = scores, None
        odd = self.strangers(x)
        if self.released:
            self.training_scores = (self.training_scores + self.others(scores, odd))[-self.window :]
            tau = self.tau(self.training_scores)
            self.adapt(x, scores, tau)
            with torch.no_grad():
                z, logits = self.forward(self.predicting_model(x), x)
            scores, odd = self.score(z, logits), self.strangers(x)
            self.inference_scores = (self.inference_scores + self.others(scores, odd))[-self.window :]
            tau = self.tau(self.inference_scores)
            self.scores, self.last_tau = self.raised(scores, odd, tau), tau
            return [-1 if s > tau or o else self.nearest(f) for s, f, o in zip(self.scores, z, odd, strict=True)]
        self.inference_scores = (self.inference_scores + self.others(scores, odd))[-self.window :]
        tau = self.last_tau = self.tau(self.inference_scores)
        self.scores = self.raised(scores, odd, tau)
        labels = [-1 if s >= tau or o else self.nearest(f) for s, f, o in zip(scores, z, odd, strict=True)]
        self.adapt(x, scores, tau)
        return labels

    def strangers(self, x):
        """Samples that are unknown whatever they score: none, but for a method that says so."""
        return [False] * len(x)

    @staticmethod
    def others(scores, odd):
        return [s for s, o in zip(scores, odd, strict=True) if not o]

    def raised(self, scores, odd, tau):
        highest = max([*self.inference_scores, *scores, *([tau] if tau < math.inf else [])])
        return [highest if o else s for s, o in zip(scores, odd, strict=True)]

    def nearest(self, f):
        cosines = [float(F.cosine_similarity(f, p, dim=0)) for p in self.prototypes]
        return cosines.index(max(cosines))

    def adapt(self, x, scores, tau):
        pass

    def sgd(self, gradients, lr, momentum):
        """Momentum: v ← m·v + g, θ ← θ - lr·v, for the parameters that have a gradient."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if gradients.get(name) is None:
                    continue
                g = gradients[name]
                self.velocity[name] = momentum * self.velocity[name] + g if name in self.velocity else g.clone()
                parameter.sub_(lr * self.velocity[name])

    def gradients(self, model, loss, head=False):
        names = [name for name, _ in model.named_parameters() if head or not name.startswith("fc.")]
        parameters = [dict(model.named_parameters())[name] for name in names]
        values = torch.autograd.grad(loss, parameters, allow_unused=True)
        return dict(zip(names, values, strict=True))


class Test(Reference):
    pass


def cut(gradients, max_norm):
    """Ours: a bound on the length of a step, as torch's clip_grad_norm_ has it."""
    if max_norm is None:
        return gradients
    length = math.sqrt(sum(float((g**2).sum()) for g in gradients.values() if g is not None))
    factor = min(1, max_norm / (length + 1e-6))
    return {name: g if g is None else g * factor for name, g in gradients.items()}


def batch_norm_layers(model):
    return [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]


class BN(Reference):
    """Batch statistics: what train mode does, on a copy whose running statistics nobody sees."""

    def predicting_model(self, x):
        return copy.deepcopy(self.model).train() if len(x) > 1 else self.model


class AlphaBN(Reference):
    """(1 - α)·source + α·batch, layer after layer."""

    def __init__(self, *args, alpha, **options):
        super().__init__(*args, **options)
        self.alpha = alpha

    def predicting_model(self, x):
        mixed = copy.deepcopy(self.model)
        with torch.no_grad():
            h = mixed.conv(x)
            self.mix(mixed.norm, [h[:, c].flatten() for c in range(h.shape[1])])
            h = F.avg_pool2d(F.relu(mixed.norm(h)), 2)
            h = mixed.hidden(h.flatten(1))
            self.mix(mixed.last, [h[:, c] for c in range(h.shape[1])])
        return mixed

    def mix(self, layer, channels):
        for c, values in enumerate(channels):
            if len(values) > 1:
                layer.running_mean[c] = (1 - self.alpha) * layer.running_mean[c] + self.alpha * values.mean()
                biased = ((values - values.mean()) ** 2).mean()
                layer.running_var[c] = (1 - self.alpha) * layer.running_var[c] + self.alpha * biased


def entropy(logits):
    p = logits.softmax(dim=0)
    return -sum(p[k] * torch.log(p[k]) for k in range(len(p)))


class Tent(BN):
    """Adam on the affine parameters, from the formulas of Adam."""

    def __init__(self, *args, lr=1e-3, optim="adam", momentum=0.9, prune=False, **options):
        super().__init__(*args, **options)
        self.lr, self.optim, self.momentum, self.prune = lr, optim, momentum, prune
        self.m, self.v, self.t = {}, {}, 0

    def adapt(self, x, scores, tau):
        model = self.predicting_model(x)
        _, logits = self.forward(model, x)
        rows = [i for i in range(len(x)) if not self.prune or scores[i] < tau]
        if not rows:
            return
        loss = sum(entropy(logits[i]) for i in rows) / len(rows)
        gradients = {k: g for k, g in self.gradients(model, loss).items() if k.split(".")[0] in ("norm", "last")}
        if self.optim == "sgd":
            self.sgd(gradients, self.lr, self.momentum)
            return
        self.t += 1
        with torch.no_grad():
            for name, g in gradients.items():
                self.m[name] = 0.9 * self.m.get(name, 0) + 0.1 * g
                self.v[name] = 0.999 * self.v.get(name, 0) + 0.001 * g * g
                first, second = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.999**self.t)
                dict(self.model.named_parameters())[name].sub_(self.lr * first / (second.sqrt() + 1e-8))


class BackboneMethod(Reference):
    """One forward pass in train mode, one SGD step on everything but the head."""

    lr_default, max_norm = 1e-3, None

    def __init__(self, *args, lr=None, momentum=0.9, prune=False, **options):
        super().__init__(*args, **options)
        self.lr, self.momentum, self.prune = self.lr_default if lr is None else lr, momentum, prune

    def adapt(self, x, scores, tau):
        rows = [i for i in range(len(x)) if not self.prune or scores[i] < tau]
        if not rows:
            return
        for layer in batch_norm_layers(self.model):
            layer.train(len(rows) > 1 or layer.running_mean.shape[0] == 8)  # ours: one value a channel has no variance
        z, logits = self.forward(self.model, x[rows])
        self.model.eval()
        self.sgd(self.clip(self.gradients(self.model, self.loss(z, logits))), self.lr, self.momentum)

    def clip(self, gradients):
        return cut(gradients, self.max_norm)


class Shot(BackboneMethod):
    def __init__(self, *args, weight=0.05, pseudo_weight=0.0, **options):
        super().__init__(*args, **options)
        self.weight, self.pseudo_weight = weight, pseudo_weight

    def loss(self, z, logits):
        p = logits.softmax(dim=1)
        mean = sum(p[i] for i in range(len(p))) / len(p)
        diversity = -sum(m * torch.log(m) for m in mean)
        loss = self.weight * (sum(entropy(row) for row in logits) / len(logits) - diversity)
        if self.pseudo_weight:
            labels = self.centroid_labels(z.detach(), p.detach())
            loss = loss + self.pseudo_weight * sum(-torch.log(p[i, labels[i]]) for i in range(len(p))) / len(p)
        return loss

    def centroid_labels(self, z, p):
        f = [torch.cat((row, torch.ones(1, dtype=z.dtype))) for row in z]
        f = [row / row.norm() for row in f]
        weights = [[float(p[i, k]) for k in range(self.classes)] for i in range(len(f))]
        for _ in range(2):
            labels = []
            totals = [sum(weights[i][k] for i in range(len(f))) for k in range(self.classes)]
            centroids = [sum(weights[i][k] * f[i] for i in range(len(f))) for k in range(self.classes)]
            for row in f:
                cosines = [
                    float(F.cosine_similarity(row, c, dim=0)) if totals[k] > 0 else -math.inf
                    for k, c in enumerate(centroids)
                ]
                labels.append(cosines.index(max(cosines)))
            weights = [[1.0 if labels[i] == k else 0.0 for k in range(self.classes)] for i in range(len(f))]
        return labels


class TTTPlusPlus(BackboneMethod):
    lr_default = 1e-2

    def __init__(self, *args, weight=0.05, queue=1536, max_norm=1.0, size=1536, **options):
        super().__init__(*args, **options)
        self.weight, self.queue, self.max_norm = weight, queue, max_norm
        self.held = []
        z = self.source_features
        batches = list(z.split(size)) if len(z) >= 2 * size else list(z.chunk(2))  # ours: a small source is halved
        batches = [b for b in batches if len(b) == len(batches[0])]
        pairs = [(a, b) for i, a in enumerate(batches) for b in batches[i + 1 :]]
        self.samples = len(batches[0])
        self.m = sum(((a.mean(0) - b.mean(0)) ** 2).mean() for a, b in pairs) / len(pairs)
        d = z.shape[1]
        self.c = sum(((self.cov_of(a) - self.cov_of(b)) ** 2).sum() / (4 * d * d) for a, b in pairs) / len(pairs)

    def loss(self, z, logits):
        rows = (self.held + list(z))[-self.queue :]
        self.held = [row.detach() for row in rows]
        f = torch.stack(rows)
        more = max(1, self.samples / len(rows))  # ours: fewer samples than a source batch differ more
        d = f.shape[1]
        coral = ((self.cov - self.cov_of(f)) ** 2).sum() / (4 * d * d)
        shift = ((self.mean - f.mean(dim=0)) ** 2).mean()
        return self.weight * (coral / (self.c * more) + shift / (self.m * more))


class TTAC(BackboneMethod):
    lr_default = 1e-2

    def __init__(
        self, *args, scale=0.05, confidence=0.9, horizon=1280, class_horizon=128, class_minimum=16,
        class_prior=0, average_classes=True, max_norm=100.0, diagonal=False, **options,
    ):  # fmt: skip
        super().__init__(*args, **options)
        self.scale, self.confidence, self.class_minimum = scale, confidence, class_minimum
        self.class_scale = scale / self.classes if average_classes else scale
        self.diagonal, self.max_norm = diagonal, max_norm
        self.all = RunningGaussian(self.mean, self.cov, horizon)
        self.each = [
            RunningGaussian(m, c, class_horizon) for m, c in zip(self.class_means, self.class_covs, strict=True)
        ]
        for gaussian in self.each:
            gaussian.n = class_prior

    def loss(self, z, logits):
        mean, cov = self.all.update(z)
        loss = self.scale * symmetric_kl(self.mean, self.cov + self.ridge, mean, cov + self.ridge)
        p = logits.detach().softmax(dim=1)
        for k in range(self.classes):
            members = [z[i] for i in range(len(z)) if int(p[i].argmax()) == k and float(p[i].max()) > self.confidence]
            if not members:
                continue
            mean, cov = self.each[k].update(members)
            if self.each[k].n >= self.class_minimum:
                source, target = self.class_covs[k] + self.ridge, cov + self.ridge
                if self.diagonal:
                    source, target = torch.diag(torch.diag(source)), torch.diag(torch.diag(target))
                loss = loss + self.class_scale * symmetric_kl(self.class_means[k], source, mean, target)
        return loss


class OWTTT(Reference):
    def __init__(
        self, *args, lr=1e-3, momentum=0.9, alignment_weight=1.0, clustering="extended", expansion=True,
        alignment=True, keep_rate=0.5, pool_size=100, temperature=0.1, horizon=1280,
        max_norm=1000.0, pool_score=False, pool_momentum=0.0, **options,
    ):  # fmt: skip
        super().__init__(*args, **options)
        self.pool_score, self.pool_momentum = pool_score, pool_momentum
        self.lr, self.momentum, self.alignment_weight = lr, momentum, alignment_weight
        self.clustering, self.expansion, self.alignment = clustering, expansion, alignment
        self.keep_rate, self.pool_size, self.temperature = keep_rate, pool_size, temperature
        self.target = RunningGaussian(self.mean, self.cov, horizon)
        self.max_norm = max_norm
        self.pool = []

    def adapt(self, x, scores, tau):
        weak = [i for i in range(len(x)) if scores[i] < tau]
        strong = [i for i in range(len(x)) if scores[i] >= tau]
        # Forward #1 on a copy: nothing that happens later can disturb its graph.
        first = copy.deepcopy(self.model)
        z, _ = self.forward(first, x)
        before = list(self.pool)
        if self.expansion and strong:
            self.expand(z.detach(), scores, tau, strong)
        pool = before if self.released else self.pool
        gradients = {}
        loss = self.clustering_loss(z, scores, weak, strong, pool)
        if loss is not None:
            gradients = self.gradients(first, loss)
        if self.alignment and weak:
            for layer in batch_norm_layers(self.model):
                layer.train(len(weak) > 1 or layer.running_mean.shape[0] == 8)
            f, _ = self.forward(self.model, x[weak])
            self.model.eval()
            mean, cov = self.target.update(f)
            kld = symmetric_kl(self.mean, self.cov + self.ridge, mean, cov + self.ridge) / 2
            for name, g in self.gradients(self.model, self.alignment_weight * kld).items():
                old = gradients.get(name)
                gradients[name] = g if old is None else old if g is None else old + g
        if gradients:
            gradients = cut(gradients, self.max_norm)
            self.sgd(gradients, self.lr, self.momentum)

    def score(self, z, logits):
        if not self.pool_score or not self.pool:
            return super().score(z, logits)
        scores = []
        for f in z:
            s_s = max(float(F.cosine_similarity(f, p, dim=0)) for p in self.prototypes)
            nearest = sorted((float(F.cosine_similarity(f, p, dim=0)) for p in self.pool), reverse=True)[:10]
            s_u = sum(nearest) / len(nearest)
            s_s, s_u = max(s_s, 0), max(s_u, 0)
            scores.append((1 - s_s) * s_s / (s_s + s_u) + s_u * s_u / (s_s + s_u) if s_s + s_u > 0 else 1.0)
        return scores

    def extended(self, f):
        return 1 - max(float(F.cosine_similarity(f, p, dim=0)) for p in [*self.prototypes, *self.pool])

    def expand(self, z, scores, tau, strong):
        scores_ext = [self.extended(z[i]) for i in strong]
        split = threshold(scores_ext, self.weighted)
        if math.isinf(split):
            split = math.floor(min(scores_ext) * 100) / 100  # ours: nothing splits them
        old, joined = list(self.pool), []
        unvisited = list(range(len(z)))
        while unvisited:
            i = max(unvisited, key=lambda j: scores[j])
            if scores[i] <= tau:
                break
            unvisited.remove(i)
            if self.extended(z[i]) > split:
                joined.append(i)
                self.pool = [*self.pool, z[i] / z[i].norm()][-self.pool_size :]
        if self.pool_momentum and old:
            moved = list(old)
            for i in strong:
                if i not in joined:
                    cosines = [float(F.cosine_similarity(z[i], p, dim=0)) for p in old]
                    j = cosines.index(max(cosines))
                    moved[j] = (1 - self.pool_momentum) * moved[j] + self.pool_momentum * z[i] / z[i].norm()
            new = [z[i] / z[i].norm() for i in joined]
            self.pool = [*(p / p.norm() for p in moved), *new][-self.pool_size :]

    def clustering_loss(self, z, scores, weak, strong, pool):
        if self.clustering == "off":
            return None
        if self.released and self.clustering == "extended" and not pool:
            return None
        weak = sorted(weak, key=lambda i: scores[i])
        strong = sorted(strong, key=lambda i: -scores[i])
        weak = weak[: max(1, int(len(weak) * self.keep_rate))]  # ours: at least one, where the authors' loss is NaN
        strong = strong[: max(1, int(len(strong) * self.keep_rate))]
        if self.clustering == "source" or not pool:
            strong = []
        loss = None
        if weak:
            total = 0
            for i in weak:
                logits = torch.stack([F.cosine_similarity(z[i], p, dim=0) / self.temperature for p in self.prototypes])
                total = total - torch.log(logits.softmax(dim=0)[int(logits.argmax())])
            loss = total / len(weak)
        if strong:
            total = 0
            for i in strong:
                known = [F.cosine_similarity(z[i], p, dim=0) / self.temperature for p in self.prototypes]
                nearest = max(
                    (F.cosine_similarity(z[i], p, dim=0) / self.temperature for p in pool), key=lambda c: c.item()
                )
                total = total - torch.log(torch.stack([*known, nearest]).softmax(dim=0)[-1])
            loss = total / len(strong) if loss is None else loss + total / len(strong)
        return loss


def auroc(scores, positive):
    pairs = [
        (s, t)
        for s, p in zip(scores, positive, strict=True)
        if p
        for t, q in zip(scores, positive, strict=True)
        if not q
    ]
    return sum(1.0 if s > t else 0.5 if s == t else 0.0 for s, t in pairs) / len(pairs)


def fpr_at_tpr(scores, positive, tpr):
    """Try every score as the threshold, from the highest, until enough positives are caught."""
    positives = [s for s, p in zip(scores, positive, strict=True) if p]
    negatives = [s for s, p in zip(scores, positive, strict=True) if not p]
    for cut in sorted(set(scores), reverse=True):
        if sum(s >= cut for s in positives) / len(positives) >= tpr:
            return sum(s >= cut for s in negatives) / len(negatives)
    raise AssertionError("some threshold catches everything")


def oscr(scores, correct, unknown):
    """Trapezoids under (share of unknown accepted, share of known accepted and right) over all thresholds."""
    points = [(0.0, 0.0)]
    known, other = unknown.count(False), unknown.count(True)
    for cut in sorted(set(scores)):
        accepted = [i for i, s in enumerate(scores) if s <= cut]
        right = sum(correct[i] and not unknown[i] for i in accepted) / known
        wrong = sum(unknown[i] for i in accepted) / other
        points.append((wrong, right))
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))


def two_groups(points):
    """Ways to part points in two: EM of two Gaussians by the book, from every start, the likeliest first."""
    seen = plane(points)
    number, axes = seen.shape
    starts = []
    for inside in (lambda v: v > 0, lambda v: v > 1.3, lambda v: v < -1.3, lambda v: abs(v) < 0.35):
        starts += [inside(seen[:, axis]) for axis in range(axes)]
    found = []
    for start in starts:
        if min(sum(start), number - sum(start)) < 4:
            continue
        belongs = np.where(start, 0.99, 0.01)
        for _ in range(20):
            one, two = density(gaussian(seen, 1 - belongs), seen), density(gaussian(seen, belongs), seen)
            belongs = 1 / (1 + np.exp(np.minimum(700, one - two)))
        likelihood = np.mean(np.maximum(one, two) + np.log1p(np.exp(-abs(one - two))))
        second = [bool(b > 0.5) for b in belongs]
        if min(sum(second), number - sum(second)) >= 4:
            found.append((likelihood, second))
    ways = []
    for _, second in sorted(found, key=lambda pair: -pair[0]):
        if second not in ways and [not inside for inside in second] not in ways:
            ways.append(second)
    return ways


def plane(points):
    """Points along their first four principal axes, in units of the deviation along each."""
    centered = np.stack([p.numpy() for p in points])
    centered = centered - centered.mean(axis=0)
    values, vectors = np.linalg.eigh(centered.T @ centered)
    columns = []
    for value, axis in list(zip(values, vectors.T, strict=True))[::-1][: min(4, *centered.shape)]:
        deviation = math.sqrt(max(value, 0) / len(points))
        columns.append(
            centered @ axis / deviation
            if deviation > 1e-6 * math.sqrt(values[-1] / len(points))
            else 0 * centered @ axis
        )
    return np.stack(columns, axis=1)


def gaussian(points, belongs):
    """Share, mean and covariance of points that belong to a group more or less; few are drawn to a small ball."""
    total = belongs.sum()
    mean = (belongs[:, None] * points).sum(axis=0) / total
    spread = (belongs[:, None] * (points - mean)).T @ (points - mean)
    ball = np.eye(points.shape[1])
    return total / len(points), mean, (spread + 10 * 0.1 * ball) / (total + 10) + 1e-4 * ball


def density(part, points):
    """log(π·N(p; μ, Σ)), but for a constant."""
    share, _, covariance = part
    return math.log(share) - math.log(np.linalg.det(covariance)) / 2 - distance(part, points) / 2


def distance(part, points):
    _, mean, covariance = part
    inverse = np.linalg.inv(covariance)
    away = np.asarray(points) - mean
    return (away @ inverse * away).sum(axis=1)


def sorted_quantiles(values, shares):
    return [float(torch.tensor(values, dtype=torch.float64).quantile(share)) for share in shares]


class Plus(Reference):
    """Statistics of the known samples, and who is strange, step by step."""

    def __init__(
        self,
        *args,
        middle,
        momentum=0.3,
        jump=0.1,
        strange=0.4,
        least=0.1,
        keep=0.5,
        rounds=2,
        rest=7,
        chunk=128,
        **options,
    ):
        super().__init__(*args, **options)
        self.rounds = rounds
        self.momentum, self.jump = momentum, jump
        self.strange, self.least, self.keep, self.chunk = strange, least, keep, chunk
        self.middle = middle
        self.source_model = copy.deepcopy(self.model)
        self.present = copy.deepcopy(self.model)
        self.moved = False
        self.gathered = []
        self.moves = []
        self.rest, self.pause, self.waiting, self.look, self.parts = rest, 0, 0, None, None
        self.units = None
        own = self.terms(self.source_model, args[1])
        self.units = [sorted_quantiles(values, (0.5, 0.9)) for values in zip(*own, strict=True)]
        self.usual, *self.high = sorted_quantiles([self.joint(row) for row in own], (0.75, 0.95, 0.98))
        self.pruned = 0
        self.rested = self.glances = self.rejected = self.recalled = self.empty = self.by_own = self.held = 0
        self.alike = 0.0

    STATE = ("pause", "waiting", "alike", "empty", "look", "parts", "rested", "moved", "rejected", "recalled")

    def predicting_model(self, x):
        if len(x) < self.chunk:
            return self.present
        return self.found_only(x)[0]

    def strangers(self, x):
        if len(x) < self.chunk:
            return self.remembered(x)
        return self.found_only(x)[1]

    def found_only(self, x):
        """What `found` returns, without anything being remembered."""
        before, number = {name: getattr(self, name) for name in self.STATE}, len(self.moves)
        found = self.found(x)
        for name, value in before.items():
            setattr(self, name, value)
        del self.moves[number:]
        return found

    def adapt(self, x, scores, tau):
        with torch.no_grad():
            if len(x) >= self.chunk:
                self.present, _ = self.found(x)
                return
            self.gathered += list(x)
            if len(self.gathered) >= self.chunk:
                self.present, _ = self.found(torch.stack(self.gathered))
                self.gathered = []
            elif len(self.gathered) - len(x) < 32 <= len(self.gathered):
                sample = torch.stack(self.gathered)
                sample = sample[[not odd for odd in self.remembered(sample)]]
                if len(sample) < 8:
                    return
                now, then = (self.tried(model, sample) for model in (self.present, self.source_model))
                if self.better(then, now, self.jump):
                    self.present, self.waiting, self.parts = copy.deepcopy(self.source_model), 0, None
                    self.moved = False
                    self.glances += 1

    def tried(self, model, x):
        """Of every sample, the scores by its cosines, centered and joint, and the probabilities of the head."""
        with torch.no_grad():
            z, logits = self.forward(model, x)
        centered = []
        for f in z:
            cosines = [float(F.cosine_similarity(f - self.mean, m - self.mean, dim=0)) for m in self.class_means]
            centered.append(max(0, 1 - max(cosines)))
        joint = [self.joint(row) for row in self.terms(model, x)]
        return list(zip(self.score(z, logits), centered, joint, F.softmax(logits, dim=1).tolist(), strict=True))

    def on_the_way(self, model, x):
        """Of every sample, the means of all channels that the two normalization layers put out."""
        with torch.no_grad():
            first = model.norm(model.conv(x))
            last = model.last(model.hidden(F.avg_pool2d(first.relu(), 2).flatten(1)))
        return [[float(c.mean()) for c in image] + row.tolist() for image, row in zip(first, last, strict=True)]

    def terms(self, model, x):
        """Of every sample, its cosine score, what no difference between classes explains, and how unlike it looks."""
        if self.units is None:
            columns = [torch.tensor(c) for c in zip(*self.on_the_way(model, x), strict=True)]
            self.usual_looks = [(float(c.mean()), float(c.std())) for c in columns]
        with torch.no_grad():
            features, logits = self.forward(model, x)
        rows = []
        together = zip(features, self.score(features, logits), self.on_the_way(model, x), strict=True)
        for f, cosine, looks in together:
            away = [((v - mean) / std) ** 2 for v, (mean, std) in zip(looks, self.usual_looks, strict=True)]
            rows.append((cosine, self.residual(f), sum(away) / len(away)))
        return rows

    def residual(self, f):
        differences = torch.stack([m - self.mean for m in self.class_means]).T
        best = torch.linalg.lstsq(differences, (f - self.mean)[:, None], driver="gelsd").solution
        left = (f - self.mean) - (differences @ best)[:, 0]
        return float(left.square().sum() / (f - self.mean).square().sum())

    def joint(self, row):
        return sum(min(2, (v - low) / max(high - low, 0.04)) for v, (low, high) in zip(row, self.units, strict=True))

    def measured(self, x):
        """The source model with the statistics of x, layer after layer."""
        found = copy.deepcopy(self.source_model)
        with torch.no_grad():
            h = found.conv(x)
            self.take(found.norm, [h[:, c].flatten() for c in range(h.shape[1])])
            h = F.avg_pool2d(F.relu(found.norm(h)), 2)
            h = found.hidden(h.flatten(1))
            self.take(found.last, [h[:, c] for c in range(h.shape[1])])
        return found

    def take(self, layer, channels):
        for c, values in enumerate(channels):
            layer.running_mean[c] = values.mean()
            layer.running_var[c] = ((values - values.mean()) ** 2).mean()

    def mix(self, one, two, share):
        out = copy.deepcopy(one)
        for mine, a, b in zip(*map(batch_norm_layers, (out, one, two)), strict=True):
            mean = (1 - share) * a.running_mean + share * b.running_mean
            square_a, square_b = a.running_var + a.running_mean**2, b.running_var + b.running_mean**2
            mine.running_mean.copy_(mean)
            mine.running_var.copy_((1 - share) * square_a + share * square_b - mean**2)
        return out

    def looks(self, x, scale=None):
        with torch.no_grad():
            h = self.source_model.conv(x)
        means = torch.tensor([[float(c.mean()) for c in image] for image in h], dtype=h.dtype)
        deviations = torch.tensor([[float(c.std(correction=0)) for c in image] for image in h], dtype=h.dtype)
        scale = deviations.mean(dim=0) if scale is None else scale
        return torch.cat((means / scale, torch.log(deviations / scale + 1e-3)), dim=1), scale

    def rests(self, x):
        """Whether samples look, in the mean, as they did at the last search, and the search may rest."""
        if not self.waiting:
            return False
        each, _ = self.looks(x, self.look[1])
        mean = each.mean(dim=0)
        spread = sum(float(((row - mean) ** 2).sum()) for row in each) / len(each)
        return float(((mean - self.look[0]) ** 2).sum()) <= 8 * 2 * spread / len(each)

    def remembered(self, x):
        """Who is strange by the parts found last: whose likeliest part is a strange one, and who lies inside of it."""
        if self.parts is None or len(self.parts[2]) < 2:
            return [False] * len(x)
        self.recalled += 1
        center, axes, parts = self.parts
        strange = []
        for row in self.looks(x, self.look[1])[0]:
            point = [((row - center) @ axes).numpy()]
            densities = [-math.inf if part is None else float(density(part, point)[0]) for part in parts]
            best = densities.index(max(densities))
            strange.append(best > 0 and float(distance(parts[best], point)[0]) <= 16)
        return strange

    def found(self, x):
        if self.rests(x):
            self.waiting -= 1
            self.rested += 1
            return self.present, self.remembered(x)
        points, scale = self.looks(x)
        part, split = self.parted(x, list(points))
        self.look = (points.mean(dim=0), scale)
        found, jumped = self.judged(x[[i for i, p in enumerate(part) if p == 0]])
        share = len(split["anchor"]) / sum(p == 0 for p in part)
        overall = share * split["likeness"] + (1 - share) * split["others"]
        nothing = max(split["likeness"], overall) < self.least and self.alike >= 3 * self.least
        if nothing:
            part = [p or 3 for p in part]
            self.empty += 1
        self.parts = self.parts_of(points, part)
        self.alike = max(self.alike, split["likeness"])
        self.pause = 0 if jumped or nothing else min(self.rest, 2 * self.pause + 1)
        self.waiting = self.pause
        self.rejected += sum(p > 0 for p in part)
        return found, [p > 0 for p in part]

    def parts_of(self, points, part):
        center = points.mean(dim=0)
        _, values, vectors = torch.linalg.svd(points - center, full_matrices=False)
        axes = vectors[:4].T / (values[:4] / len(points) ** 0.5)
        seen = ((points - center) @ axes).numpy()
        belongs = [np.array([float(p == number) for p in part]) for number in range(max(part) + 1)]
        return center, axes, [gaussian(seen, one) if one.any() else None for one in belongs]

    def parted(self, x, points):
        """Set groups aside that are strange, one after the other."""
        tried = {"source": self.tried(self.source_model, x), "in use": self.tried(self.present, x)}
        part = [0] * len(x)
        split = self.split(x, points, part, tried)
        for number in (1, 2, 3):
            if split["likeness"] < self.least or not self.unlike(split):
                break
            self.held += split["held"]
            part = [number if p == 0 and i not in split["anchor"] else p for i, p in enumerate(part)]
            split = self.split(x, points, part, tried)
        return part, split

    def unlike(self, split):
        """Whether the others of two groups are strange."""
        limit = (1.5 if split["held"] else 1) * self.strange - split["doubt"]
        if split["others"] < limit * split["likeness"]:
            return True
        if "own others" not in split or split["own others"] >= limit * split["own likeness"]:
            return False
        self.by_own += split["others"] < 2 * limit * split["likeness"]
        return split["others"] < 2 * limit * split["likeness"]

    def likeness(self, *lists):
        return max(2 * sum(centered <= self.middle for _, centered, *_ in scores) / len(scores) for scores in lists)

    def split(self, x, points, part, tried):
        """Two groups of those that are left, or, if nobody is strange then, earlier strangers and all others."""
        left = [i for i, p in enumerate(part) if p == 0]
        fresh = self.compared(x, self.groups(points, left, tried), tried)
        if self.unlike(fresh):
            return fresh
        before = self.remembered(x)
        pair = [[i for i in left if not before[i]], [i for i in left if before[i]]]
        if min(map(len, pair)) < 8 or max(map(len, pair)) < 16:
            return fresh
        again = {**self.compared(x, pair, tried), "held": True}
        return again if again["anchor"] == pair[0] and self.unlike(again) else fresh

    def resemblance(self, tried, group):
        return self.likeness([tried["source"][i] for i in group], [tried["in use"][i] for i in group])

    def groups(self, points, left, tried):
        pairs = []
        for way in two_groups([points[i] for i in left]):
            pair = [[i for i, second in zip(left, way, strict=True) if second == side] for side in (True, False)]
            if min(map(len, pair)) >= 8 and max(map(len, pair)) >= 16:
                pairs.append(pair)
        for pair in pairs:
            low, high = sorted(self.resemblance(tried, group) for group in pair)
            if low + 2 / min(map(len, pair)) < self.strange * high:
                return pair
        return pairs[0] if pairs else [left]

    def compared(self, x, chosen, tried):
        if len(chosen) == 1:
            own = self.measured(x[chosen[0]])
            scores = self.tried(own, x[chosen[0]])
            known = max(self.likeness(scores), self.resemblance(tried, chosen[0]))
            return {"anchor": chosen[0], "likeness": known, "others": known, "doubt": 0, "held": False}
        own = {}
        for index, group in enumerate(chosen):
            if len(group) >= 16:
                model = self.measured(x[group])
                own[index] = (model, self.tried(model, x[group]))
        index = min(own, key=lambda i: self.quarter(own[i][1]))
        anchor, rest = chosen[index], chosen[1 - index]
        model, scores = own[index]
        others = self.likeness(self.tried(model, x[rest]))
        known = max(self.likeness(scores), self.resemblance(tried, anchor))
        found = {"anchor": anchor, "likeness": known, "held": False}
        if 1 - index in own:
            others = max(others, self.likeness(own[1 - index][1]))
            found |= {"own likeness": self.likeness(scores), "own others": others + 2 / len(rest)}
        others = max(others, self.resemblance(tried, rest))
        return {**found, "others": others + 2 / len(rest), "doubt": self.doubt(x, anchor, rest)}

    def doubt(self, x, anchor, rest):
        """How many samples could as well be in the other of two groups, for each one in the smaller."""
        together = sorted(anchor + rest)
        points, _ = self.looks(x[together])
        center, axes, parts = self.parts_of(points, [int(i in rest) for i in together])
        doubt = 0
        for row in points:
            one, two = (float(density(part, [((row - center) @ axes).numpy()])[0]) for part in parts)
            doubt += 1 - 1 / (1 + math.exp(-abs(one - two)))
        return doubt / min(len(anchor), len(rest))

    def judged(self, x):
        every, pruned = self.measured(x), False
        for _ in range(self.rounds):
            joint = [s for _, _, s, _ in self.tried(every, x)]
            if not pruned and not self.too_high(joint):
                break
            pruned = True
            limit = max(self.usual, sorted_quantiles(joint, (self.keep,))[0])
            known = [i for i, s in enumerate(joint) if s <= limit]
            if len(known) == len(joint):
                break
            self.pruned += 1
            every = self.measured(x[known])
        models = {"source": self.source_model, "in use": self.present, "every": every}
        models["half"] = self.mix(self.source_model, every, 0.5)
        values = {name: self.tried(model, x) for name, model in models.items()}
        names = ["every"]
        if not self.better(values["every"], values["source"], self.jump):
            names.append("half")
        best = "in use"
        for name in names:
            if all(self.better(values[name], values[other], 0.05) for other in ("source", best)):
                best = name
        if not self.better(values[best], values["source"], 0.05):
            best = "source"
        self.moves.append(best)
        if best == "in use" or (best == "source" and not self.moved):
            return self.present, False
        if best != "source" and self.likeness(values[best]) < self.least:
            return self.present, False
        jumped = self.better(values[best], values["in use"], self.jump)
        if jumped or not self.moved or best == "source":
            self.moved = best != "source"
            return models[best], jumped
        return self.mix(self.present, models[best], self.momentum), False

    def too_high(self, joint):
        """Whether by a fifth more samples than of the source's score beyond its 95th and 98th percentiles."""
        beyond = [sum(s > high for s in joint) / len(joint) for high in self.high]
        return (beyond[0] - 0.05 + beyond[1] - 0.02) / 2 > 0.2

    def better(self, ours, theirs, by):
        """Whether the answers tell more, or samples are closer to the prototypes, and not much farther from them."""
        gain = math.log(self.information(ours) / self.information(theirs))
        gain += math.log(self.quarter(theirs) / self.quarter(ours))
        return self.quarter(ours) <= 1.05 * self.quarter(theirs) and gain > by

    @staticmethod
    def quarter(values):
        return float(torch.tensor([score for score, *_ in values], dtype=torch.float64).quantile(0.25))

    @staticmethod
    def information(values):
        def entropy(shares):
            return -sum(p * math.log(p) for p in shares if p > 0)

        every = [p for *_, p in values]
        together = [sum(column) / len(every) for column in zip(*every, strict=True)]
        return entropy(together) - sum(map(entropy, every)) / len(every)
