"""The tests are many small ones: one torch thread each, also in the processes that they start."""

import os

import torch

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")
