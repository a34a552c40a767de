"""The diagonal of a perceptron's Fisher information, sample by sample.

For one sample, the gradient of a dense layer's weights is the outer product of the loss's
derivative by its outputs and of its inputs. So the squares of all samples' gradients add up
to one matrix product, `derivative.square().T @ inputs.square()`: per-sample gradients at the
price of an ordinary backward pass. Squaring the sum over a minibatch instead, as some code
does, is another quantity.

The expectation over labels is taken under the network's own distribution and in full, one
backward pass per class. That is the Fisher information by its definition; with true labels
it would be the "empirical" one, and with drawn labels the same with noise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.systems.perceptron import Perceptron

ROWS = 1000
"""Samples at once."""


@torch.no_grad()
def diagonal_fisher(perceptron: Perceptron, x: Tensor) -> list[Tensor]:
    """Mean over samples of E[(d log p(c | x) / d theta)^2], c drawn from p(c | x).

    Arguments:
        x: Samples, with shape (N, D), anywhere.

    Returns:
        A tensor like each of `perceptron.weights`, in their order.
    """
    total = [torch.zeros_like(weight) for weight in perceptron.weights]
    layers = perceptron.dense
    for rows in torch.split(x, ROWS):
        inputs = [rows.to(total[0].device)]
        for layer in layers[:-1]:
            inputs.append(layer(inputs[-1]).relu())
        probabilities = layers[-1](inputs[-1]).softmax(-1)
        for index, squares in enumerate(_squared_derivatives(perceptron, inputs, probabilities)):
            total[2 * index] += squares.T @ inputs[index].square() / len(x)
            total[2 * index + 1] += squares.sum(0) / len(x)
    return total


def _squared_derivatives(
    perceptron: Perceptron, inputs: list[Tensor], probabilities: Tensor
) -> list[Tensor]:
    """Per layer, E[(d log p(c | x) / d output)^2] with shape (N, outputs).

    Inputs do not depend on the class, so squares are added up over classes before anything
    is multiplied with inputs.
    """
    layers = perceptron.dense
    total = [inputs[0].new_zeros(len(inputs[0]), layer.out_features) for layer in layers]
    for code in range(probabilities.shape[1]):
        weight = probabilities[:, code, None]
        derivative = -probabilities
        derivative[:, code] += 1
        for index in reversed(range(len(layers))):
            total[index] += weight * derivative.square()
            if index:
                derivative = derivative @ layers[index].weight * (inputs[index] > 0)
    return total
