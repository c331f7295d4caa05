"""What Prometheus reads."""

from __future__ import annotations

from typing import final

from prometheus_client import CollectorRegistry, Counter, Histogram


@final
class Meters:
    """Counters of a service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.samples = Counter("owttt_samples", "Samples answered", ["stream"], registry=self.registry)
        self.rejected = Counter("owttt_rejected", "Samples answered with unknown", ["stream"], registry=self.registry)
        self.refused = Counter("owttt_refused", "Requests refused, by status", ["status"], registry=self.registry)
        self.seconds = Histogram("owttt_answer_seconds", "From arrival to answer", ["stream"], registry=self.registry)

    def tell(self, stream: str, samples: int, rejected: int, latency: float) -> None:
        """Count a request that was answered."""
        self.samples.labels(stream).inc(samples)
        self.rejected.labels(stream).inc(rejected)
        self.seconds.labels(stream).observe(latency)
