"""The paper's generative adversarial network (its appendix), with sizes read off its parameters.

    noise 80 -> dense, 7 x 7 x 256 -> 7 x 7 x 128 -> 14 x 14 x 64 -> 28 x 28     generator
    28 x 28 -> 14 x 14 x 64 -> 7 x 7 x 128 -> 7 x 7 x 256 -> dense 1             discriminator

Convolutions are 5 x 5, with strides 1, 2, 2 up and 2, 2, 1 down. The appendix names layers
and counts parameters, no more. Ours to choose were: a sigmoid on the generator's output, as
pixels are in [0, 1]; leaks of 0.2 and a dropout of 0.3, as in code published by the same
group; Adam's first moment at 0.5, as is usual for such networks since DCGAN.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.systems.training import Step, glorot, numbers_of, seeded
from clients.http.errors import InputError

NOISE = 80
CHANNELS = 256
LEAK = 0.2
DROPOUT = 0.3
BETAS = (0.5, 0.999)

ROWS = 1000
"""Samples generated at once."""


class GAN:
    """A generator of images and the discriminator that trains it.

    Arguments:
        image: Height and width, multiples of 4.
        generator: Of the start, on the CPU.
        channels: Of the widest layer, a multiple of 4; the paper's is 256.

    Raises:
        InputError: Two strides of 2 do not lead to the image's size.
    """

    def __init__(
        self,
        image: tuple[int, int],
        generator: torch.Generator,
        device: torch.device,
        channels: int = CHANNELS,
    ) -> None:
        height, width = image
        if height % 4 or width % 4:
            raise InputError(
                f"Images of {height} x {width} pixels cannot be generated: the network doubles "
                f"its size twice. Expected multiples of 4. Pad the images."
            )
        self.device = device
        small = (height // 4, width // 4)
        wide, middle, narrow = channels, channels // 2, channels // 4
        n_wide = wide * small[0] * small[1]
        with seeded(generator, device):
            self.generator = nn.Sequential(
                nn.Linear(NOISE, n_wide),
                nn.BatchNorm1d(n_wide),
                nn.LeakyReLU(LEAK),
                nn.Unflatten(1, (wide, *small)),
                nn.ConvTranspose2d(wide, middle, 5, padding=2),
                nn.BatchNorm2d(middle),
                nn.LeakyReLU(LEAK),
                nn.ConvTranspose2d(middle, narrow, 5, stride=2, padding=2, output_padding=1),
                nn.BatchNorm2d(narrow),
                nn.LeakyReLU(LEAK),
                nn.ConvTranspose2d(narrow, 1, 5, stride=2, padding=2, output_padding=1),
                nn.Sigmoid(),
                nn.Flatten(),
            )
            self.discriminator = nn.Sequential(
                nn.Unflatten(1, (1, height, width)),
                nn.Conv2d(1, narrow, 5, stride=2, padding=2),
                nn.LeakyReLU(LEAK),
                nn.Dropout(DROPOUT),
                nn.Conv2d(narrow, middle, 5, stride=2, padding=2),
                nn.LeakyReLU(LEAK),
                nn.Dropout(DROPOUT),
                nn.Conv2d(middle, wide, 5, padding=2),
                nn.LeakyReLU(LEAK),
                nn.Dropout(DROPOUT),
                nn.Flatten(),
                nn.Linear(n_wide, 1),
            )
            glorot(self.generator)
            glorot(self.discriminator)
        self.generator.to(device)
        self.discriminator.to(device)

    def numbers(self) -> Iterator[Tensor]:
        """The tensors that both networks consist of."""
        yield from numbers_of(self.generator)
        yield from numbers_of(self.discriminator)

    def contest(self, rate: float) -> Step:
        """Steps of Adam: the discriminator tells real from generated, the generator deceives it.

        Arguments:
            rate: Adam's step size, of both networks.
        """
        forge, judge = (
            torch.optim.Adam(network.parameters(), lr=rate, betas=BETAS, fused=True)
            for network in (self.generator, self.discriminator)
        )
        loss = nn.functional.binary_cross_entropy_with_logits
        real, forged = torch.ones(1, 1, device=self.device), torch.zeros(1, 1, device=self.device)

        def step(x: Tensor, y: Tensor) -> None:
            self.generator.train()
            drawn = self.generator(torch.randn(len(x), NOISE, device=self.device))
            said_real, said_drawn = self.discriminator(x), self.discriminator(drawn.detach())
            judge.zero_grad()
            torch.autograd.backward(
                loss(said_real, real.expand_as(said_real))
                + loss(said_drawn, forged.expand_as(said_drawn))
            )
            judge.step()
            said = self.discriminator(drawn)
            forge.zero_grad()
            torch.autograd.backward(loss(said, real.expand_as(said)))
            forge.step()

        return step

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """n images, with shape (n, D), in [0, 1], on the CPU.

        Arguments:
            generator: On the CPU.
        """
        self.generator.eval()
        noise = torch.randn(n, NOISE, generator=generator)
        parts = [self.generator(rows.to(self.device)).cpu() for rows in torch.split(noise, ROWS)]
        return torch.cat(parts)
