"""Learners whose components belong to classes: learned in one pass, by windows.

The rules that keep them from forgetting:

1. A component learns from the samples of one owner only: a class, or the samples
   without a label. What one class learns cannot move another's components.
2. Components of earlier sub-tasks are frozen. Room for new ones is made by merging,
   in closed form (analytic replay), never by drawing samples.
3. The budget K is shared equally by the classes known; unlabelled samples get a share
   by their number. So memory and the cost of a batch stay constant for an endless stream.
   Once there are more classes than components, the newest ones share: their samples join
   those without a label, and their labels become votes on those components.

One learner serves all families of densities; a family supplies how its components are seeded,
fitted, stepped, merged and scored.

    learner.py      owners, labels and boundaries
    state.py        what is learned, as a value; banks.py: in sets, one for each owner
    windows.py      what is asked of a way to learn; windowed.py: one, by EM a window at a time
    capacity.py     merging, pooling and unfreezing, until everyone keeps to the budget
    budget.py       who may have how many components
    relabelling.py  what components are called
    flush.py        whose waiting samples are learned when the stream is quiet
    shifting.py     shifts of images
    mfa/ flat/      the families
"""
