"""A deep convolutional mixture: mixtures stacked on patches of an image, each a layer.

    folding.py    an image as overlapping patches, and back
    layout.py     which foldings an image of a given size gets
    layer.py      one layer's forward pass
    sharpening.py climbing an image towards what the upper layers find likely
    density.py    the whole stack as it is served

Throughout: N samples, D features; a layer has P positions and K components.
"""
