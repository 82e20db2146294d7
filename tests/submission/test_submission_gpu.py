"""The compiled H200 submission on the card: captured plans, streams, rebuilds. Needs CUDA."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gfast_pipeline.contract.load import load
from tests.submission.portfolios import compiled

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

V002, V003 = "v002_sdpa_graph", "v003_fp16_operands_graph"


@pytest.fixture
def made(tmp_path):
    loaded = load("h200_fp32")
    plans = {case.id: V003 if case.id in (6, 8, 13, 14) else V002 for case in loaded.contract.cases}
    return compiled(loaded, plans, V003, tmp_path / "h200.py")


def test_captured_plans_follow_weights_streams_and_shapes(made):
    torch.set_float32_matmul_precision("high")
    config = SimpleNamespace(d_model=128, num_heads=4, num_layers=4)
    reference = made.ref_TransformerLayer(128, 4, 4)
    model = made.build_model(config)
    model.load_state_dict(reference.state_dict(), strict=True)
    reference, model = reference.cuda().eval(), model.cuda().eval()

    def agree(batch, length):
        x = torch.randn(batch, length, 128, device="cuda")
        mask = torch.arange(length, device="cuda")[None] < torch.randint(1, length + 1, (batch, 1), device="cuda")
        off = (model(x, mask) - reference(x, mask)).abs()
        assert off.max().item() <= 0.01, (batch, length)

    with torch.inference_mode():
        for batch, length in ((1, 128), (64, 32), (7, 50), (1, 128)):
            agree(batch, length)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            agree(1, 128)
        torch.cuda.synchronize()
        assert [row["plan"] for row in model.choices()].count(V002) == 3
    with torch.no_grad():
        for m in (reference, model):
            m.layers[0].ffn_in.weight.mul_(1.5)
        agree(1, 128)
        agree(7, 50)
