"""The networks no library has: the small transformer and DGCNN, against literal loops; both wrap with every method."""

import math

import pytest
import torch

from owttt import METHODS, SourceStats, wrap
from owttt.models import build
from owttt.models.dgcnn import DGCNN, EdgeConvolution, neighbors
from owttt.models.source_model import Preprocessing, SourceModel
from owttt.models.vit import Block, ViT


def clouds(count=6, points=32, seed=0):
    return torch.randn(count, points, 3, generator=torch.Generator().manual_seed(seed))


def test_neighbors_are_the_nearest():
    x = clouds(2, 12)
    found = neighbors(x, 4)
    for batch in range(2):
        for point in range(12):
            distances = [float((x[batch, point] - other).norm()) for other in x[batch]]
            assert set(found[batch, point].tolist()) == set(sorted(range(12), key=distances.__getitem__)[:4])
    assert neighbors(x, 50).shape == (2, 12, 12), "never more than there are"


def test_neighbors_among_many_are_found_in_groups():
    x = clouds(3, 64)
    distances = torch.cdist(x, x)
    assert torch.equal(neighbors(x, 7).sort(dim=2).values, distances.topk(7, largest=False).indices.sort(dim=2).values)


def test_an_edge_convolution_is_what_the_paper_writes():
    """max_j LeakyReLU(BN(W·[x_j − x_i, x_i])), with A = W_1 and B = W_2 − W_1."""
    torch.manual_seed(0)
    layer = EdgeConvolution(3, 5, 4).eval()
    layer.norm.running_mean.normal_()
    layer.norm.running_var.uniform_(0.5, 2)
    x = clouds(2, 10)
    first, second = layer.theirs.weight, layer.own.weight + layer.theirs.weight
    made = layer(x)
    index = neighbors(x, 4)
    for batch in range(2):
        for i in range(10):
            edges = []
            for j in index[batch, i]:
                value = first @ (x[batch, j] - x[batch, i]) + second @ x[batch, i]
                normed = (value - layer.norm.running_mean) / (layer.norm.running_var + layer.norm.eps).sqrt()
                edges.append(torch.where(normed > 0, normed, 0.2 * normed))
            assert torch.allclose(made[batch, i], torch.stack(edges).amax(dim=0), atol=1e-5)


def test_dgcnn_does_not_care_for_the_order_of_points():
    torch.manual_seed(0)
    network = DGCNN(4, width=8, number=5).eval()
    x = clouds()
    assert torch.allclose(network(x), network(x[:, torch.randperm(32)]), atol=1e-5)
    assert network(clouds(points=50)).shape == (6, 4), "any number of points"


def test_attention_is_what_the_paper_writes():
    torch.manual_seed(0)
    block = Block(64, 2)
    x = torch.randn(1, 5, 64)
    normed = block.norm1(x)[0]
    queries, keys, values = (block.qkv(normed) @ torch.eye(192)[:, part * 64 : part * 64 + 64] for part in range(3))
    mixed = torch.zeros(5, 64)
    for head in range(2):
        part = slice(32 * head, 32 * head + 32)
        for i in range(5):
            scores = torch.stack([queries[i, part] @ keys[j, part] / math.sqrt(32) for j in range(5)]).softmax(dim=0)
            mixed[i, part] = sum(scores[j] * values[j, part] for j in range(5))
    after = x[0] + block.proj(mixed)
    expected = after + block.fc2(torch.nn.functional.gelu(block.fc1(block.norm2(after))))
    assert torch.allclose(block(x)[0], expected, atol=1e-5)


def test_the_transformer_takes_smaller_images_while_it_trains():
    network = ViT(10, width=32, depth=1)
    assert network(torch.randn(2, 3, 32, 32)).shape == network(torch.randn(2, 3, 24, 24)).shape == (2, 10)
    with pytest.raises(ValueError, match="multiple of 32"):
        ViT(10, width=40)


def transformer():
    torch.manual_seed(0)
    model = SourceModel(build("vit", 3, 32), Preprocessing(32), ("a", "b", "c")).eval()
    return model, torch.rand(30, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def graph_network():
    torch.manual_seed(0)
    model = SourceModel(build("dgcnn", 3, 8), Preprocessing(points=32), ("a", "b", "c")).eval()
    return model, clouds(30)


@pytest.mark.parametrize("make", [transformer, graph_network])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_adapts_them_or_says_why_not(make, method, tmp_path):
    model, x = make()
    source = SourceStats.fit(model, [(x, torch.arange(30) % 3)], 3, progress=False)
    if method == "bn" and make is transformer:
        with pytest.raises(ValueError, match="BatchNorm"):
            wrap(model, method, source=source)
        return
    adapter = wrap(model, method, source=source)
    first = adapter(x[:10]).scores
    adapter(x[10:11])
    adapter.save(tmp_path / "state.safetensors")
    later = adapter(x[11:20]).scores
    resumed = wrap(model, method, source=source).restore(tmp_path / "state.safetensors")
    assert torch.equal(resumed(x[11:20]).scores, later)
    adapter.reset()
    assert torch.equal(adapter(x[:10]).scores, first)


def test_a_model_of_clouds_refuses_what_is_none():
    model, x = graph_network()
    assert torch.allclose(model(x), model(3 * x + 1), atol=1e-4), "it brings clouds into the cube itself"
    for wrong, message in (
        (torch.rand(2, 3, 32, 32), r"Expected clouds \(B, 32, 3\)"),
        (x[:, :20], "Expected clouds of 32 points, got 20"),
        (x.long(), "in float"),
    ):
        with pytest.raises(ValueError, match=message):
            model(wrong)
