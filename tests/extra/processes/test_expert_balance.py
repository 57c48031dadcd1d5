"""Two processes with gloo: one balance loss and one correction bias for all their tokens."""

import subprocess
import sys

PROCESS = """
import sys, torch
from torch import distributed
from khot.apps.moe import TopKRouter, load_balance_loss

rank, store = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
router = TopKRouter(6, 8, 2, score="sigmoid", correction_bias=True)
whole = torch.randn(30, 6)
parts = [whole[:10], whole[10:]]  # not alike long
alone = TopKRouter(6, 8, 2, score="sigmoid", correction_bias=True)
alone.load_state_dict(router.state_dict())
routing = alone(whole)
loss = load_balance_loss(routing.logits, routing.indices)
(grad,) = torch.autograd.grad(loss, alone.weight)
alone.update_correction_bias()

distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
routing = router(parts[rank])
mine = load_balance_loss(routing.logits, routing.indices, "global")
(my_grad,) = torch.autograd.grad(mine, router.weight)
mean = torch.cat([mine.detach().view(1), my_grad.flatten()]) / 2
distributed.all_reduce(mean)
torch.testing.assert_close(mean[0], loss.detach())
torch.testing.assert_close(mean[1:], grad.flatten())
router.update_correction_bias()
assert torch.equal(router.e_score_correction_bias, alone.e_score_correction_bias)
assert router.e_score_correction_bias.abs().max() > 0
print("equal")
distributed.destroy_process_group()
"""


def test_as_one_process_with_all_tokens(tmp_path):
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    results = [process.communicate(timeout=120) for process in running]
    assert [out.strip() for out, _ in results] == ["equal", "equal"], results
