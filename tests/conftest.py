"""One thread for everything: the tensors are tiny, and threads that wait for each other cost more than they compute."""

import os

import torch

os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
