"""One process of a group: runs all functions ``case_…`` of a module, and writes what failed.

python -m strategies.process_worker MODULE RANK SIZE FOLDER
"""

import datetime
import gc
import importlib
import json
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist


def main(module, rank, size, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=100),
    )
    found = {}
    for name, case in list(vars(importlib.import_module(module)).items()):
        if name.startswith("case_"):
            try:
                case(rank, size)
                found[name] = ""
            except (Exception, pytest.fail.Exception):
                found[name] = traceback.format_exc()
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))
    # What still holds the group would keep its threads until Python ends, which aborts it.
    del case
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
