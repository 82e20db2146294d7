"""A small workload on disk, so that these tests stand on nothing under kernels/."""

from __future__ import annotations

from pathlib import Path

import pytest

REFERENCE = '''"""A workload."""

SHAPE = ("rows", "width", "parts")
DIVISORS = {"width": "parts"}
WEIGHT_DRAWS = ("official", "gains")
STRUCTURED = ("offset", "outlier")


def double(x):
    """Twice x."""
    return 2 * x
'''

CONTRACT = """\
# a comment
name = "small"
workload = "doubling"
purpose = "Doubling, small."
structured = ["offset"]
serial_cases = [3]
peers = ["plain"]
visit_ms = 4.0
generations = 2
blocks = 2
margin = 0.01
max_noise = 0.03
ratio_gate = 1.6
build_limit_s = 30
call_limit_s = 10
publish_sessions = 2
ownership = "output_owned"

[target]
accelerator = "cpu" # what it runs on
device = "cpu"
dtype = "float32"
matmul_precision = "highest"
threads = 1
grad_mode = "inference"

[[cases]]
id = 1
status = "scored"
regime = "base"
weight = 1.0
shape = { rows = 4, width = 8, parts = 2 }

[[cases]]
id = 2
status = "scored"
regime = "base"
weight = 2.0
shape = { rows = 1, width = 8, parts = 4 }

[[cases]]
id = 3
status = "feasibility"
regime = "long"
weight = 1.0
shape = { rows = 4000, width = 8, parts = 1 }

[profiles]
launch = [2]
neutral = [1, 2]

[[variants]]
name = "randn"
seed = 11
scale = 1.0
padding = 0.0

[[variants]]
name = "pad.3"
seed = 44
scale = 1.0
padding = 0.3

[[weight_draws]]
name = "official"
seed = 1234
variants = ["randn", "pad.3"]

[[weight_draws]]
name = "gains"
seed = 2
variants = ["randn"]

[gate.official]
atol = 0.002
rtol = 0.02
trials = 5
seed = 1234

[gate.anchored]
factor = 3.0

[gate.budget]
share = 0.9

[mode]
headline = "official"
promotion = ["official", "queued"]
gap = "queued"

[screen]
generations = 1
blocks = 3

[thresholds]
done = 1.5
structural = 4.0
screen_advance = 0.99

[limits]

[budget]
device_minutes = 30
model_calls = 10
usd = 1.5

[prohibited]
imports = ["os", "torch.hub"]
calls = ["eval"]
attributes = ["__dict__"]
"""

CANDIDATE = '''"""v000: the reference itself.

Mechanism: none."""

SCHEDULES = {"num_warps": [4, 8], "rows": [32]}


def build(reference, case, schedule):
    return reference
'''


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernels/ folder with the workload `doubling` and its contract `small`, found through GFAST_KERNELS."""
    root = tmp_path / "kernels"
    folder = root / "doubling"
    for name in ("contracts", "candidates", "peers"):
        (folder / name).mkdir(parents=True)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "contracts" / "small.toml").write_text(CONTRACT)
    (folder / "candidates" / "v000_identity.py").write_text(CANDIDATE)
    (folder / "peers" / "plain.py").write_text('"""The plain way."""\n')
    monkeypatch.setenv("GFAST_KERNELS", str(root))
    return root


@pytest.fixture
def contract_file(kernels: Path) -> Path:
    return kernels / "doubling" / "contracts" / "small.toml"
