"""PyTorch's optimizers, free of its compiler, which takes longer to import than all else here.

Their methods are decorated for callers that are compiled: called first, they import torch._dynamo,
and with it torch.distributed.tensor, torch.onnx and sympy. No update is compiled here.
"""

from inspect import unwrap

import torch


class Optimizer(torch.optim.Optimizer):
    """PyTorch's base of optimizers, its methods undecorated."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)


class Sgd(Optimizer, torch.optim.SGD):
    """PyTorch's SGD, its step undecorated."""

    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


class Adam(Optimizer, torch.optim.Adam):
    """PyTorch's Adam, its step undecorated."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class AdamW(Optimizer, torch.optim.AdamW):
    """PyTorch's AdamW, its step undecorated."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
