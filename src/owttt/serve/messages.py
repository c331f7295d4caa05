"""What requests and answers look like, for clients and for OpenAPI."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field


class Answer(BaseModel):
    """The answer for one sample."""

    id: str = Field(examples=["5f0c9b3a7d1e2468"])
    label: str = Field(description='a class, or "unknown"', examples=["horse"])
    unknown: bool = Field(examples=[False])
    score: float = Field(description="how unknown it looks; higher means more", examples=[0.081])
    threshold: float | None = Field(description="rejected from here on; null if nothing was", examples=[0.21])
    confidence: float = Field(description="that the model's head has in the best known class", examples=[0.97])
    best_known_class: str = Field(description="also of what was rejected", examples=["horse"])
    generation: int = Field(description="batches that the stream had learned from", examples=[128])


class Answers(BaseModel):
    """The answers for a request, in the order of its samples."""

    stream: str = Field(examples=["camera-1"])
    answers: list[Answer]


class Promotion(BaseModel):
    """A class to be made of rejected samples."""

    name: str = Field(min_length=1, max_length=64, examples=["digit"])
    ids: list[Annotated[int, Field(ge=0, le=2**62)]] = Field(
        min_length=1, max_length=2000, description="of rejects, as the clusters list them"
    )


class Demotion(BaseModel):
    """A promoted class to be taken back."""

    name: str = Field(min_length=1, max_length=64, examples=["digit"])
